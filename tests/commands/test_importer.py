"""The importer, from another system's files to a tuned and exported run."""

import json

import pytest
import raw_text
from forked import ROOT, error, ok
from loopback_hub import COMMIT, MODEL, running_hub

FILES = ROOT / "tests" / "golden" / "huggingface"
LINES = ["two three", "", "and five one six"]


@pytest.fixture(scope="module")
def imported(run, tmp_path_factory):
    """Return the folder of a run that was imported by its name on the Hub."""
    folder = tmp_path_factory.mktemp("imported") / "run"
    flags = "--from=huggingface", f"--input={MODEL}", f"--output_dir={folder}"
    with running_hub(folder.parent) as hub:
        hub.files = {path.name: path.read_bytes() for path in FILES.iterdir()}
        printed = ok(run("importer", *flags, env=hub.env))
    assert f"Imported {folder}/checkpoints/ckpt-0." in printed
    return folder


def decode(run, folder, *flags):
    text = "".join(f"{line}\n" for line in LINES)
    out = f"--output_dir={folder}"
    return ok(run("decoder", out, *flags, stdin=text)).split("\n")[:-1]


@pytest.mark.slow
def test_imported_run_is_decoded_tuned_and_exported(run, imported, tmp_path):
    before = decode(run, imported)
    assert len(before) == 3 and before[1] == ""

    # Training from the run's settings and weights.
    pairs = [("one two six", "zwei eins")] * 40
    splits = dict.fromkeys(("train", "validation", "test"), pairs)
    raw = raw_text.write(tmp_path / "raw", splits, ("en", "de"))
    ok(
        run(
            "trainer",
            f"--config={imported / 'run.json'}",
            f"--warm_start_from={imported / 'checkpoints' / 'ckpt-0'}",
            f"--raw_dir={raw}",
            f"--data_dir={tmp_path / 'data'}",
            f"--output_dir={tmp_path / 'tuned'}",
            "--train_steps=3",
            "--eval_bleu_sentences=0",
        )
    )
    events = json.loads((tmp_path / "tuned" / "run.json").read_text("utf-8"))
    original = json.loads((imported / "run.json").read_text("utf-8"))
    for name in ("hparams", "imported_from"):
        assert events[name] == original[name]
    assert len(decode(run, tmp_path / "tuned")) == 3

    # The learning rate is small: the outputs are still the same.
    export = f"--export_dir={tmp_path / 'export'}"
    ok(run("exporter", f"--output_dir={imported}", export))
    queried = ok(run("query", export, stdin="".join(f"{x}\n" for x in LINES)))
    assert queried.split("\n")[:-1] == before
    card = next(tmp_path.glob("export/1/assets.extra/model_card.json"))
    stored = json.loads(card.read_text("utf-8"))
    assert stored["imported_from"]["system"] == "huggingface"
    assert stored["imported_from"]["revision"] == COMMIT
    assert str(imported.parent) not in card.read_text("utf-8")
    ok(run("exporter", f"--output_dir={tmp_path / 'tuned'}"))
    text = (tmp_path / "tuned" / "export" / "1" / "README.md").read_text()
    assert ", then trained with t2t_repro " in text
    assert f"warm_start_from {imported.name}/checkpoints/ckpt-0" in text
    assert str(imported.parent) not in text


def test_imported_run_has_a_report(run, imported):
    ok(run("report", f"--output_dir={imported}"))
    page = next(imported.rglob("*.html")).read_text()
    assert "imported, not trained" in page
    assert f"{MODEL}</code> at <code>{COMMIT}" in page


@pytest.mark.parametrize(
    ("system", "file", "rightly"),
    [
        ("huggingface", "shared_vocabulary.json", "ctranslate2"),
        ("marian", "pytorch_model.bin", "huggingface"),
        ("fairseq", "model.npz", "marian"),
        ("opennmt_tf", "hparams.json", "tensor2tensor"),
        ("ctranslate2", "dict.en.txt", "fairseq"),
        ("tensor2tensor", "model_description.py", "opennmt_tf"),
    ],
)
def test_folder_of_other_system_is_known(run, tmp_path, system, file, rightly):
    (tmp_path / file).touch()
    flags = f"--from={system}", f"--input={tmp_path}"
    message = error(run("importer", *flags, f"--output_dir={tmp_path}/run"))
    assert f"is a model of {rightly}, by the file {file}" in message
    assert f"Say --from={rightly}." in message
