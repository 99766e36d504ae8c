"""Check an imported model of CTranslate2's repository against CTranslate2.

    python -m scripts.release.check_ctranslate2_import \\
        --input=…/tests/data/models/v2/aren-transliteration --work_dir=…

The models there transliterate Arabic names, letter by letter. It imports one
and compares log-probabilities, greedy search and beam search on words made
from names, with CTranslate2 in float32. Then it exports a SavedModel, loads
and serves it, and trains ten steps on the model's own outputs, unless
--noserve_and_train is given. --work_dir must not exist. The exit status is 1
if a greedy output, the SavedModel or the server differs.
"""

import itertools
import math
import pathlib
import random
import subprocess
import sys

import ctranslate2
import numpy as np
from absl import app, flags, logging

import t2t_repro
from scripts.benchmarks import harness, served
from t2t_repro.io import files
from t2t_repro.serving import client

_INPUT = flags.DEFINE_string("input", None, "Folder of a model.", required=True)
_WORK_DIR = flags.DEFINE_string(
    "work_dir", None, "Folder for the run.", required=True
)
_WORDS = flags.DEFINE_integer("words", 500, "Words to compare.")
_SERVE_AND_TRAIN = flags.DEFINE_boolean(
    "serve_and_train", True, "Also export, serve and train."
)
_SHA256 = {  # of model.bin, in OpenNMT/CTranslate2, tests/data/models
    "dcc65eeba74b8cef968489e6b7740af9fea9f42ce45a567f2b95b176e851c39f": "v1",
    "0679202c8d70910962443093d3c9b981374bbf176677592e8b2947329b7e230e": (
        "v1, int16"
    ),
    "8870c0c32eb5dcce3f0a004cd5e13383d365d16d905a6f3c8d9732b98a30112d": "v2",
    "199790bdebb09c4552fef17baa261e3f14661cafb123bd4f75162735f4b78eab": (
        "v2, int16"
    ),
    "f99f62a5b5037a951c36be758668457cf7c13af8ce19cdd15b2f0d45d0f073f2": (
        "v2, int8"
    ),
}
_NAMES = """
محمد أحمد علي حسن حسين فاطمة خديجة عائشة مريم زينب إبراهيم إسماعيل يوسف داود
سليمان موسى عيسى يحيى زكريا عبدالله عبدالرحمن عمر عثمان خالد طارق سعيد سمير كريم
رشيد نادر ماجد وليد هشام بلال أنس مصطفى محمود جمال كمال نور ليلى سلمى هند رانيا
دينا ياسمين أمينة بغداد دمشق القاهرة بيروت طرابلس الجزائر الخرطوم صنعاء مسقط
أتزمون شيكاغو لندن باريس واشنطن ألمانيا كوريا
""".split()
_PAIRS = 300  # of training
_SERVABLE = "t2t"  # t2t serve's name of a model


def main(_):
    logging.set_verbosity(logging.WARNING)
    harness.print_machine()
    folder = pathlib.Path(_INPUT.value)
    check_file(folder / "model.bin")
    work = pathlib.Path(_WORK_DIR.value)
    work.mkdir(parents=True)
    run = work / "run"
    call(
        "importer",
        "--from=ctranslate2",
        f"--input={folder}",
        f"--output_dir={run}",
        "--languages=ar-en",
    )
    words = made_words(_WORDS.value)
    theirs = ctranslate2.Translator(str(folder), compute_type="float32")
    model = t2t_repro.load(run)
    failed = compare_searches(model, theirs, words)
    compare_scores(model, theirs, words)
    if _SERVE_AND_TRAIN.value:
        failed |= check_export(model, run, words)
        train(model, run, work, words)
    harness.print_json()
    sys.exit(failed)


def check_file(file):
    """End the program unless the file is one of CTranslate2's repository."""
    found = files.sha256(file)
    if found not in _SHA256:
        raise SystemExit(f"{file} has the unknown sha256 {found}.")
    print(f"{file}: {_SHA256[found]}")


def call(command, *arguments):
    """Run a command of the package."""
    line = [sys.executable, "-m", "t2t_repro", command, *arguments]
    subprocess.run(line, check=True)


