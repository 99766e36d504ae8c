"""Models that are not in the library, through the commands: tests/toys."""

import re

import pytest
from forked import ok


@pytest.fixture(scope="module", params=["toy_gru", "toy_convolution"])
def toy(train_toy, request):
    return train_toy(request.param)


@pytest.fixture(scope="module")
def parameters(toy, read_checkpoint):
    """Return the number of parameters in a checkpoint."""
    return sum(
        value.size
        for name, value in read_checkpoint(toy.averaged).items()
        if name.startswith("weights/")
    )


@pytest.mark.slow
def test_training_validates_and_records_auxiliary_losses(
    toy, parameters, read_events
):
    for text in (
        f"parameters: {parameters:,}\n",
        "bucketed shapes of rows x length",
        "bleu is measured on 4 of 8 sentences, by greedy search",
    ):
        assert text in toy.output
    events = read_events(toy.output_dir)
    losses = events["validation/loss"]
    assert losses[60] < losses[20]
    assert ("train/balance" in events) == (toy.name == "toy_convolution")
    flags = (*toy.hparams, "--vocab_size=28")
    text = " ".join(ok(toy.command("show", toy.usr, *flags)).split())
    assert f" parameters, V=28 {parameters:,} " in text


@pytest.mark.slow
def test_report_draws_the_attention_that_a_model_has(toy, parameters):
    ok(toy.run("report", "--sentence=a b c d e", "--pictures"))
    page = (toy.output_dir / "report" / "index.html").read_text("utf-8")
    words = re.sub(r"(<[^>]*>|\s)+", " ", page)
    assert f" Parameters {parameters:,} " in words
    reason = "No pictures: toy_convolution has no attention weights."
    has_attention = toy.name == "toy_gru"
    assert (reason in words) != has_attention
    # All heads of the only layer.
    assert page.count("data:image/png") == has_attention
    pictures = (toy.output_dir / "report" / "attention").rglob("*.png")
    assert len(list(pictures)) == has_attention
