"""Models that are not in the library, through the commands: tests/toys."""

import copy
import pathlib

import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parents[1]


def ok(result):
    assert result.returncode == 0, result.stderr
    return result.stdout


def error(result):
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.partition("Error: ")[2]


def test_training_validates_and_records_auxiliary_losses(
    toy, parameters, read_events
):
    assert f"parameters: {parameters:,}\n" in toy.output
    assert "bucketed shapes of rows x length" in toy.output
    assert (
        "bleu is measured on 4 of 8 sentences, by greedy search" in toy.output
    )
    events = read_events(toy.output_dir)
    losses = events["validation/loss"]
    assert losses[60] < losses[20]
    has_balance = toy.name == "toy_convolution"
    assert ("train/balance" in events) == has_balance


@pytest.mark.slow
def test_resume_after_sigkill_is_bit_identical(
    toy, tmp_path, assert_same_checkpoint
):
    folder = toy.train_killed(tmp_path)
    assert_same_checkpoint(
        folder / "checkpoints" / "ckpt-60", toy.checkpoints[-1]
    )


@pytest.mark.slow
def test_two_replicas_make_the_same_updates(toy, tmp_path, read_checkpoint):
    flags = ("--logical_devices=2", "--train_steps=20")
    assert "2 replicas on CPUs" in ok(toy.train(tmp_path, *flags))
    actual = read_checkpoint(tmp_path / "checkpoints" / "ckpt-20")
    expected = read_checkpoint(toy.checkpoints[0])
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, np.ndarray) and value.dtype == np.float32:
            atol = 1e-4 * np.abs(value).max()
            np.testing.assert_allclose(
                actual[name], value, rtol=0, atol=atol, err_msg=name
            )


def test_average_is_the_mean_of_checkpoints(toy, read_checkpoint):
    *weights, mean = map(read_checkpoint, (*toy.checkpoints[1:], toy.averaged))
    names = [name for name in mean if name.startswith("weights/")]
    assert names
    for name in names:
        expected = (weights[0][name] + weights[1][name]) / 2
        np.testing.assert_allclose(mean[name], expected, atol=1e-6)


def test_show_counts_the_parameters_of_the_checkpoint(toy, parameters):
    flags = (*toy.hparams, "--vocab_size=28")
    text = " ".join(ok(toy.command("show", toy.usr, *flags)).split())
    assert f" parameters, V=28 {parameters:,} " in text


def test_repeated_hparams_are_compared_with_the_runs(toy):
    name, value = {
        "toy_gru": ("attention_size", 8),
        "toy_convolution": ("kernel_width", 2),
    }[toy.name]
    flags = ("avg_checkpoints", "--num_last_checkpoints=2")
    ok(toy.run(*flags, f"--hparams={name}={value}"))
    refused = toy.run(*flags, f"--hparams={name}=77")
    assert error(refused).startswith(f"{name}: {value} -> 77. ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hparams=batching=packed"], "takes one sentence a row. Use"),
        (["--recompute_grad"], "cannot recompute activations. Omit"),
    ],
    ids=["packed", "recompute_grad"],
)
def test_trainer_refuses_what_a_model_lacks(toy, flags, message, tmp_path):
    data = f"--data_dir={tmp_path / 'data'}"
    message = f"The model {toy.name!r} {message}"
    assert message in error(toy.train(tmp_path / "run", *flags, data))
    assert not list(tmp_path.iterdir())


def test_trainer_refuses_settings_of_another_model(train_toy, tmp_path):
    data = f"--data_dir={tmp_path / 'data'}"
    toy = copy.copy(train_toy("toy_gru"))
    toy.hparams = ("--hparams_set=tiny", "--hparams=model=toy_gru")
    message = error(toy.train(tmp_path / "run", data))
    assert message.startswith(
        "The model 'toy_gru' has settings of GruHParams; got TransformerHParams"
    )
    assert not list(tmp_path.iterdir())


def test_exporter_refuses_ctranslate2_for_another_model(toy, tmp_path):
    pytest.importorskip(
        "ctranslate2", reason="the extra ctranslate2 is not installed"
    )
    flags = ("--format=ctranslate2", f"--export_dir={tmp_path / 'model'}")
    message = error(toy.run("exporter", *flags))
    assert f"CTranslate2 has no such model: {toy.name!r}" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("decoder", ["--decode_attention"], "has no attention weights"),
        (
            "decoder",
            ["--decode_hparams=coverage_penalty=0.2"],
            "which these search rules need: coverage_penalty",
        ),
        (
            "exporter",
            ["--decode_hparams=coverage_penalty=0.2"],
            "which these search rules need: coverage_penalty",
        ),
    ],
    ids=["decode_attention", "coverage_penalty", "exported_penalty"],
)
def test_attention_that_a_model_lacks_is_refused(
    train_toy, command, flags, message, tmp_path
):
    toy = train_toy("toy_convolution")
    where = {
        "decoder": f"--decode_to_file={tmp_path / 'out'}",
        "exporter": f"--export_dir={tmp_path / 'out'}",
    }
    text = error(toy.run(command, *flags, where[command], stdin="a\n"))
    assert f"The model {toy.name!r}" in text and message in text
    assert not list(tmp_path.iterdir())
