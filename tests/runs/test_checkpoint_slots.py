"""Moving averages and frozen weights in checkpoints."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.models import building
from t2t_repro.runs import checkpoints
from t2t_repro.runs.checkpoints import CheckpointManager, restore_weights
from t2t_repro.training import optimizer

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
        """Apply the gradients of a seed."""
        random = np.random.default_rng(number)
        gradients = [
            tf.constant(random.normal(size=weight.shape), tf.float32)
            for weight in self.weights
        ]
        self.optimizer.apply(gradients, self.weights)

    def checkpoints(self, folder):
        return CheckpointManager(
            self.model, self.optimizer, folder, 20, VOCABULARY
        )


@pytest.fixture(scope="module")
def trainer_of(tiny_hparams, vocab_size):
    """Return a function of settings that returns a Trainer."""

    def make(frozen=(), **settings):
        hparams = dataclasses.replace(
            tiny_hparams, num_hidden_layers=1, **settings
        )
        return Trainer(hparams, vocab_size, frozen)

    return make


@pytest.fixture(scope="module")
def averaged(trainer_of, tmp_path_factory):
    """Return a folder with ckpt-2 and ckpt-3 of a run with ema_decay=0.5."""
    folder = tmp_path_factory.mktemp("averaged")
    trainer = trainer_of(ema_decay=0.5)
    for number in (1, 2, 3):
        trainer.update(number)
        trainer.checkpoints(folder).save(number)
    return folder


def test_restored_weights_are_the_moving_average(averaged, trainer_of):
    """The checkpoint has the trained weights as well."""
    path = averaged / "ckpt-3"
    reader, model = tf.train.load_checkpoint(str(path)), trainer_of().model
    restore_weights(model, path, VOCABULARY)
    for weight in model.weights:
        name = weight.path.partition("/")[2]
        ema = reader.get_tensor(f"ema/{name}{SUFFIX}")
        np.testing.assert_array_equal(weight.numpy(), ema)
        trained = reader.get_tensor(f"weights/{name}{SUFFIX}")
        assert not np.array_equal(ema, trained)


def test_frozen_weight_has_no_slots(trainer_of, tmp_path):
    """The slots of other weights keep their names."""
    trainer = trainer_of(frozen=(KERNEL,), ema_decay=0.5)
    trainer.update(1)
    path = trainer.checkpoints(tmp_path).save(1)
    names = {name for name, _ in tf.train.list_variables(str(path))}
    assert {n for n in names if KERNEL in n} == {f"weights/{KERNEL}{SUFFIX}"}
    assert f"momentum/{BIAS}{SUFFIX}" in names
    reader, model = tf.train.load_checkpoint(str(path)), trainer_of().model
    restore_weights(model, path, VOCABULARY)
    for weight in model.weights:
        kind = "weights" if weight.path.endswith(KERNEL) else "ema"
        name = f"{kind}/{weight.path.partition('/')[2]}{SUFFIX}"
        np.testing.assert_array_equal(weight.numpy(), reader.get_tensor(name))


def test_average_of_checkpoints_ignores_their_moving_average(
    averaged, trainer_of, tmp_path
):
    """Section 6.1 averages the weights themselves."""
    paths = [averaged / "ckpt-2", averaged / "ckpt-3"]
    written, model = checkpoints.average(paths, tmp_path), trainer_of().model
    restore_weights(model, written, VOCABULARY)
    readers = [tf.train.load_checkpoint(str(path)) for path in paths]
    for weight in model.weights:
        name = f"weights/{weight.path.partition('/')[2]}{SUFFIX}"
        mean = sum(r.get_tensor(name).astype(float) for r in readers) / 2
        np.testing.assert_allclose(weight, mean, rtol=2**-24)
