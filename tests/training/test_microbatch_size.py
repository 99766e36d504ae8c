"""What fits is found in few trials, and none of them leaves a trace."""

import math

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.data import batch_plan
from t2t_repro.models import building
from t2t_repro.training import microbatch_size, optimizer, setup


class Memory:
    """So many slots fit; remembers what was asked."""

    def __init__(self, slots):
        self.slots, self.asked = slots, []

    def fits(self, slots):
        self.asked.append(slots)
        return slots <= self.slots


@hypothesis.settings(deadline=None, max_examples=500, derandomize=True)
@hypothesis.given(
    st.integers(1, 100_000), st.integers(1, 512), st.floats(0, 1.2)
)
def test_no_fewer_parts_would_fit(share, multiple, room):
    rows = -(-share // multiple)
    memory = Memory(multiple + int(room * share))
    fit = microbatch_size.largest_that_fits(memory.fits, share, multiple)
    assert fit.slots % multiple == 0 and fit.slots <= memory.slots
    parts = -(-rows * multiple // fit.slots)
    if parts > 1:
        assert -(-rows // (parts - 1)) * multiple > memory.slots
    assert fit.trials == len(memory.asked) == len(set(memory.asked))
    assert fit.trials <= 3 + math.log2(rows)
    if parts < math.sqrt(rows):
        assert fit.trials <= max(1, 2 * math.ceil(math.log2(parts)))


@pytest.mark.parametrize(
    ("room", "slots", "asked"),
    [
        (25_600, 25_600, [100]),
        (25_599, 12_800, [100, 50]),
        (9_000, 8_704, [100, 50, 25, 34]),  # in 3 parts
        (8_000, 6_400, [100, 50, 25, 34]),
        (2_700, 2_560, [100, 50, 25, 13, 4, 8, 10, 12]),
        (256, 256, [100, 50, 25, 13, 4, 1, 2]),
    ],
)
def test_of_100_rows(room, slots, asked):
    memory = Memory(room)
    fit = microbatch_size.largest_that_fits(memory.fits, 25_600, 256)
    assert [slots // 256 for slots in memory.asked] == asked
    assert fit == (slots, len(asked))


def test_nothing_fits():
    with pytest.raises(errors.UserError) as caught:
        microbatch_size.largest_that_fits(Memory(255).fits, 600, 256)
    text = str(caught.value)
    assert "Not even one row of 256 slots fits" in text
    assert "tried 768, 512, 256 slots at once" in text
    assert "--hparams=max_length=…" in text and "--mixed_precision" in text


@pytest.fixture
def on_gpus(monkeypatch):
    """A function of search's arguments: what it does where there is a GPU."""

    def search(*args):
        with monkeypatch.context() as patch:
            patch.setattr(
                tf.config, "list_logical_devices", lambda kind: [kind]
            )
            return real(*args)

    real = microbatch_size.search
    return search


@pytest.fixture
def little_memory(monkeypatch):
    """A function of slots: steps with more at once run out of memory.

    It returns a list to which they add the shapes that they are given.
    """
    build_train_step = microbatch_size.step.build_train_step

    def shrink(slots):
        shapes = []

        def build(*args):
            real = build_train_step(*args)

            def train_step(batch):
                shapes.append(tuple(batch["targets"].shape))
                if math.prod(shapes[-1][1:]) > slots:
                    # TensorFlow's own would come after 10 seconds of waiting.
                    raise tf.errors.ResourceExhaustedError(None, None, "OOM")
                return real(batch)

            return train_step

        monkeypatch.setattr(microbatch_size.step, "build_train_step", build)
        return shapes

    return shrink


@pytest.mark.parametrize(
    ("replicas", "xla", "asked", "found"),
    [
        (1, False, [(1, 8, 32), (2, 4, 32)], (128, 2)),
        (2, False, [(1, 4, 32)], (128, 1)),
    ],
)
def test_search_tries_steps_and_changes_nothing(
    runs, strategy_of, on_gpus, little_memory, replicas, xla, asked, found
):
    shapes = little_memory(128)
    strategy = strategy_of(replicas)
    with strategy.scope():
        model = building.build(runs.hparams, **runs.vocabularies.sizes)
        adam = optimizer.build(runs.hparams, model.trainable_variables)
    variables = model.variables + adam.variables
    before = [variable.numpy() for variable in variables]
    assert on_gpus(model, adam, runs.plan, strategy, xla) == found
    assert shapes == asked
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable, value, err_msg=variable.path)


def test_search_of_buckets_tries_the_longest_rows(
    runs, strategy_of, on_gpus, little_memory
):
    shapes = little_memory(200)
    lengths = runs.corpora["train"].lengths
    plan = batch_plan.build(lengths, "bucketed", 200, 32, seed=1)
    assert (plan.max_slots, plan.row_length) == (384, 16)
    model = building.build(runs.hparams, **runs.vocabularies.sizes)
    adam = optimizer.build(runs.hparams, model.trainable_variables)
    fit = on_gpus(model, adam, plan, strategy_of(1), False)
    assert fit == (192, 2)
    assert shapes == [(1, 24, 16), (2, 12, 16)]


class _Workers:
    """Two of them; the other's number is 4."""

    @staticmethod
    def gather(number):
        return [number, 4]


def test_workers_agree_on_the_minimum(strategy_of, monkeypatch):
    assert [microbatch_size._minimum(7, strategy_of(n)) for n in (1, 2)] == [
        7,
        7,
    ]
    monkeypatch.setattr(
        microbatch_size.workers, "for_strategy", lambda strategy: _Workers
    )
    assert [microbatch_size._minimum(n, None) for n in (3, 5)] == [3, 4]


def test_cpus_are_not_tried(runs, strategy_of, capsys):
    model = adam = None
    found = microbatch_size.search(
        model, adam, runs.plan, strategy_of(1), False
    )
    assert found is None
    assert "Trying" not in capsys.readouterr().out


def test_a_training_says_what_was_found(
    runs, fake_steps, tmp_path, monkeypatch
):
    fake_steps()
    limits = []
    num_chunks = setup.loss.num_chunks
    monkeypatch.setattr(
        setup.loss,
        "num_chunks",
        lambda *args: limits.append(args[2]) or num_chunks(*args),
    )
    monkeypatch.setattr(
        setup.microbatch_size,
        "search",
        lambda *args: microbatch_size.Fit(1_024, 3),
    )
    _, printed = runs.train(tmp_path / "a", train_steps=1)
    assert (
        "per replica: 1/1 of it, at most 1,024 slots at once, found by 3 "
        "trials\n"
    ) in printed
    _, printed = runs.train(
        tmp_path / "b", train_steps=1, max_tokens_per_replica=64
    )
    assert "1/1 of it, at most 64 slots at once\n" in printed
    # Of the step, and of the validation.
    assert limits == [1_024, 1_024, 64, 64]


@pytest.mark.slow
def test_a_search_changes_no_result(runs, tmp_path, on_gpus, monkeypatch):
    """To the last bit, where it finds that a batch is one part."""
    runs.train(tmp_path / "without", train_steps=3)
    monkeypatch.setattr(setup.microbatch_size, "search", on_gpus)
    _, printed = runs.train(tmp_path / "with", train_steps=3)
    assert "Trying 256 slots at once.\n" in printed
    assert "at most 256 slots at once, found by 1 trial\n" in printed
    actual = runs.saved(tmp_path / "with", 3)
    for name, value in runs.saved(tmp_path / "without", 3).items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
