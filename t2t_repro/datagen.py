"""Generate the data of a problem: vocabulary, encoded splits.

t2t datagen --problem=multi30k_ende
"""

from absl import flags

from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import files, progress

common_flags.define_datagen_flags()
_ARCHIVE = flags.DEFINE_string(
    "archive_file",
    None,
    "Also write raw text and vocabulary to an archive. --raw_dir reads it on "
    "a machine without internet.",
)


@progress.outliving_screen()
def main() -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro import prepare

    archive = _ARCHIVE.value and files.expand_path(_ARCHIVE.value)
    if archive:
        files.require_replaceable(archive)
    source = (
        common_flags.problem(),
        common_flags.data_dir(),
        common_flags.raw_dir(),
    )
    prepare.prepare(
        *source,
        common_flags.num_workers(),
        common_flags.verify(),
        common_flags.engine(),
    )
    if archive:
        prepare.archive(*source, archive)


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Required": ("problem",),
            "Settings and folders": ("problem_args", "data_dir"),
        },
    )
