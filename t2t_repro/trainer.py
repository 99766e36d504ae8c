"""Train a model, or resume a run that was stopped.

Missing data is generated first.

t2t trainer --problem=wmt14_ende --hparams_set=big
"""

from t2t_repro.cli import command_line, common_flags
from t2t_repro.training import options

common_flags.define_data_flags()
common_flags.define_fields(options.Options)


def main(settings: tuple) -> int:
    from t2t_repro.training import job

    code = job.train(*settings)
    if code == 0 and not common_flags.field_values(options.Options).dry_run:
        common_flags.print_next("avg_checkpoints")
    return code


def _read_settings():
    return (
        common_flags.problem(),
        common_flags.hparams(),
        common_flags.output_dir(),
        common_flags.field_values(options.Options),
        common_flags.data(),
        common_flags.required("hparams_set"),
    )


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Required": ("problem", "hparams_set"),
            "Settings": ("problem_args", "hparams"),
            "Data": ("data_dir", "raw_dir", "num_workers", "verify"),
            "Training": ("output_dir",),
        },
        _read_settings,
    )
