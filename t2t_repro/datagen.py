"""Generate the data of a problem: vocabulary, encoded splits.

t2t datagen --problem=multi30k_ende
"""

from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import flag
from t2t_repro.io import files, progress

common_flags.define_data_flags()


@common_flags.options
class Options:
    """Options of datagen, each a flag of the same name."""

    archive_file: str | None = flag(
        None,
        "Also write raw text and vocabulary to an archive. --raw_dir "
        "reads it on a machine without internet.",
    )


@progress.outliving_screen()
def main() -> None:
    from t2t_repro import prepare

    archive_file = common_flags.field_values(Options).archive_file
    archive = archive_file and files.expand_path(archive_file)
    if archive:
        files.require_replaceable(archive)
    problem, data = common_flags.problem(), common_flags.data()
    folder = prepare.prepare(problem, **vars(data))
    if archive:
        prepare.archive(problem, data.data_dir, data.raw_dir, archive)
    suited = prepare.suited_hparams_set(folder)
    common_flags.print_next("trainer", f"--hparams_set={suited}")


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Required": ("problem",),
            "Settings and folders": ("problem_args", "data_dir"),
        },
    )
