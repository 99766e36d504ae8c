"""Write report/index.html: data, curves, scores, cost, samples, attention.

    python -m t2t_repro.report --output_dir=…
    python -m t2t_repro.report --output_dir=one/run,other/run

The page holds all it needs, of one run or of several side by side. Pictures of
attention are of --sentence, which may be given several times, or of some of
the validation split.
"""

from absl import flags

from t2t_repro import common_flags, reporting, runs

_SENTENCE = flags.DEFINE_multi_string(
    "sentence", [], "Sentence to draw attention of; may be given again."
)
_NUM_SENTENCES = flags.DEFINE_integer(
    "num_sentences",
    3,
    "Without --sentence: how many of the validation split to draw attention "
    "of, from middling to long ones; 0: no pictures.",
    lower_bound=0,
)
_PICTURES = flags.DEFINE_bool(
    "pictures", False, "Also write every picture of attention as a file."
)
_DEVICES = flags.DEFINE_integer(
    "devices", 1, "GPUs, or CPUs, that each run trained on.", lower_bound=1
)
_SUSTAINED_TFLOPS = common_flags.define_number(
    "sustained_tflops",
    None,
    "What each of them sustains, in TFLOP/s; the paper takes 9.5 for a P100, "
    "6.0 for an M40, 3.7 for a K40 and 2.8 for a K80.",
    lower_bound=1e-6,
)
flags.adopt_module_key_flags(common_flags)


def main():
    expected = common_flags.expected_settings()
    folders = common_flags.output_dirs()
    opened = [runs.open_run(folder, expected) for folder in folders]
    sustained = _SUSTAINED_TFLOPS.value
    options = reporting.Options(
        data_dir=common_flags.data_dir()
        if flags.FLAGS["data_dir"].present
        else None,
        sentences=common_flags.sentences(_SENTENCE),
        num_sentences=_NUM_SENTENCES.value,
        pictures=_PICTURES.value,
        flops_per_second=sustained and _DEVICES.value * sustained * 1e12,
    )
    written = reporting.write(opened, options)
    print(f"Wrote {written.page}.")
    for folder, count in written.pictures.items():
        print(f"Wrote {count} pictures to {folder}.")


if __name__ == "__main__":
    common_flags.run(main)
