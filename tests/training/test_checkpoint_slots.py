"""What each optimizer remembers is stored under its name, and restored."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.models import building
from t2t_repro.training import averaging, checkpoints, optimizer, slots

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
VOCABULARY = "ab" * 32  # a sha256
KERNEL = "decoder/layer_0/ffn/feed_forward/filter/kernel"
BIAS = "decoder/layer_0/ffn/feed_forward/filter/bias"


class Trainer:
    """A model of one layer whose gradients are random."""

    def __init__(self, hparams, vocab_size, frozen=()):
        self.model = building.build(hparams, vocab_size)
        for weight in self.model.weights:
            weight.trainable = not weight.path.endswith(frozen)
        self.weights = self.model.trainable_variables
        self.optimizer = optimizer.build(hparams, self.weights)

    def update(self, number):
        """Applies the gradients of a seed."""
        random = np.random.default_rng(number)
        gradients = [
            tf.constant(random.normal(size=weight.shape), tf.float32)
            for weight in self.weights
        ]
        self.optimizer.apply(gradients, self.weights)

    def checkpoints(self, folder):
        return checkpoints.CheckpointManager(
            self.model, self.optimizer, folder, 20, VOCABULARY
        )


@pytest.fixture(scope="module")
def trainer_of(tiny_hparams, vocab_size):
    """A function of settings -> Trainer."""

    def make(frozen=(), **settings):
        hparams = dataclasses.replace(
            tiny_hparams, num_hidden_layers=1, **settings
        )
        return Trainer(hparams, vocab_size, frozen)

    return make


@pytest.fixture(scope="module")
def averaged(trainer_of, tmp_path_factory):
    """A folder with ckpt-2 and ckpt-3 of a training with ema_decay=0.5."""
    folder = tmp_path_factory.mktemp("averaged")
    trainer = trainer_of(ema_decay=0.5)
    for number in (1, 2, 3):
        trainer.update(number)
        trainer.checkpoints(folder).save(number)
    return folder


@pytest.mark.parametrize(
    ("settings", "of_kernel", "of_bias"),
    [
        ({"optimizer": "adamw"}, "momentum velocity", "momentum velocity"),
        ({"optimizer": "lion"}, "momentum", "momentum"),
        (
            {"optimizer": "adafactor"},
            "row_velocity column_velocity",
            "velocity",
        ),
        ({"ema_decay": 0.5}, "momentum velocity ema", "momentum velocity ema"),
    ],
)
def test_an_optimizer_goes_on_as_if_never_saved(
    trainer_of, tmp_path, settings, of_kernel, of_bias
):
    before, after = trainer_of(**settings), trainer_of(**settings)
    for number in (1, 2):
        before.update(number)
    path = before.checkpoints(tmp_path).save(2)
    names = {name for name, _ in tf.train.list_variables(str(path))}
    for weight, kinds in ((KERNEL, of_kernel), (BIAS, of_bias)):
        assert {name for name in names if weight in name} == {
            f"{kind}/{weight}{SUFFIX}" for kind in f"weights {kinds}".split()
        }
    after.update(5)
    after.checkpoints(tmp_path).restore_latest()
    for trainer in (before, after):
        trainer.update(3)
    for one, other in zip(_state(before), _state(after), strict=True):
        np.testing.assert_array_equal(one, other)


def _state(trainer):
    variables = (*trainer.model.weights, *trainer.optimizer.variables)
    return [variable.numpy() for variable in variables]


def test_the_moving_average_is_what_a_model_takes(averaged, trainer_of):
    """Not the weights, which the training goes on with."""
    path = averaged / "ckpt-3"
    reader, model = tf.train.load_checkpoint(str(path)), trainer_of().model
    checkpoints.restore_weights(model, path, VOCABULARY)
    for weight in model.weights:
        name = weight.path.partition("/")[2]
        ema = reader.get_tensor(f"ema/{name}{SUFFIX}")
        np.testing.assert_array_equal(weight.numpy(), ema)
        trained = reader.get_tensor(f"weights/{name}{SUFFIX}")
        assert not np.array_equal(ema, trained)


def test_a_frozen_weight_has_no_slots(trainer_of, tmp_path):
    """And those of the others keep their names."""
    trainer = trainer_of(frozen=(KERNEL,), ema_decay=0.5)
    trainer.update(1)
    path = trainer.checkpoints(tmp_path).save(1)
    names = {name for name, _ in tf.train.list_variables(str(path))}
    assert {n for n in names if KERNEL in n} == {f"weights/{KERNEL}{SUFFIX}"}
    assert f"momentum/{BIAS}{SUFFIX}" in names
    reader, model = tf.train.load_checkpoint(str(path)), trainer_of().model
    checkpoints.restore_weights(model, path, VOCABULARY)
    for weight in model.weights:
        kind = "weights" if weight.path.endswith(KERNEL) else "ema"
        name = f"{kind}/{weight.path.partition('/')[2]}{SUFFIX}"
        np.testing.assert_array_equal(weight.numpy(), reader.get_tensor(name))


def test_checkpoints_are_averaged_without_their_moving_average(
    averaged, trainer_of, tmp_path
):
    """Section 6.1's average is of the weights themselves."""
    paths = [averaged / "ckpt-2", averaged / "ckpt-3"]
    written, model = averaging.average(paths, tmp_path), trainer_of().model
    checkpoints.restore_weights(model, written, VOCABULARY)
    readers = [tf.train.load_checkpoint(str(path)) for path in paths]
    for weight in model.weights:
        name = f"weights/{weight.path.partition('/')[2]}{SUFFIX}"
        mean = sum(r.get_tensor(name).astype(float) for r in readers) / 2
        np.testing.assert_allclose(weight, mean, rtol=2**-24)


def test_a_moving_average_is_restored_on_replicas(
    averaged, trainer_of, strategy_of
):
    with strategy_of(2).scope():
        trainer = trainer_of(ema_decay=0.5)
    trainer.checkpoints(averaged).restore_latest()
    alone = trainer_of(ema_decay=0.5)
    alone.checkpoints(averaged).restore_latest()
    for one, other in zip(_slots(trainer), _slots(alone), strict=True):
        first, second = one.value.values
        np.testing.assert_array_equal(first.numpy(), other.numpy())
        np.testing.assert_array_equal(second.numpy(), other.numpy())


def _slots(trainer):
    return slots.of_kind(trainer.optimizer, trainer.weights, "ema").values()
