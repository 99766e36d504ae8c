"""Write a report as HTML: curves, scores, cost, attention maps.

    t2t report --output_dir=…
    t2t report --output_dir=one/run,other/run

The page is one file, of one run or of several side by side. Attention maps
show --sentence, which may be repeated, or sentences of the validation split.
"""

from typing import TYPE_CHECKING

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import at_least, flag

if TYPE_CHECKING:
    from t2t_repro.runs.run import Run


@common_flags.options
class Options:
    """Options of report, each a flag of the same name."""

    sentence: common_flags.Repeated = flag(
        (), "Sentence for attention maps; may be repeated."
    )
    num_sentences: int = flag(
        3,
        "Without --sentence: number of validation sentences for attention "
        "maps, from medium to long ones; 0: no maps.",
        at_least(0),
    )
    pictures: bool = flag(
        False, "Also write every attention map to a file of its own."
    )
    report_dir: str = flag(
        "",
        "Folder of the report, by default OUTPUT_DIR/report of the first run.",
    )
    devices: int = flag(
        1, "Number of GPUs, or CPUs, that each run trained on.", at_least(1)
    )
    sustained_tflops: float | None = flag(
        None,
        "Sustained TFLOP/s of each device; the paper takes 9.5 for a "
        "P100, 6.0 for an M40, 3.7 for a K40 and 2.8 for a K80.",
        at_least(1e-6),
    )

    def __post_init__(self) -> None:
        if self.devices > 1 and not self.sustained_tflops:
            raise errors.UserError(
                f"--devices={self.devices} needs --sustained_tflops, the rate "
                "of each device. Add it, or omit --devices."
            )

    @property
    def flops_per_second(self) -> float | None:
        """Sustained rate of all devices together."""
        rate = self.sustained_tflops
        return rate and self.devices * rate * 1e12


def main(runs: list["Run"]) -> None:
    from t2t_repro.reports import reporting

    options = common_flags.field_values(Options)
    report = reporting.write(
        runs,
        reporting.ReportOptions(
            data_dir=common_flags.given_data_dir(),
            sentences=common_flags.require_utf8("sentence"),
            num_sentences=options.num_sentences,
            pictures=options.pictures,
            flops_per_second=options.flops_per_second,
            report_dir=options.report_dir,
        ),
    )
    print(f"Wrote {report.page}.")
    for folder, count in report.pictures.items():
        print(f"Wrote {count} pictures to {folder}.")


if __name__ == "__main__":
    command_line.run(
        main,
        common_flags.RUN | {"Folders": ("data_dir",)},
        common_flags.open_runs,
    )
