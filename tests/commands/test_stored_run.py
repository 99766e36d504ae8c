"""A run, its data and its export that an earlier version wrote.

tests/fixtures/run_fixture.sh wrote tests/fixtures/run, before settings,
vocabularies, metrics and optimizers had their interfaces, and stands for the
runs that users have. When a format must change, leave it as it is, and let the
code read both.
"""

import json
import shutil

import pytest
from forked import ok
from stored_run import FIXTURE


@pytest.fixture
def stored(tmp_path):
    """Return a copy; its name has a space and the characters of patterns."""
    return shutil.copytree(FIXTURE, tmp_path / "stored [1]*?")


@pytest.mark.slow
def test_stored_run_continues_training_as_before(forked, stored):
    command = (
        "trainer",
        "--problem=parallel_text",
        "--problem_args=name=numbers,languages=en-de,vocab_size=300",
        "--hparams_set=tiny",
        "--hparams=hidden_size=32,filter_size=64,num_heads=2,max_length=32,"
        "batch_tokens=512,learning_rate_warmup_steps=50,"
        "learning_rate_constant=0.1",
        f"--data_dir={stored / 'data'}",
        f"--output_dir={stored / 'run'}",
        "--train_steps=304",
        "--eval_bleu_sentences=0",
    )
    out = ok(forked(*command))
    assert "300 done" in out
    assert "continues with proportional_rows=False instead of True." in out
    actual, expected = (
        json.loads((stored / name).read_text())[-1]
        for name in ("run/validation.json", "trained_on.json")
    )
    assert actual["step"] == expected["step"] == 304
    for name in ("loss", "perplexity"):
        assert actual[name] == pytest.approx(expected[name], rel=1e-3)
    fewer = *command, "--train_steps=9", "--save_checkpoints_steps=1"
    assert "Nothing to do: 304 steps" in ok(forked(*fewer))
    settings = json.loads((stored / "run" / "run.json").read_text())
    assert settings["options"]["train_steps"] == 304
    assert "save_checkpoints_steps" not in settings["options"]


def test_stored_run_is_averaged_and_translates_as_before(forked, stored):
    flag = f"--output_dir={stored / 'run'}"
    ok(forked("avg_checkpoints", flag, "--num_last_checkpoints=1"))
    assert (stored / "run" / "averaged" / "ckpt-300.index").exists()
    file = f"--decode_from_file={stored / 'test.en'}"
    expected = (stored / "test.de").read_text("utf-8")
    assert ok(forked("decoder", flag, file)) == expected


def test_stored_export_translates_as_before(forked, stored, stored_export):
    export = shutil.copytree(stored_export, stored / "export")
    text = (stored / "test.en").read_text("utf-8")
    expected = (stored / "test.de").read_text("utf-8")
    assert ok(forked("query", f"--export_dir={export}", stdin=text)) == expected
