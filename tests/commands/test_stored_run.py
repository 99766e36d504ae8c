"""A run, its data and its export that an earlier version wrote.

tests/fixtures/run_fixture.sh wrote tests/fixtures/run, before settings,
vocabularies, metrics and optimizers had their interfaces, and stands for the
runs that users have. When a format must change, leave it as it is, and let the
code read both.
"""

import json
import pathlib
import shutil
import tarfile

import pytest

FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures" / "run"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return a copy of the fixture, to write to."""
    folder = tmp_path_factory.mktemp("stored") / "run"
    shutil.copytree(FIXTURE, folder)
    with tarfile.open(folder / "export.tar.xz") as export:
        export.extractall(folder, filter="data")
    return folder


@pytest.fixture
def ok(forked, stored):
    """Return a function that runs a command and returns what it prints."""

    def run(name, *arguments, stdin=""):
        flags = (argument.format(stored) for argument in arguments)
        result = forked(name, *flags, stdin=stdin)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def _lines(path):
    return path.read_text("utf-8").splitlines()


def test_stored_run_scores_as_before(ok, stored):
    out = ok("decoder", "--output_dir={}/run", "--score_file={}/pairs.tsv")
    expected = _lines(stored / "scores.tsv")
    for line, other in zip(out.splitlines(), expected, strict=True):
        (score, length), (known, known_length) = line.split(), other.split()
        assert float(score) == pytest.approx(float(known), abs=1e-3)
        assert length == known_length


@pytest.mark.slow
@pytest.mark.parametrize("name", ["longer", "longer [1]*?"])
def test_stored_run_continues_training_as_before(ok, stored, name):
    shutil.copytree(stored / "run", stored / name)
    command = (
        "trainer",
        "--problem=parallel_text",
        "--problem_args=name=numbers,languages=en-de,vocab_size=300",
        "--hparams_set=tiny",
        "--hparams=hidden_size=32,filter_size=64,num_heads=2,max_length=32,"
        "batch_tokens=512,learning_rate_warmup_steps=50,"
        "learning_rate_constant=0.1",
        "--data_dir={}/data",
        f"--output_dir={{}}/{name}",
        "--train_steps=304",
        "--eval_bleu_sentences=0",
    )
    out = ok(*command)
    assert "300 done" in out
    assert "continues with proportional_rows=False instead of True." in out
    actual, expected = (
        json.loads(path.read_text())[-1]
        for path in (
            stored / name / "validation.json",
            stored / "trained_on.json",
        )
    )
    assert actual["step"] == expected["step"] == 304
    for name in ("loss", "perplexity"):
        assert actual[name] == pytest.approx(expected[name], rel=1e-3)
    assert "Nothing to do: 304 steps" in ok(*command)


@pytest.fixture(scope="module")
def wild(stored):
    """Return a run whose name has a space and the characters of patterns."""
    return shutil.copytree(stored / "run", stored / "run [1]*?")


def test_stored_run_is_averaged_and_translates_as_before(ok, stored, wild):
    flag = f"--output_dir={wild}"
    ok("avg_checkpoints", flag, "--num_last_checkpoints=1")
    assert (wild / "averaged" / "ckpt-300.index").exists()
    out = ok("decoder", flag, "--decode_from_file={}/test.en")
    assert out.splitlines() == _lines(stored / "test.de")


def test_stored_export_translates_as_before(ok, stored, wild):
    shutil.copytree(stored / "export", wild / "export")
    text = (stored / "test.en").read_text("utf-8")
    out = ok("query", f"--export_dir={wild / 'export'}", stdin=text)
    assert out.splitlines() == _lines(stored / "test.de")
