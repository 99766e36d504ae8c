"""Fixtures: runs of a tiny model, and fake steps that only count."""

import contextlib
import dataclasses
import io
import types

import plans
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.runs import checkpoint_files, checkpoints
from t2t_repro.text.vocabulary_pair import Vocabularies
from t2t_repro.training import (
    cross_entropy,
    step,
    train_log,
    train_loop,
    train_session,
)
from t2t_repro.training.options import Options, Task

_OPTIONS = {
    "train_steps": 24,
    "eval_every": 8,
    "save_checkpoints_steps": 4,
    "eval_bleu_sentences": 0,
    "random_seed": 5,
    "mixed_precision": "float32",
    "xla": "off",
}


class Runs:
    """Runs with common settings, and readers of their checkpoints."""

    def __init__(self, hparams, corpora, vocab_size):
        self.hparams, self.corpora = hparams, corpora
        # Training reads only these attributes of a vocabulary.
        self.vocabularies = Vocabularies.shared(
            types.SimpleNamespace(size=vocab_size, sha256="cd" * 32)
        )
        self.plan = plans.build(
            corpora["train"].lengths,
            "packed",
            hparams.batch_tokens,
            hparams.max_length,
            seed=1,
        )
        self.sampler = None  # of training text

    def with_hparams(self, **changes):
        hparams = dataclasses.replace(self.hparams, **changes)
        return Runs(hparams, self.corpora, self.vocabularies.target.size)

    def train(self, folder, strategy=None, callbacks=(), **options):
        """Train and return the exit code and the printed text."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            options = Options(**(_OPTIONS | options))
            code = train_loop.train(
                self._task(), folder, options, strategy, callbacks
            )
        return code, printed.getvalue()

    def session(self, folder, **options):
        """Return the session of a run without starting it."""
        return train_session.build(
            self._task(),
            folder,
            Options(**(_OPTIONS | options)),
            tf.distribute.get_strategy(),
        )

    def _task(self):
        return Task(
            self.hparams,
            self.vocabularies,
            self.plan,
            self.corpora,
            sampler=self.sampler,
        )

    @staticmethod
    def saved_steps(folder):
        """Return the steps of the checkpoints of a run, in order."""
        listed = checkpoint_files.list_checkpoints(folder / "checkpoints")
        return [checkpoint_files.step_of(path) for path in listed]

    @staticmethod
    def saved(folder, step):
        """Return {name: array} of weights, moments and step of a checkpoint."""
        reader = checkpoints.CheckpointReader(
            folder / "checkpoints" / f"ckpt-{step}"
        )
        kinds = ("weights/", "momentum/", "velocity/", "step")
        names = [name for name in reader.shapes if name.startswith(kinds)]
        assert len(names) > 1
        return {name: reader.tensor(name) for name in names}


@pytest.fixture(scope="session")
def base(tiny_hparams):  # tiny_hparams loads the definitions
    return registry.build_hparams("base")


@pytest.fixture(scope="session")
def one_layer(tiny_hparams):
    """Return settings of a model of one layer, with dropout 0.1."""
    return dataclasses.replace(tiny_hparams, num_hidden_layers=1)


@pytest.fixture(scope="session")
def runs(one_layer, tiny_corpora, vocab_size):
    return Runs(one_layer, tiny_corpora, vocab_size)


@pytest.fixture(scope="session")
def uninterrupted_run(runs, tmp_path_factory):
    """Return the folder of a run of 24 steps, which logs each of them."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_log, "SECONDS", 0)
        assert runs.train(folder)[0] == 0
    return folder


@pytest.fixture(scope="session")
def reused_state():
    """Return _build_state() of a session, which builds a state but once.

    Later sessions get its variables again, with their initial values.
    """
    build, built = train_session._build_state, {}

    def reuse(task, options, strategy, policy, xla):
        sizes = tuple(task.vocabularies.sizes.values())
        chosen = options.random_seed, options.recompute_grad
        key = (task.hparams, sizes, chosen, strategy, policy, xla)
        if key not in built:
            state = build(task, options, strategy, policy, xla)
            built[key] = state, [each.numpy() for each in state.variables]
        state, initial = built[key]
        for variable, value in zip(state.variables, initial, strict=True):
            variable.assign(value)
        return state

    return reuse


@pytest.fixture
def fake_steps(monkeypatch, reused_state):
    """Return a function that replaces training and validation steps by fakes.

    It takes on_step, called with the number of each step and the model, which
    may return the loss of the step; the losses of the validations, and
    on_validation, called in each; and how often the step has been traced. A
    batch is one microbatch, whatever the machine. The sessions of fake steps
    share their models, and do not measure the machine.
    """

    def sums(mean):
        return cross_entropy.Sums(
            *map(tf.constant, (10 * mean, 10 * mean, 5.0, 10.0, 12.0))
        )

    def fake(
        on_step=lambda number, model: None,
        losses=(),
        on_validation=lambda: None,
        traces=lambda: 1,
    ):
        losses = iter(losses)

        def build_train_step(model, adam, *args):
            def train_step(batch):
                loss = on_step(int(adam.iterations.assign_add(1)), model)
                return step.Outcome(sums(loss or 1.0), tf.constant(1.0))

            train_step.experimental_get_tracing_count = traces
            return train_step

        def build_eval_step(*args):
            def evaluate(batch):
                on_validation()
                # The validation split of tiny_corpora is one batch.
                return sums(next(losses, 1.0))

            return evaluate

        monkeypatch.setattr(step, "build_train_step", build_train_step)
        monkeypatch.setattr(step, "build_eval_step", build_eval_step)
        monkeypatch.setattr(
            train_session.devices, "parallel_microbatches", lambda *_: 1
        )
        monkeypatch.setattr(
            train_session.devices, "cpu_product_flops", lambda _: None
        )
        monkeypatch.setattr(train_session, "_build_state", reused_state)

    return fake
