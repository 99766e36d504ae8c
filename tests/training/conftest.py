"""Fixtures of the loop's tests: tiny trainings, and steps that do nothing."""

import contextlib
import dataclasses
import io
import types

import pytest
import tensorflow as tf

from t2t_repro.data import batch_plan
from t2t_repro.data.vocabulary_pair import Vocabularies
from t2t_repro.training import (
    checkpoints,
    cross_entropy,
    setup,
    step,
    train_loop,
)
from t2t_repro.training.options import Options

_OPTIONS = {
    "train_steps": 24,
    "eval_every": 8,
    "save_checkpoints_steps": 4,
    "eval_bleu_sentences": 0,
    "random_seed": 5,
    "mixed_precision": "float32",
    "xla": "off",
}


VOCABULARY = "cd" * 32  # a sha256


class Runs:
    """loop.train with what all tests share, and a look at what it leaves."""

    def __init__(self, hparams, corpora, vocab_size):
        self.hparams, self.corpora = hparams, corpora
        # What of a vocabulary a training looks at.
        self.vocabularies = Vocabularies.shared(
            types.SimpleNamespace(size=vocab_size, sha256=VOCABULARY)
        )
        self.plan = batch_plan.build(
            corpora["train"].lengths,
            "packed",
            hparams.batch_tokens,
            hparams.max_length,
            seed=1,
        )

    def train(self, folder, strategy=None, **options):
        """-> exit code, what was printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            task = setup.Task(
                self.hparams, self.vocabularies, self.plan, self.corpora
            )
            options = Options(**(_OPTIONS | options))
            code = train_loop.train(task, folder, options, strategy)
        return code, printed.getvalue()

    @staticmethod
    def saved_steps(folder):
        """Steps of the checkpoints of a training, in order."""
        listed = checkpoints.list_checkpoints(folder / "checkpoints")
        return [checkpoints.step_of(path) for path in listed]

    @staticmethod
    def saved(folder, step):
        """{name: array} of a checkpoint, without TensorFlow's own."""
        path = folder / "checkpoints" / f"ckpt-{step}"
        reader = tf.train.load_checkpoint(str(path))
        kinds = ("weights/", "momentum/", "velocity/", "step/")
        return {
            name: reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map()
            if name.startswith(kinds)
        }


@pytest.fixture(scope="session")
def runs(tiny_hparams, tiny_corpora, vocab_size):
    """Of a model of one layer, with dropout 0.1."""
    hparams = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
    return Runs(hparams, tiny_corpora, vocab_size)


@pytest.fixture
def fake_steps(monkeypatch):
    """A function that replaces the steps by some that count, and no more.

    It takes on_step, called with the number of each step, and the losses that
    validations shall find.
    """

    def sums(mean):
        return cross_entropy.Sums(
            *map(tf.constant, (10 * mean, 10 * mean, 5.0, 10.0, 12.0))
        )

    def fake(on_step=lambda number: None, losses=()):
        losses = iter(losses)

        def build_train_step(_, adam, *args):
            def train_step(batch):
                on_step(int(adam.iterations.assign_add(1)))
                return step.Outcome(sums(1.0), tf.constant(1.0))

            train_step.experimental_get_tracing_count = lambda: 1
            return train_step

        def build_eval_step(*args):
            """tiny_corpora's validation split is one batch."""
            return lambda batch: sums(next(losses, 1.0))

        monkeypatch.setattr(setup.step, "build_train_step", build_train_step)
        monkeypatch.setattr(setup.step, "build_eval_step", build_eval_step)

    return fake
