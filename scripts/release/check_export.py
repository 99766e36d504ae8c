"""Does an export say what the decoder says, whatever the batch?

    python -m scripts.release.check_export \\
        --output_dir=… --export_dir=… --text=test.en

Translates lines of a text through the decoder's road, with the options of the
export's model card, and through the export in batches of 1 and of 64 and as
`query` makes them; counts the lines that differ. A tie is a difference of two
outputs whose scores agree to 1e-4: sums of floats vary with the batch. The exit
status is 1 where a line differs that is no tie.
"""

import pathlib
import sys

from absl import app, flags

from scripts.benchmarks import harness
from t2t_repro import fields, hparam, json_files, registry, runs
from t2t_repro.decoding import translate
from t2t_repro.serving import client, saved_model

_OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Run.", required=True)
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "Of the exporter.", required=True
)
_TEXT = flags.DEFINE_string("text", None, "A sentence a line.", required=True)
_LINES = flags.DEFINE_integer("lines", 1000, "Of the text.")


def main(_):
    harness.print_machine()
    with open(_TEXT.value, encoding="utf-8") as file:
        lines = file.read().splitlines()[: _LINES.value]
    query = client.LocalClient(_EXPORT_DIR.value)
    expected = list(decoder(query.folder).translate(lines, len(lines)))
    harness.report("sentences", len(lines), "")
    different = len({one.texts[0] for one in expected})
    harness.report("different translations", different, "")
    failed = compare("query", list(query.translate(lines)), expected)
    for size in (1, 64):
        found = in_batches(query, lines, size)
        failed |= compare(f"batches of {size}", found, expected)
    harness.print_json()
    sys.exit(failed)


def decoder(folder):
    """A Translator of the run, as the card of an export's version has it."""
    registry.load_definitions()
    card = json_files.read(folder / saved_model.MODEL_CARD)
    run = runs.open_run(pathlib.Path(_OUTPUT_DIR.value))
    paths = ",".join(str(run.output_dir / name) for name in card["checkpoints"])
    models, _ = runs.load_models(run, paths)
    hparams = fields.from_dict(hparam.DecodeHParams, card["decode_hparams"])
    return translate.Translator(models, run.vocabularies, hparams)


def in_batches(query, lines, size):
    """Translations of so many lines at a time."""
    found = []
    for first in range(0, len(lines), size):
        texts, scores = query.predict(lines[first : first + size])
        found += [
            translate.Translation([text], [score])
            for text, score in zip(texts, scores, strict=True)
        ]
    return found


def compare(name, found, expected):
    """Counts what differs; whether any of it is no tie."""
    pairs = [
        pair
        for pair in zip(found, expected, strict=True)
        if pair[0].texts != pair[1].texts
    ]
    apart = [abs(one.scores[0] - other.scores[0]) for one, other in pairs]
    ties = sum(difference < 1e-4 for difference in apart)
    harness.report(f"{name}: differences", len(pairs), "sentences")
    harness.report(f"{name}: ties among them", ties, "sentences")
    return ties < len(pairs)


if __name__ == "__main__":
    app.run(main)
