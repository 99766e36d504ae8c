"""Models that are not in the library, through the commands: tests/toys."""

import re

import pytest
from forked import error, ok

LINES = ["a b c d e", "", "f g", "h i j k l a b", "f g"]


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


def test_trainer_refuses_settings_of_another_model(make_toy, tmp_path):
    toy = make_toy("toy_gru")
    toy.hparams = ("--hparams_set=tiny", "--hparams=model=toy_gru")
    data = f"--data_dir={tmp_path / 'data'}"
    assert error(toy.train(tmp_path / "run", data)).startswith(
        "The model 'toy_gru' has settings of GruHParams; got TransformerHParams"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "flag", "message"),
    [
        ("decoder", "--decode_attention", "has no attention weights"),
        ("decoder", "--decode_hparams=coverage_penalty=0.2", "coverage_penal"),
        ("exporter", "--decode_hparams=coverage_penalty=0.2", "coverage_penal"),
    ],
)
def test_commands_refuse_what_a_model_lacks(train_toy, command, flag, message):
    result = train_toy("toy_convolution").run(command, flag, stdin="a\n")
    assert message in error(result)


@pytest.mark.slow
def test_samples_depend_only_on_seed_and_line(toy):
    flags = (
        "sampling_temp=1,beam_size=3,return_beams=true,min_length=40,"
        "sampling_seed=3"
    )
    samples = toy.decode(LINES, flags)
    assert samples[2] == samples[4]
    # By other processes, in another batch, and by an ensemble of the same.
    twice = f"--checkpoint_path={toy.averaged},{toy.averaged}"
    assert toy.decode(LINES[:3], flags, twice) == samples[:3]
    for line, outputs in zip(LINES, samples, strict=True):
        assert line == "" or len(set(outputs)) == 3
        for text in outputs if line else ():
            # A special subword is a name, and EOS is not shown.
            length = len(text.replace("<unk>", "?")) + 1
            if toy.name == "toy_convolution":
                assert length == 2 * (len(line) + 1)
            else:
                assert 40 <= length <= len(line) + 1 + 50


@pytest.mark.slow
def test_ensemble_continues_prefixes(toy, tmp_path):
    prefixes = ["C B", "", "L", "A", ""]
    for name, lines in (("in", LINES), ("begin", prefixes)):
        text = "".join(f"{line}\n" for line in lines)
        (tmp_path / name).write_text(text)
    outputs = toy.decode(
        LINES,
        "return_beams=true,beam_size=2",
        f"--checkpoint_path={toy.checkpoints[1]},{toy.checkpoints[2]}",
        f"--decode_from_file={tmp_path / 'in'}",
        f"--decode_prefix_file={tmp_path / 'begin'}",
    )
    for prefix, texts in zip(prefixes, outputs, strict=True):
        assert all(text.startswith(prefix) for text in texts)
    assert len(set(outputs[0])) == 2


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
