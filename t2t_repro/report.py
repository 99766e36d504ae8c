"""Write a report as HTML: curves, scores, cost, attention maps.

    t2t report --output_dir=…
    t2t report --output_dir=one/run,other/run

The page is one file, of one run or of several side by side. Attention maps
show --sentence, which may be repeated, or sentences of the validation split.
"""

from typing import TYPE_CHECKING

from absl import flags

from t2t_repro.cli import command_line, common_flags

if TYPE_CHECKING:
    from t2t_repro.runs.run import Run

_SENTENCE = flags.DEFINE_multi_string(
    "sentence", [], "Sentence for attention maps; may be repeated."
)
_NUM_SENTENCES = flags.DEFINE_integer(
    "num_sentences",
    3,
    "Without --sentence: number of validation sentences for attention maps, "
    "from medium to long ones; 0: no maps.",
    lower_bound=0,
)
_PICTURES = flags.DEFINE_bool(
    "pictures", False, "Also write every attention map to a file of its own."
)
_DEVICES = flags.DEFINE_integer(
    "devices",
    1,
    "Number of GPUs, or CPUs, that each run trained on.",
    lower_bound=1,
)
_SUSTAINED_TFLOPS = common_flags.define_number(
    "sustained_tflops",
    None,
    "Sustained TFLOP/s of each device; the paper takes 9.5 for a P100, 6.0 "
    "for an M40, 3.7 for a K40 and 2.8 for a K80.",
    lower_bound=1e-6,
)


def main(runs: list["Run"]) -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.reports import reporting

    sustained = _SUSTAINED_TFLOPS.value
    options = reporting.ReportOptions(
        data_dir=common_flags.given_data_dir(),
        sentences=common_flags.require_utf8(_SENTENCE),
        num_sentences=_NUM_SENTENCES.value,
        pictures=_PICTURES.value,
        flops_per_second=sustained and _DEVICES.value * sustained * 1e12,
    )
    report = reporting.write(runs, options)
    print(f"Wrote {report.page}.")
    for folder, count in report.pictures.items():
        print(f"Wrote {count} pictures to {folder}.")


if __name__ == "__main__":
    command_line.run(
        main,
        common_flags.RUN | {"Folders": ("data_dir",)},
        common_flags.open_runs,
    )
