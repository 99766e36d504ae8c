"""Train a model, or resume a run that was stopped.

Missing data is generated first.

t2t trainer --problem=wmt14_ende --hparams_set=big
"""

from t2t_repro.cli import command_line, common_flags
from t2t_repro.training import options

common_flags.define_data_flags()
common_flags.define_fields(options.Options)


def main() -> int:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.training import job

    return job.train(
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
    )
