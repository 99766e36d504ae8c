"""Generate the data of a problem: vocabulary, encoded splits.

t2t datagen --problem=multi30k_ende
"""

from t2t_repro import command_line, common_flags, progress

common_flags.define_datagen_flags()


@progress.outliving_screen()
def main() -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro import prepare

    prepare.prepare(
        common_flags.problem(),
        common_flags.data_dir(),
        common_flags.raw_dir(),
        common_flags.num_workers(),
        common_flags.verify(),
        common_flags.engine(),
    )


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Required": ("problem",),
            "Settings and folders": ("problem_args", "data_dir"),
        },
    )
