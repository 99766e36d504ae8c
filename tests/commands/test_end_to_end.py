"""From raw text to a served translation, command by command."""

import json
import os
import re
import shutil

import pytest
from forked import error, ok
from made_up_words import problem_flags

from t2t_repro.io import files
from t2t_repro.metrics.metric import TRANSLATION

APART = "shared_embedding_and_softmax_weights=false,hidden_size=32"
LINES = "a b c d e\n\nf g h i j\n"


@pytest.fixture(scope="module")
def averaged(trained, run):
    out = f"--output_dir={trained / 'run'}"
    text = ok(run("avg_checkpoints", out, "--num_last_checkpoints=2"))
    assert "ckpt-40, ckpt-60" in text
    return trained


def test_trainer_shows_what_it_would_train(trained, run, tmp_path):
    out = tmp_path / "run"
    result = run(
        "trainer",
        *problem_flags(trained),
        "--hparams_set=tiny",
        f"--hparams={APART}",
        f"--output_dir={out}",
        "--dry_run",
    )
    assert "  parameters: " in ok(result)
    assert "vocabulary: 276 subwords and 280 subwords" in result.stdout
    assert "Next:" not in result.stderr
    assert not out.exists()


def test_runs_are_listed(trained, run):
    lines = ok(run("show", f"--runs_dir={trained}")).splitlines()
    assert lines[0].split() == "run problem hparams set step scores".split()
    assert lines[1].split()[:4] == ["run", "parallel_text", "tiny", "60"]


def test_second_training_of_a_run_is_refused(trained, run, tmp_path):
    flags = "--hparams_set=tiny", f"--hparams={APART}"
    flags += (f"--output_dir={tmp_path}",)
    with files.locked(tmp_path):
        message = error(run("trainer", *problem_flags(trained), *flags))
    assert f"{tmp_path} is taken: process {os.getpid()} on " in message
    assert not (tmp_path / "run.json").exists()


@pytest.mark.slow
def test_trainer_uses_replicas_bfloat16_accumulation(trained, run, tmp_path):
    text = ok(
        run(
            "trainer",
            *problem_flags(trained),
            "--hparams_set=tiny",
            f"--hparams={APART},num_hidden_layers=1,batch_tokens=512",
            f"--output_dir={tmp_path}",
            "--train_steps=12",
            "--eval_bleu_sentences=0",
            "--logical_devices=2",
            "--xla=off",
            "--mixed_precision=bfloat16",
            "--max_tokens_per_replica=128",
            "--profile",
        )
    )
    assert "2 replicas on CPUs (MirroredStrategy), " in text
    assert "mixed_bfloat16, XLA off\n" in text
    assert "products of matrices reach" in text
    assert "at most 128 slots at once" in text
    assert list(tmp_path.glob("checkpoints/ckpt-12.index"))
    assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))


def test_evaluate_ends_in_one_json_line(averaged, run):
    folder = averaged / "run"
    flags = f"--output_dir={folder}", "--split=validation"
    result = run("evaluate", *flags, "--bootstrap_samples=9")
    scores = json.loads(ok(result).splitlines()[-1])
    assert list(scores) == [*TRANSLATION, "signature"]
    assert "averaged/ckpt-60" in result.stderr
    assert f"Next: t2t exporter --output_dir={folder}\n" in result.stderr
    stored = folder / "translations" / "validation.txt"
    assert len(stored.read_text().splitlines()) == 50
    references = averaged / "raw" / "validation.yy"
    flags = f"--translations={stored}", f"--references={references}"
    baseline = f"--baseline={references}", "--language=en"
    text = ok(run("evaluate", *flags, *baseline))
    again = json.loads(text.splitlines()[-1])
    assert again["chrf"] == pytest.approx(scores["chrf"])
    assert "against 100.00 of the baseline" in text


