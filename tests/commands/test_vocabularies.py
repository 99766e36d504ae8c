"""A vocabulary of the user's own, and separate ones, through the commands."""

import json
import pathlib

import pytest
from forked import ok

# Lower tests cover vocabularies; these go the whole way.
pytestmark = pytest.mark.slow

TOYS = pathlib.Path(__file__).parents[1] / "toys"
HPARAMS = (
    "hidden_size=16,filter_size=32,num_heads=2,num_hidden_layers=1,"
    "batch_tokens=256,shared_embedding_and_softmax_weights=false"
)
COMMON = "name=made_up,languages=xx-yy"
SEPARATE = (
    f"{COMMON},separate_vocabularies=true,vocab_size=280,source_vocab_size=276"
)
LINES = "a b c d e\n\nf g h i j\n"


def data_flags(folder, arguments, problem="parallel_text"):
    return (
        f"--problem={problem}",
        f"--problem_args={arguments}",
        f"--raw_dir={folder / 'raw'}",
        f"--data_dir={folder / 'data'}",
    )


def train(run, folder, arguments, *more, problem="parallel_text"):
    return run(
        "trainer",
        *data_flags(folder, arguments, problem),
        "--hparams_set=tiny",
        f"--output_dir={folder / 'run'}",
        "--train_steps=4",
        "--save_checkpoints_steps=2",
        "--eval_bleu_sentences=0",
        *(more or [f"--hparams={HPARAMS}"]),
    )


@pytest.fixture(scope="module")
def words(run, raw_writer, tmp_path_factory):
    """Return a folder with a run that uses tests/toys/words.py."""
    folder = tmp_path_factory.mktemp("words")
    raw_writer(folder / "raw", train=200, validation=6, test=6)
    usr = f"--usr_dir={TOYS}"
    arguments = f"{COMMON},vocabulary_type=words,vocab_size=20"
    output = ok(run("datagen", usr, *data_flags(folder, arguments)))
    assert "Learning 20 subwords from 400 of 400 lines" in output
    ok(train(run, folder, arguments, usr, f"--hparams={HPARAMS}"))
    return folder


def test_own_vocabulary_decodes_and_evaluates(words, run):
    """The decoder loads the definitions of the run again."""
    out = f"--output_dir={words / 'run'}"
    result = run("decoder", out, stdin=LINES)
    assert "Definitions: " in result.stderr
    decoded = ok(result).split("\n")
    known = {"<unk>", *(words / "run" / "vocab.model").read_text().split("\n")}
    assert decoded[1] == "" and len(decoded) == 4
    assert set(" ".join(decoded).split()) <= known
    usr = f"--usr_dir={TOYS}"
    text = ok(run("evaluate", out, usr, "--split=validation"))
    assert "bleu" in json.loads(text.splitlines()[-1])


@pytest.fixture(scope="module")
def separate(run, raw_writer, tmp_path_factory):
    """Return a folder with a run that has a vocabulary for each side."""
    folder = tmp_path_factory.mktemp("separate")
    raw_writer(folder / "raw", train=200, validation=6, test=6)
    output = ok(train(run, folder, SEPARATE))
    assert "vocabulary: 276 subwords and 280 subwords" in output
    return folder


def test_export_with_separate_vocabularies_agrees_with_decoder(
    separate, run, tmp_path
):
    out = f"--output_dir={separate / 'run'}"
    ok(run("avg_checkpoints", out, "--num_last_checkpoints=2"))
    decoded = ok(run("decoder", out, stdin=LINES))
    ok(run("exporter", out, f"--export_dir={tmp_path}"))
    export_dir = f"--export_dir={tmp_path}"
    assert ok(run("query", export_dir, stdin=LINES)) == decoded


def test_evaluate_and_report_accept_separate_vocabularies(separate, run):
    out = f"--output_dir={separate / 'run'}"
    ok(run("evaluate", out, "--split=validation"))
    ok(run("report", out, "--num_sentences=1"))
    page = (separate / "run" / "report" / "index.html").read_text("utf-8")
    assert "with vocabularies of 276 and 280 subwords" in page
    assert "vocabulary of targets" in page
