"""Search for the microbatch size: few trials, which change nothing."""

import math
import types
from unittest import mock

import hypothesis
import numpy as np
import plans
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.data import batch_plan
from t2t_repro.models import building
from t2t_repro.training import optimizer, options, train_session


class Memory:
    """Memory for a number of slots, with a list of the sizes tried."""

    def __init__(self, slots):
        self.slots, self.tried = slots, []

    def fits(self, slots):
        self.tried.append(slots)
        return slots <= self.slots


@hypothesis.settings(max_examples=100)
@hypothesis.given(
    st.integers(1, 100_000), st.integers(1, 512), st.floats(0, 1.2)
)
def test_search_finds_fewest_microbatches_that_fit(share, multiple, room):
    rows = -(-share // multiple)
    memory = Memory(multiple + int(room * share))
    slots, trials = train_session.largest_microbatch(
        memory.fits, share, multiple
    )
    assert slots % multiple == 0 and slots <= memory.slots
    count = -(-rows * multiple // slots)
    if count > 1:
        assert -(-rows // (count - 1)) * multiple > memory.slots
    assert trials == len(memory.tried) == len(set(memory.tried))
    assert trials <= 3 + math.log2(rows)
    if count < math.sqrt(rows):
        assert trials <= max(1, 2 * math.ceil(math.log2(count)))


def test_error_if_not_even_one_row_fits():
    with pytest.raises(errors.UserError) as caught:
        train_session.largest_microbatch(Memory(255).fits, 600, 256)
    text = str(caught.value)
    assert "Not even one row of 256 slots fits" in text
    assert "tried 768, 512, 256 slots at once" in text
    assert "--hparams=max_length=…" in text and "--mixed_precision" in text


@pytest.fixture(scope="module")
def trained(runs):
    model = building.build(runs.hparams, **runs.vocabularies.sizes)
    return model, optimizer.build(runs.hparams, model.trainable_variables)


@pytest.fixture
def search(runs, trained, strategy_of, monkeypatch):
    """Return a function that searches as on a machine with a GPU."""
    list_devices = tf.config.list_logical_devices

    def devices(device_type=None):
        found = list_devices(device_type)
        return ["GPU"] if device_type == "GPU" else found

    def find(
        plan=runs.plan, xla=False, aligned=False, trained=trained, strategy=None
    ):
        corpora = {"train": types.SimpleNamespace(is_aligned=aligned)}
        task = options.Task(runs.hparams, runs.vocabularies, plan, corpora)
        with monkeypatch.context() as patch:
            patch.setattr(tf.config, "list_logical_devices", devices)
            return train_session.search_microbatch_size(
                *trained, task, strategy or strategy_of(1), xla
            )

    return find


@pytest.fixture
def fake_memory(monkeypatch):
    """Return a function that lets steps run out of memory.

    It takes a function of a batch and the number of chunks of logits: whether
    the step fits. Steps that fit do nothing, if they are not `real`. It returns
    the list of shapes of targets that steps receive.
    """
    build_train_step = train_session.step.build_train_step
    outcome = types.SimpleNamespace(gradient_norm=tf.constant(1.0))

    def replace(fits, real=False):
        shapes = []

        def build(*args):
            step = build_train_step(*args) if real else lambda batch: outcome

            def train_step(batch):
                shapes.append(tuple(batch["targets"].shape))
                if not fits(batch, args[4].num_chunks):
                    # TensorFlow would raise it after 10 seconds of retries.
                    raise tf.errors.ResourceExhaustedError(None, None, "OOM")
                return step(batch)

            return train_step

        monkeypatch.setattr(train_session.step, "build_train_step", build)
        return shapes

    return replace


def fewer_slots(most):
    """Return a function for fake_memory: whether a batch has few slots."""
    return lambda batch, _: math.prod(batch["targets"].shape[1:]) <= most


def test_search_runs_steps_on_one_replica_and_changes_nothing(
    runs, strategy_of, search, fake_memory, capsys
):
    """A replica's share of 8 rows is 4, of which 2 fit at once."""
    shapes = fake_memory(fewer_slots(64), real=True)
    strategy = strategy_of(2)
    with strategy.scope():
        model = building.build(runs.hparams, **runs.vocabularies.sizes)
        adam = optimizer.build(runs.hparams, model.trainable_variables)
    variables = model.variables + adam.variables
    before = [variable.numpy() for variable in variables]
    found = search(trained=(model, adam), strategy=strategy)
    assert found == (64, 2, 1)
    assert shapes == [(1, 4, 32), (2, 2, 32)]
    assert "Trying 128 slots at once.\nTrying 64 s" in capsys.readouterr().out
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable, value, err_msg=variable.path)


@pytest.mark.parametrize(
    ("xla", "fitting", "tried", "found"),
    [
        (True, {(8, 1)}, [(8, 1)], (256, 1, 1)),
        (True, {(8, 4)}, [(8, 1), (8, 4)], (256, 2, 4)),
        (True, {(4, 2)}, [(8, 1), (8, 4), (4, 2)], (128, 3, 2)),
        (False, {(8, 4)}, [(8, 4)], (256, 1, 4)),
    ],
    ids=["all logits", "chunks", "chunks of half the rows", "without XLA"],
)
def test_search_tries_all_logits_at_once_before_chunks(
    search, fake_memory, monkeypatch, trained, xla, fitting, tried, found
):
    """The batch has 8 rows; sizes are (rows, chunks of their logits)."""
    sizes = []

    def fits(batch, num_chunks):
        sizes.append((batch["targets"].shape[1], num_chunks))
        return sizes[-1] in fitting

    fake_memory(fits)
    monkeypatch.setattr(
        train_session.step, "MAX_LOGITS", 64 * trained[0].vocab_size
    )
    actual = search(xla=xla)
    assert (sizes, actual) == (tried, found)


@pytest.mark.parametrize("row_lengths", [(32, 40), (40, 32)])
def test_search_counts_slots_of_the_longer_rows(
    runs, search, fake_memory, row_lengths
):
    shapes = fake_memory(fewer_slots(200))
    lengths = runs.corpora["train"].lengths
    usable = batch_plan.usable_pairs(lengths, 32)
    plan = batch_plan.PackedPlan(
        lengths, usable, plans.settings("packed", 200, 32), 1, row_lengths
    )
    assert (plan.rows_per_batch, plan.max_batch_slots) == (8, 320)
    assert search(plan).slots == 160
    rows, length = 8, row_lengths[1]
    assert shapes == [(1, rows, length), (2, rows // 2, length)]


@pytest.mark.parametrize("aligned", [False, True])
def test_search_has_alignments_where_batches_have(search, fake_memory, aligned):
    fake_memory(lambda batch, _: ("alignments" in batch) == aligned)
    assert search(aligned=aligned).trials == 1


def test_workers_agree_on_the_smallest_result(search, fake_memory, monkeypatch):
    fake_memory(fewer_slots(256))
    others = types.SimpleNamespace(gather=lambda number: [number, 96])
    monkeypatch.setattr(train_session.devices, "Worker", lambda _: others)
    assert search().slots == 96


def test_found_size_is_used_by_step_and_validation(
    runs, fake_steps, tmp_path, monkeypatch
):
    fake_steps()
    module = train_session.step
    num_chunks = mock.Mock(wraps=module.num_chunks)
    build_train_step = mock.Mock(wraps=module.build_train_step)
    found = train_session.MicrobatchSize(1_024, 3, 2)
    monkeypatch.setattr(module, "num_chunks", num_chunks)
    monkeypatch.setattr(module, "build_train_step", build_train_step)
    monkeypatch.setattr(
        train_session, "search_microbatch_size", lambda *args: found
    )
    _, printed = runs.train(tmp_path / "a", train_steps=1)
    assert (
        "per replica: 1/1 of it, at most 1,024 slots at once, found by 3 "
        "trials\n"
    ) in printed
    assert [each.args[2] for each in num_chunks.call_args_list] == [1_024] * 2
    assert build_train_step.call_args.args[4].num_chunks == 2
