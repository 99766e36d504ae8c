"""Schedules and optimizers of users: tests/toys/updates.py."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors, registry
from t2t_repro.training import optimizer, schedules

pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture
def settings(tiny_hparams):
    """Return a function of settings, with a rate of 0.5 and 100 steps."""

    def make(**changes):
        changes = {
            "learning_rate_constant": 0.5,
            "learning_rate_warmup_steps": 10,
            "train_steps": 100,
        } | changes
        return dataclasses.replace(tiny_hparams, **changes)

    return make


@pytest.mark.parametrize(
    ("name", "arguments", "rates", "peak"),
    [
        # Rates of updates 1, 6, 41 and 91.
        ("trapezoid", "", (0.0, 0.25, 0.5, 0.1), 11),
        ("trapezoid", "cooldown=0.25", (0.0, 0.25, 0.5, 0.2), 11),
        ("halving", "every=40", (0.5, 0.5, 0.25, 0.125), 1),
    ],
)
def test_registered_schedule_has_its_rates(
    settings, name, arguments, rates, peak
):
    hparams = settings(
        learning_rate_schedule=name, learning_rate_schedule_arguments=arguments
    )
    schedules.check(hparams)
    for step, rate in zip((1, 6, 41, 91), rates, strict=True):
        actual = float(schedules.learning_rate(hparams, step))
        assert actual == pytest.approx(rate, rel=1e-6)
    assert schedules.peak(hparams) == (0.5, peak)


def _updated(hparams):
    """Return a weight of ones after updates with the gradients 3 and -1."""
    weight = keras.Variable(np.ones((2, 2), np.float32), name="kernel")
    built = optimizer.build(hparams, [weight])
    for gradient in (3.0, -1.0):
        built.apply([tf.fill((2, 2), gradient)], [weight])
    return weight.numpy()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Momenta 0.1 * 3 and 0.9 * 0.3 - 0.1.
        ({"optimizer": "sign_sgd"}, 0.0),
        # Momenta 0.8 * 3 and 0.2 * 2.4 - 0.8.
        ({"optimizer": "sign_sgd", "optimizer_arguments": "decay=0.2"}, 1.0),
        # Gradients 1 and -1, of the norm 2; momenta 0.1 and 0.9 * 0.1 - 0.1.
        ({"optimizer": "sign_sgd", "clip_grad_norm": 2.0}, 1.0),
        # Before each update the weight loses a tenth of the rate.
        ({"optimizer": "sign_sgd", "weight_decay": 0.1}, -0.0725),
        # Velocities -0.5 * 3 and 0.5 * -1.5 + 0.5.
        (
            {"optimizer": "heavy_ball", "optimizer_arguments": "momentum=0.5"},
            -0.75,
        ),
    ],
)
def test_registered_optimizer_updates(settings, changes, expected):
    hparams = settings(learning_rate_schedule="constant", **changes)
    optimizer.check(hparams)
    np.testing.assert_allclose(_updated(hparams), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"optimizer": "sign_sdg"},
            "hparam optimizer has no 'sign_sdg'. Did you mean sign_sgd",
        ),
        (
            {"optimizer": "sign_sgd", "optimizer_arguments": "dekay=1"},
            "hparam optimizer_arguments: SignSgd has no 'dekay'. Did you mean "
            "decay",
        ),
        (
            {"optimizer": "heavy_ball"},
            "heavy_ball needs momentum. Add momentum=VALUE to hparam "
            "optimizer_arguments.",
        ),
        (
            {
                "optimizer": "heavy_ball",
                "optimizer_arguments": "momentum=0.5",
                "clip_grad_norm": 1.0,
            },
            "heavy_ball has no argument global_clipnorm, which hparam "
            "clip_grad_norm sets.",
        ),
        (
            {"optimizer": "no_optimizer"},
            "hparam optimizer=no_optimizer must be a subclass of "
            "keras.optimizers.Optimizer, or a function that returns one",
        ),
        (
            {"learning_rate_schedule": "trapezoids"},
            "hparam learning_rate_schedule has no 'trapezoids'. Did you mean "
            "trapezoid",
        ),
        (
            {
                "learning_rate_schedule": "trapezoid",
                "learning_rate_schedule_arguments": "cooldown=none",
            },
            "hparam learning_rate_schedule_arguments: cooldown must be a "
            "number; got 'none'.",
        ),
        (
            {"learning_rate_schedule": "halving"},
            "Halving needs every. Add every=VALUE",
        ),
    ],
)
def test_wrong_settings_are_refused(settings, changes, message):
    with pytest.raises(errors.UserError) as raised:
        optimizer.check(settings(**changes))
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("optimizers", "adam"),
        ("schedules", "cosine_decay"),
        ("schedules", "noam"),
    ],
)
def test_names_of_a_library_are_refused(monkeypatch, settings, kind, name):
    known = getattr(registry, kind)
    monkeypatch.setattr(known, "_entries", {})
    known.register(name)(_updated)
    setting = "optimizer" if kind == "optimizers" else "learning_rate_schedule"
    with pytest.raises(
        errors.UserError, match=f"={name} is the name of .*_upd"
    ):
        optimizer.check(settings(**{setting: name}))


def test_rate_of_several_numbers_is_refused(settings):
    registry.schedules.register("pair")(lambda done, hparams: [done, done])
    with pytest.raises(errors.UserError, match="a rate is one number, not of"):
        schedules.check(settings(learning_rate_schedule="pair"))
