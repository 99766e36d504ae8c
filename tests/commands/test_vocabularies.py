"""Separate vocabularies, through the commands."""

import pytest
from forked import ok

# Lower tests cover vocabularies; these go the whole way.
pytestmark = pytest.mark.slow

LINES = "a b c d e\n\nf g h i j\n"


@pytest.fixture(scope="module")
def separate(run, raw_writer, tmp_path_factory):
    """Return a folder with a run that has a vocabulary for each side."""
    folder = tmp_path_factory.mktemp("separate")
    raw_writer(folder / "raw", train=200, validation=6, test=6)
    result = run(
        "trainer",
        "--problem=parallel_text",
        "--problem_args=name=made_up,languages=xx-yy,vocab_size=280,"
        "separate_vocabularies=true,source_vocab_size=276",
        f"--raw_dir={folder / 'raw'}",
        f"--data_dir={folder / 'data'}",
        "--hparams_set=tiny",
        "--hparams=hidden_size=16,filter_size=32,num_heads=2,batch_tokens=256,"
        "num_hidden_layers=1,shared_embedding_and_softmax_weights=false",
        f"--output_dir={folder / 'run'}",
        "--train_steps=4",
        "--save_checkpoints_steps=2",
        "--eval_bleu_sentences=0",
    )
    assert "vocabulary: 276 subwords and 280 subwords" in ok(result)
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
