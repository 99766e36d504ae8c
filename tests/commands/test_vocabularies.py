"""Separate vocabularies, through the commands; lower tests cover the rest."""

import pytest
from forked import ok

LINES = "a b c d e\n\nf g h i j\n"


@pytest.mark.slow
def test_separate_vocabularies_go_the_whole_way(run, raw_writer, tmp_path):
    raw_writer(tmp_path / "raw", train=200, validation=6, test=6)
    out = f"--output_dir={tmp_path / 'run'}"
    trained = run(
        "trainer",
        "--problem=parallel_text",
        "--problem_args=name=made_up,languages=xx-yy,vocab_size=280,"
        "separate_vocabularies=true,source_vocab_size=276",
        f"--raw_dir={tmp_path / 'raw'}",
        f"--data_dir={tmp_path / 'data'}",
        "--hparams_set=tiny",
        "--hparams=hidden_size=16,filter_size=32,num_heads=2,batch_tokens=256,"
        "num_hidden_layers=1,shared_embedding_and_softmax_weights=false",
        out,
        "--train_steps=4",
        "--save_checkpoints_steps=2",
        "--eval_bleu_sentences=0",
    )
    assert "vocabulary: 276 subwords and 280 subwords" in ok(trained)
    ok(run("avg_checkpoints", out, "--num_last_checkpoints=2"))
    decoded = ok(run("decoder", out, stdin=LINES))
    export = f"--export_dir={tmp_path / 'export'}"
    ok(run("exporter", out, export))
    assert ok(run("query", export, stdin=LINES)) == decoded
    ok(run("evaluate", out, "--split=validation"))
    ok(run("report", out, "--num_sentences=1"))
    page = (tmp_path / "run" / "report" / "index.html").read_text("utf-8")
    assert "with vocabularies of 276 and 280 subwords" in page
    assert "vocabulary of targets" in page
