"""Optimizers of Keras by name: their arguments, and refusals."""

import dataclasses

import keras
import numpy as np
import pytest

from t2t_repro import errors, registry
from t2t_repro.runs import checkpoints
from t2t_repro.training import optimizer

RATE = 0.25
CONSTANT = {
    "learning_rate_schedule": "constant",
    "learning_rate_constant": RATE,
}
BY_BETAS = ("adam", "adamax", "adamw", "lamb", "nadam")


@pytest.fixture(autouse=True)
def only_names_of_keras(monkeypatch):
    """Hide what other tests have registered."""
    for known in (registry.optimizers, registry.schedules):
        monkeypatch.setattr(known, "_entries", {})


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        *((name, "", (0.7, 0.75, 1e-9)) for name in BY_BETAS),
        ("lion", "", (0.7, 0.75, None)),
        # Their epsilon is of another kind: Keras's default.
        ("adadelta", "", (None, None, 1e-7)),
        ("adagrad", "", (None, None, 1e-7)),
        ("rmsprop", "", (None, None, 1e-7)),
        ("nadam", "beta_1=0.6", (0.6, 0.75, 1e-9)),
    ],
)
def test_betas_and_epsilon_are_those_of_the_hparams(
    tiny_hparams, name, arguments, expected
):
    hparams = dataclasses.replace(
        tiny_hparams,
        optimizer=name,
        optimizer_arguments=arguments,
        optimizer_adam_beta1=0.7,
        optimizer_adam_beta2=0.75,
    )
    config = optimizer.build(hparams, []).get_config()
    for key, value in zip(
        ("beta_1", "beta_2", "epsilon"), expected, strict=True
    ):
        assert config.get(key) == value


def test_muon_updates_kernels_and_adam_the_rest(tiny_hparams):
    hparams = dataclasses.replace(
        tiny_hparams,
        optimizer="muon",
        optimizer_arguments="exclude_layers=query",
        weight_decay=0.5,
    )
    weights = []
    for path in ("ffn/kernel", "query/kernel", "embedding/weight", "ffn/bias"):
        layer, name = path.split("/")
        with keras.name_scope(layer):
            shape = (2,) if name == "bias" else (2, 2)
            weights.append(keras.Variable(np.ones(shape), name=name))
    muon = optimizer.build(hparams, weights)
    for kind, indices in (("momentum", [0, 1, 2, 3]), ("velocity", [1, 2, 3])):
        slots = checkpoints.slots_of_kind(muon, weights, kind)
        assert list(slots) == indices
    assert (
        muon.get_config().items()
        >= {
            "adam_beta_1": 0.9,
            "adam_beta_2": 0.98,
            "epsilon": 1e-9,
            "adam_weight_decay": 0.5,
        }.items()
    )


@pytest.mark.parametrize(
    "name", ["adafactor", "adamw", "lion", "sgd", "rmsprop", "muon"]
)
def test_weight_decay_applies_to_matrices_only(tiny_hparams, name):
    """With gradients of 0, only decay changes the weights."""
    hparams = dataclasses.replace(
        tiny_hparams, **CONSTANT, optimizer=name, weight_decay=0.5
    )
    with keras.name_scope("layer"):
        matrix = keras.Variable([[4.0, 4.0]] * 2, name="kernel")
        vector = keras.Variable([4.0, 4.0], name="bias")
        biases = keras.Variable([[4.0, 4.0]] * 2, name="output_bias")
    variables = [matrix, vector, biases]
    built = optimizer.build(hparams, variables)
    built.apply([keras.ops.zeros(v.shape) for v in variables], variables)
    expected = 4 * (1 - RATE * 0.5)
    np.testing.assert_allclose(matrix, np.full((2, 2), expected), rtol=1e-6)
    np.testing.assert_allclose(vector, [4, 4], rtol=1e-6)
    np.testing.assert_allclose(biases, [[4, 4]] * 2, rtol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "nadam"},
        {"optimizer": "adam", "optimizer_arguments": "amsgrad=true"},
        {
            "optimizer": "muon",
            "optimizer_arguments": "adam_lr_ratio=0.5:exclude_layers=ffn/x",
        },
        {
            "learning_rate_schedule": "cosine_decay",
            "learning_rate_schedule_arguments": "warmup_steps=10",
        },
    ],
)
def test_check_accepts_valid_settings(tiny_hparams, settings):
    optimizer.check(dataclasses.replace(tiny_hparams, **settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"optimizer": "nadem"},
            "hparam optimizer has no 'nadem'. Did you mean nadam",
        ),
        (
            {"optimizer": "loss_scale_optimizer"},
            "hparam optimizer has no 'loss_scale_optimizer'. Known: adadelta, ",
        ),
        (
            {"optimizer_arguments": "learning_rate=1"},
            "hparam optimizer_arguments must not set learning_rate: "
            "learning_rate_constant does",
        ),
        (
            {"optimizer": "muon", "optimizer_arguments": "ns_steps=2.5"},
            "Muon refuses its arguments: 'float' object cannot be interpreted",
        ),
        (
            {"optimizer": "muon", "optimizer_arguments": "exclude_layers=("},
            "Muon refuses its arguments: missing ), unterminated subpattern",
        ),
        (
            {"optimizer": "ftrl"},
            "The first update of Ftrl is not finite, at a learning rate of 0 ",
        ),
        (
            {"learning_rate_schedule": "cosine_dekay"},
            "hparam learning_rate_schedule has no 'cosine_dekay'. Did you mean "
            "cosine_decay",
        ),
        (
            {
                "learning_rate_schedule": "exponential_decay",
                "learning_rate_schedule_arguments": "decay_rate=-1.5",
            },
            "Learning rates of ExponentialDecay must be finite and above 0; "
            "the highest is nan.",
        ),
        (
            {
                "learning_rate_schedule": "cosine_decay",
                "learning_rate_schedule_arguments": "warmup_target=high",
            },
            "CosineDecay refuses its arguments: ",
        ),
        (
            {
                "learning_rate_schedule": "cosine_decay",
                "learning_rate_schedule_arguments": "initial_learning_rate=1",
            },
            "hparam learning_rate_schedule_arguments must not set "
            "initial_learning_rate: learning_rate_constant does.",
        ),
    ],
)
def test_check_refuses_wrong_settings(tiny_hparams, settings, message):
    hparams = dataclasses.replace(tiny_hparams, **settings)
    with pytest.raises(errors.UserError) as raised:
        optimizer.check(hparams)
    assert str(raised.value).startswith(message)
