"""The loop around steps that do nothing: when it saves, stops and says what."""

import math
import signal
import types

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.data import batches
from t2t_repro.models import building
from t2t_repro.reports import cost
from t2t_repro.training import cross_entropy, setup, train_loop


def test_describes_what_is_about_to_happen(runs, fake_steps, tmp_path):
    fake_steps()
    _, printed = runs.train(tmp_path)
    lines = {line.strip() for line in printed.splitlines()}
    parameters = building.build(runs.hparams, 20).count_params()
    epochs = 24 * 8 / runs.plan.rows_per_epoch
    assert runs.plan.summary() in printed
    assert lines >= {
        f"parameters: {parameters:,}",
        "vocabulary: 20 subwords",
        "hardware: 1 replica on one CPU, float32, XLA off",
        f"batch: {runs.plan.summary()} (batch_tokens=200, in real tokens)",
        "per replica: 1/1 of it, at most 8,192 slots at once",
        f"steps: 24 = {epochs:,.1f} epochs; 0 done",
        # 0.02 / sqrt(10)
        "learning rate: constant*linear_warmup*rsqrt_decay, "
        "peak 0.00632 at step 10",
        f"output: {tmp_path}",
        "Stopped after step 24; checkpoint ckpt-24.",
    }


def test_describes_other_choices(runs, fake_steps, tmp_path):
    fake_steps()
    _, printed = runs.train(
        tmp_path,
        train_steps=1,
        mixed_precision="bfloat16",
        xla="on",
        max_tokens_per_replica=1_024,
    )
    assert "1 replica on one CPU, mixed_bfloat16, XLA on\n" in printed
    assert "per replica: 1/1 of it, at most 1,024 slots at once\n" in printed


def test_checkpoints_by_steps(runs, fake_steps, tmp_path):
    """Every fourth, and the last; the newest three of them stay."""
    fake_steps()
    runs.train(tmp_path / "all", train_steps=10)
    assert runs.saved_steps(tmp_path / "all") == [4, 8, 10]
    runs.train(tmp_path / "few", keep_checkpoint_max=3)
    assert runs.saved_steps(tmp_path / "few") == [16, 20, 24]


def test_checkpoints_by_the_clock(runs, fake_steps, tmp_path, monkeypatch):
    """Steps of 10 seconds: 25 are over after 3 of them."""
    clock = types.SimpleNamespace(now=0.0)
    fake_steps(lambda number: setattr(clock, "now", 10.0 * number))
    fake_time = types.SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(train_loop, "time", fake_time)
    runs.train(tmp_path, train_steps=8, save_checkpoints_secs=25)
    assert runs.saved_steps(tmp_path) == [3, 6, 8]


def test_validations_come_every_so_many_steps(
    runs, fake_steps, tmp_path, read_events
):
    """And at the end."""
    fake_steps(losses=[4.0, 3.0, 5.0])
    runs.train(tmp_path, train_steps=7, eval_every=3)
    losses = read_events(tmp_path)["validation/loss"]
    assert losses == {3: 4.0, 6: 3.0, 7: 5.0}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_saves_after_the_step(
    runs, fake_steps, tmp_path, number, code
):
    fake_steps(lambda step: signal.raise_signal(number) if step == 3 else None)
    actual, printed = runs.train(tmp_path)
    assert actual == code
    assert runs.saved_steps(tmp_path) == [3]
    assert "Finishing this step, then saving. Again: stop at once." in printed
    assert "Stopped after step 3; checkpoint ckpt-3." in printed


def test_early_stopping(runs, fake_steps, tmp_path, capsys):
    """The best of 3 … 2.1 is the second; two more did not beat it."""
    fake_steps(losses=[3.0, 2.0, 2.5, 2.1, 1.0])
    code, _ = runs.train(tmp_path, eval_every=3, early_stopping_evals=2)
    assert code == 0
    assert runs.saved_steps(tmp_path)[-1] == 12
    assert (
        "The validation loss has not improved for 2 evaluations."
    ) in capsys.readouterr().err
    # The same command again does no more; without the flag it goes on.
    fake_steps(losses=[1.0] * 9)
    stopping = {"eval_every": 3, "early_stopping_evals": 2}
    code, printed = runs.train(tmp_path, **stopping)
    assert code == 0
    assert "Nothing to do: after 12 steps the validation loss" in printed
    assert runs.saved_steps(tmp_path)[-1] == 12
    runs.train(tmp_path, eval_every=3)
    assert runs.saved_steps(tmp_path)[-1] > 12


def test_initial_weights_are_a_function_of_the_seed(runs, fake_steps, tmp_path):
    fake_steps()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        runs.train(tmp_path / name, train_steps=1, random_seed=seed)
    a, b, c = (runs.saved(tmp_path / name, 1) for name in "abc")
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name])
        if name.startswith("weights/") and "kernel" in name:
            assert not np.array_equal(value, c[name])


