"""Check that an export gives the decoder's outputs, for any batch size.

    python -m scripts.release.check_export \\
        --output_dir=… --export_dir=… --text=test.en

It translates lines of a text with the decoder's Translator and the options of
the export's model card, and with the export: in the batches of `query` and in
batches of 1 and of 64. It counts the lines that differ. A difference is a tie
if both scores agree to 1e-4, since float sums vary with the batch. The exit
status is 1 if a line differs that is not a tie.
"""

import sys

from absl import app, flags

from scripts.benchmarks import harness
from t2t_repro import fields, hparam, registry
from t2t_repro.decoding import translate
from t2t_repro.decoding.translation import Translation
from t2t_repro.io import files
from t2t_repro.runs.run import Run
from t2t_repro.serving import client, saved_model

_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Trained run.", required=True
)
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "Folder of the exporter.", required=True
)
_TEXT = flags.DEFINE_string(
    "text", None, "File with a sentence per line.", required=True
)
_LINES = flags.DEFINE_integer("lines", 1000, "Lines of the text to use.")


def main(_):
    harness.print_machine()
    with open(_TEXT.value, encoding="utf-8") as file:
        lines = file.read().splitlines()[: _LINES.value]
    query = client.LocalClient(_EXPORT_DIR.value)
    expected = list(decoder(query.folder).translate(lines, len(lines)))
    harness.report("sentences", len(lines), "")
    different = len({translation.texts[0] for translation in expected})
    harness.report("different translations", different, "")
    failed = compare("query", list(query.translate(lines)), expected)
    for size in (1, 64):
        translations = translate_in_batches(query, lines, size)
        failed |= compare(f"batches of {size}", translations, expected)
    harness.print_json()
    sys.exit(failed)


def decoder(folder):
    """Return a Translator with the settings of an export's model card."""
    registry.load_definitions()
    card = files.read_json(folder / saved_model.MODEL_CARD)
    run = Run.open(_OUTPUT_DIR.value)
    paths = ",".join(str(run.output_dir / name) for name in card["checkpoints"])
    models = run.models(paths)
    hparams = fields.from_dict(hparam.DecodeHParams, card["decode_hparams"])
    return translate.Translator(models, run.vocabularies, hparams)


def translate_in_batches(query, lines, size):
    """Return translations, computed in batches of `size` lines."""
    translations = []
    for first in range(0, len(lines), size):
        texts, scores = query.predict(lines[first : first + size])
        translations += [
            Translation([text], [score])
            for text, score in zip(texts, scores, strict=True)
        ]
    return translations


def compare(name, translations, expected):
    """Report differences; return whether one of them is not a tie."""
    pairs = [
        pair
        for pair in zip(translations, expected, strict=True)
        if pair[0].texts != pair[1].texts
    ]
    ties = sum(
        abs(actual.scores[0] - wanted.scores[0]) < 1e-4
        for actual, wanted in pairs
    )
    harness.report(f"{name}: differences", len(pairs), "sentences")
    harness.report(f"{name}: ties among them", ties, "sentences")
    return ties < len(pairs)


if __name__ == "__main__":
    app.run(main)