def made_words(count):
    """Return different words, "ا ح م د": names, and halves of two names."""
    made = dict.fromkeys(_NAMES)
    for first, second in itertools.product(_NAMES, _NAMES):
        made[first[: len(first) // 2 + 1] + second[len(second) // 2 :]] = None
    extra = list(made)[len(_NAMES) :]
    random.Random(1).shuffle(extra)
    return [" ".join(word) for word in [*_NAMES, *extra][:count]]


def their_outputs(theirs, words, **search):
    """Return outputs and scores of CTranslate2."""
    results = theirs.translate_batch(
        [word.split() for word in words], return_scores=True, **search
    )
    return [
        (" ".join(result.hypotheses[0]), result.scores[0]) for result in results
    ]


def compare_searches(model, theirs, words):
    """Report how many outputs are equal; return whether greedy ones differ."""
    harness.report("words", len(words), "")
    failed = False
    for beams in (1, 2, 4):
        wanted = their_outputs(theirs, words, beam_size=beams)
        ours = model.translate(words, beam_size=beams)
        equal = sum(
            our.text == text
            for our, (text, _) in zip(ours, wanted, strict=True)
        )
        name = f"{beams} beams" if beams > 1 else "greedy search"
        harness.report(f"{name}: equal outputs", equal, "words")
        better = sum(
            our.text != text and our.scores[0] > score
            for our, (text, score) in zip(ours, wanted, strict=True)
        )
        harness.report(f"{name}: others with a better score", better, "words")
        failed |= beams == 1 and equal < len(words)
    return failed


def compare_scores(model, theirs, words):
    """Report the largest difference of log-probabilities of outputs."""
    outputs = [text for text, _ in their_outputs(theirs, words)]
    scored = theirs.score_batch(
        [word.split() for word in words], [text.split() for text in outputs]
    )
    wanted = [math.fsum(result.log_probs) for result in scored]
    ours = model.score(words, outputs)
    difference = np.abs(np.subtract(ours, wanted)).max()
    harness.report("largest difference of log-probabilities", difference, "")


def check_export(model, run, words):
    """Compare a SavedModel and a server with the decoder."""
    expected = [found.text for found in model.translate(words)]
    folder = model.export()
    loaded = [t.text for t in t2t_repro.load(folder).translate(words)]
    server = served.Server(run / "export")
    asked = client.RestClient(f"localhost:{server.rest}", _SERVABLE, 60)
    try:
        answers = [found.texts[0] for found in asked.translate(words)]
    finally:
        server.stop()
    failed = False
    for name, got in (("SavedModel", loaded), ("server", answers)):
        pairs = zip(got, expected, strict=True)
        equal = sum(one == other for one, other in pairs)
        harness.report(f"{name}: equal outputs", equal, "words")
        failed |= equal < len(words)
    return failed


def train(model, run, work, words):
    """Train ten steps on the model's own outputs, and report losses."""
    outputs = [found.text for found in model.translate(words)]
    raw = work / "raw"
    raw.mkdir()
    for split, part in (
        ("train", slice(0, _PAIRS)),
        ("validation", slice(_PAIRS, None)),
        ("test", slice(_PAIRS, None)),
    ):
        for language, lines in (("ar", words), ("en", outputs)):
            path = raw / f"{split}.{language}"
            path.write_text("\n".join(lines[part]) + "\n", "utf-8")
    tuned = work / "tuned"
    call(
        "trainer",
        f"--config={run / 'run.json'}",
        f"--warm_start_from={run / 'checkpoints' / 'ckpt-0'}",
        f"--raw_dir={raw}",
        f"--data_dir={work / 'data'}",
        f"--output_dir={tuned}",
        "--hparams=train_steps=10,save_checkpoints_steps=5",
    )
    before, after = (
        np.mean(one.score(words[:_PAIRS], outputs[:_PAIRS]))
        for one in (model, t2t_repro.load(tuned))
    )
    harness.report("mean log-probability before training", before, "")
    harness.report("mean log-probability after ten steps", after, "")


if __name__ == "__main__":
    app.run(main)