def test_the_profiler_is_asked_before_each_step(
    runs, fake_steps, tmp_path, monkeypatch
):
    """Steps 11 to 20 of the session, which begins with step 5."""
    calls = []
    fake_steps(calls.append)
    profiler = tf.profiler.experimental
    monkeypatch.setattr(profiler, "start", lambda _: calls.append("start"))
    monkeypatch.setattr(profiler, "stop", lambda: calls.append("stop"))
    runs.train(tmp_path, train_steps=4)
    runs.train(tmp_path, train_steps=26, profile=True)
    steps = list(range(1, 27))
    assert calls == [*steps[:14], "start", *steps[14:24], "stop", *steps[24:]]


def test_early_stopping_outlives_a_restart(runs, fake_steps, tmp_path, capsys):
    """The best of 3 … 2.1 is the second, which another process found."""
    stopping = {"eval_every": 3, "early_stopping_evals": 2}
    fake_steps(losses=[3.0, 2.0, 2.5])
    runs.train(tmp_path, train_steps=9, **stopping)
    assert "has not improved" not in capsys.readouterr().err
    fake_steps(losses=[2.1, 1.0])
    code, _ = runs.train(tmp_path, **stopping)
    assert code == 0
    assert runs.saved_steps(tmp_path)[-1] == 12
    assert "has not improved for 2 eval" in capsys.readouterr().err


def _spoil(monkeypatch, spoil):
    """Steps that do nothing but spoil(step number, model)."""

    def build_train_step(model, adam, *args):
        def train_step(batch):
            number = int(adam.iterations.assign_add(1))
            loss = spoil(number, model) or 1.0
            sums = cross_entropy.Sums(
                *map(tf.constant, (loss, loss, 0.5, 1.0, 1.0))
            )
            return setup.step.Outcome(sums, tf.constant(1.0))

        train_step.experimental_get_tracing_count = lambda: 1
        return train_step

    monkeypatch.setattr(setup.step, "build_train_step", build_train_step)


def test_a_bad_loss_stops_before_the_next_checkpoint(
    runs, fake_steps, tmp_path, monkeypatch
):
    """The loss of step 6 would have been looked at after two seconds."""
    fake_steps()
    _spoil(monkeypatch, lambda number, _: math.nan if number >= 6 else None)
    with pytest.raises(errors.UserError) as caught:
        runs.train(tmp_path, eval_every=1_000)
    counts = batches.count(runs.corpora["train"], runs.plan.batch(5))
    text = str(caught.value)
    assert text.startswith("The loss of step 6 is nan; the step before had 1.")
    assert f"{counts.sentences} sentences in 8 rows of 32 slots" in text
    assert f"{tmp_path / 'checkpoints' / 'ckpt-4'}, is from before" in text
    assert runs.saved_steps(tmp_path) == [4]


def test_a_bad_weight_is_not_saved(runs, fake_steps, tmp_path, monkeypatch):
    """Though every loss be fine."""
    fake_steps()

    def spoil(number, model):
        if number == 7:
            weight = model.weights[3]
            weight.assign(np.full(weight.shape, np.inf))

    _spoil(monkeypatch, spoil)
    with pytest.raises(errors.UserError, match="update of step 8 left values"):
        runs.train(tmp_path)
    assert runs.saved_steps(tmp_path) == [4]


def test_compilations_are_counted_and_told(
    runs, fake_steps, tmp_path, monkeypatch, read_events, capsys
):
    """The step is traced for its first batch, and again for the fifth."""
    fake_steps()
    traces = [0]

    def trace(number, _):
        traces[0] = (number + 3) // 4

    _spoil(monkeypatch, trace)
    real = setup.step.build_train_step

    def build(*args):
        train_step = real(*args)
        train_step.experimental_get_tracing_count = lambda: traces[0]
        return train_step

    monkeypatch.setattr(setup.step, "build_train_step", build)
    runs.train(tmp_path, train_steps=6)
    told = [
        line
        for line in capsys.readouterr().err.splitlines()
        if "compiled anew" in line
    ]
    assert told == [
        "step 5: compiled anew (number 2) for parts of 1 x 8 x 32, a known "
        "shape"
    ]
    assert read_events(tmp_path)["train/compilations"] == {6: 2}


def test_share_of_peak(runs, fake_steps, tmp_path, monkeypatch, read_events):
    """Of devices that reach 10^6 FLOP/s."""
    fake_steps()
    monkeypatch.setattr(train_loop.utilization, "peak_flops", lambda *_: 1e6)
    runs.train(tmp_path, train_steps=3)
    lengths = runs.corpora["train"].lengths.values()
    of_a_token = cost.training_flops(
        building.build_abstract(runs.hparams, 20),
        1,
        *(float(of.mean()) for of in lengths),
    )
    events = read_events(tmp_path)
    speed = events["train/tokens_per_second"][3]
    share = events["train/share_of_peak"][3]
    assert share == pytest.approx(speed * of_a_token / 1e6, rel=1e-4)