def test_decoder_and_query_agree(averaged, run, tmp_path):
    out = f"--output_dir={averaged / 'run'}"
    paths = [
        f"--decode_{one}={tmp_path / one}" for one in ("from_file", "to_file")
    ]
    (tmp_path / "from_file").write_text(LINES)
    ok(run("decoder", out, *paths))
    decoded = (tmp_path / "to_file").read_text()
    assert decoded.count("\n") == 3
    assert decoded.split("\n")[1] == ""
    ok(run("exporter", out, f"--export_dir={tmp_path / 'export'}"))
    export_dir = f"--export_dir={tmp_path / 'export'}"
    assert ok(run("query", export_dir, stdin=LINES)) == decoded
    path = tmp_path / "export" / "1" / "assets.extra" / "model_card.json"
    card = json.loads(path.read_text())
    settings = json.loads((averaged / "run" / "run.json").read_text())
    for key in ("problem", "hparams", "vocabulary_sha256", "versions"):
        assert card[key] == settings[key]
    assert "data_dir" not in card and "command_lines" not in card
    assert card["checkpoints"] == ["averaged/ckpt-60"]
    assert "SentencepieceTokenizeOp" in card["operations"]
    assert card["scores"] == {
        path.stem: files.read_json(path)
        for path in (averaged / "run" / "translations").glob("*.json")
    }


@pytest.mark.slow
def test_exporter_writes_a_model_of_ctranslate2(averaged, run, tmp_path):
    pytest.importorskip(
        "ctranslate2", reason="the extra ctranslate2 is not installed"
    )
    folder = tmp_path / "model"
    flags = "--format=ctranslate2", f"--export_dir={folder}"
    text = ok(run("exporter", f"--output_dir={averaged / 'run'}", *flags))
    assert f"Exported {folder}." in text
    card = json.loads((folder / "model_card.json").read_text())
    assert card["checkpoints"] == ["averaged/ckpt-60"]
    assert "data_dir" not in card


@pytest.mark.slow
def test_report_is_one_page_of_two_runs_with_pictures_beside_it(
    averaged, run, tmp_path
):
    folder, other = averaged / "run", tmp_path / "begun"  # without scores
    other.mkdir()
    for path in (folder / "run.json", *folder.glob("vocab.*")):
        shutil.copy(path, other)
    ok(run("evaluate", f"--output_dir={folder}", "--split=test"))
    flags = "--pictures", "--devices=2", "--sustained_tflops=0.5"
    runs, folder = f"--output_dir={folder},{other}", tmp_path / "page"
    flags = *flags, "--sentence=a b c d e f", f"--report_dir={folder}"
    text = ok(run("report", runs, *flags))
    assert f"Wrote {folder / 'index.html'}." in text
    page = (folder / "index.html").read_text("utf-8")
    for part in (
        ": run, begun</title>",
        "2,000",  # pairs of the training split
        "with vocabularies of 276 and 280 subwords",
        "vocabulary of targets",
        "FLOPs, time × devices × sustained FLOP/s",
        "Back to an earlier word",
        "Weights of ckpt-60.",
    ):
        assert part in page, part
    lines = (averaged / "raw" / "test.xx").read_text().splitlines()
    assert any(f'<dd dir="auto">{line}</dd>' in page for line in lines)
    known = page.replace("http://www.w3.org/2000/svg", "")
    known = known.replace("http://www.w3.org/1999/xlink", "")
    assert not re.search(r"https?://|@import|url\((?!#)|<script", known)
    pictures = sorted((folder / "attention" / "run").iterdir())
    assert f"Wrote {len(pictures)} pictures to {pictures[0].parent}." in text
    names = [path.name for path in pictures]
    # A layer of three attentions, and drawings of some heads.
    assert sum(name.endswith(".png") for name in names) == 3
    assert "1-over-a-long-distance-1.svg" in names


def test_report_without_events_counts_by_checkpoints(averaged, run, tmp_path):
    folder = tmp_path / "run"
    left_out = shutil.ignore_patterns("events*", "translations", "lock")
    shutil.copytree(averaged / "run", folder, ignore=left_out)
    ok(run("report", f"--output_dir={folder}", "--num_sentences=0"))
    page = (folder / "report" / "index.html").read_text("utf-8")
    assert "trained for 60 steps" in page
