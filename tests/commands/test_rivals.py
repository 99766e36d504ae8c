"""The paper's rivals, from training to a server: one test for each model."""

import pytest
from forked import ok

LINES = ["a b c d e", "", "f g", "h i j k l a b"]
# Models with attention over the source; the others have no such signature.
ATTENTIVE = {
    "toy_gru": True,
    "gnmt_tiny": True,
    "deep_att_tiny": True,
    "moe_tiny": True,
    "transformer_moe_tiny": True,
    "convs2s_tiny": True,
    "bytenet_tiny": False,
    "neural_gpu_tiny": False,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTIVE)
def test_rival_is_trained_searched_exported_and_served(
    name, train_toy, run, tmp_path
):
    toy, transformer = train_toy(name), train_toy("tiny")

    # n-best lists, and an ensemble with a Transformer.
    n_best = toy.decode(LINES, "return_beams=true,extra_length=5")
    assert n_best[1] == [""] * 4  # of a blank line
    assert all(len(set(n_best[i])) == 4 for i in (0, 2, 3))
    both = f"--checkpoint_path={toy.averaged},{transformer.averaged}"
    ensemble = toy.decode(LINES, "return_beams=true,extra_length=5", both)
    assert ensemble != n_best
    assert ensemble != transformer.decode(
        LINES, "return_beams=true,extra_length=5"
    )

    # The export and its server.
    export = f"--export_dir={tmp_path / 'export'}"
    flags = (export, "--decode_hparams=extra_length=5")
    ok(toy.run("exporter", *flags))
    queried = ok(run("query", export, stdin="".join(f"{x}\n" for x in LINES)))
    assert queried.split("\n")[:-1] == [texts[0] for texts in n_best]
    with run.serve(tmp_path / "export") as server:
        body = {"instances": LINES, "signature_name": "n_best"}
        predictions = server.ask(":predict", body)["predictions"]
        metadata = server.ask("/metadata")["metadata"]["signature_def"]
    assert [item["outputs"] for item in predictions] == n_best
    assert ("attention" in metadata["signature_def"]) == ATTENTIVE[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy_gru", "bytenet_tiny"])
def test_model_has_bucketed_batches_and_a_report_with_its_attention(
    name, train_toy
):
    toy = train_toy(name)
    assert "bucketed shapes of rows x length" in ok(toy.trained)
    ok(toy.run("report", "--sentence=a b c d e", "--pictures"))
    page = (toy.output_dir / "report" / "index.html").read_text("utf-8")
    reason = "No pictures: bytenet has no attention weights."
    assert (reason in page) != ATTENTIVE[name]
    # All heads of the only layer.
    assert page.count("data:image/png") == ATTENTIVE[name]
    pictures = (toy.output_dir / "report" / "attention").rglob("*.png")
    assert len(list(pictures)) == ATTENTIVE[name]
