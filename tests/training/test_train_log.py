"""The log of a run: means over intervals, and checks for non-finite numbers."""

import math
import types
from unittest import mock

import keras
import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.training import cross_entropy, step, train_log


@pytest.fixture
def clock(monkeypatch):
    """Return a fake time.monotonic() for train_log.py, which `now` sets."""
    clock = types.SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(train_log, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    """Simulate 3 GB in use, and no GPU."""
    monkeypatch.setattr(train_log, "host_memory", lambda: 3 * 10**9)
    monkeypatch.setattr(train_log, "peak_device_memory", lambda: None)


def _outcome(smoothed, nll, correct, tokens, padded_tokens=100, norm=1.0):
    values = smoothed, nll, correct, tokens, padded_tokens, norm
    *sums, norm = (tf.constant(float(value)) for value in values)
    return step.Outcome(cross_entropy.Sums(*sums), norm)


def _log(folder, first_step=0, last_step=1_000, policy="float32", **settings):
    checker = train_log.FiniteChecker(policy, "batch {}".format, lambda: None)
    return train_log.TrainLog(
        folder,
        first_step,
        last_step,
        lambda step: step / 1000,
        checker,
        **settings,
    )


def _train(folder, clock, outcomes, first_step=0, **settings):
    """Log steps of half a second."""
    settings = {"last_step": first_step + len(outcomes)} | settings
    log = _log(folder, first_step, **settings)
    for outcome in outcomes:
        clock.now += 0.5
        log.step_done(outcome, compilations=1)
    log.close()


def test_logged_means_equal_those_by_hand(
    tmp_path, clock, read_events, monkeypatch
):
    """The first step, which compiles, does not count; then 3 steps in 1.5 s."""
    monkeypatch.setattr(train_log, "peak_device_memory", lambda: 5 * 10**8)
    _train(
        tmp_path,
        clock,
        [
            _outcome(900, 900, 900, 900),
            _outcome(10, 5, 4, 10, norm=1.0),
            _outcome(20, 10, 6, 10, norm=3.0),
            _outcome(60, 30, 10, 20, padded_tokens=50, norm=8.0),
        ],
        peak_speed=80.0,
    )
    events = read_events(tmp_path)
    expected = {
        "loss": 90 / 40,
        "perplexity": math.exp(45 / 40),
        "accuracy": 20 / 40,
        "padding": 1 - 40 / 250,
        "gradient_norm": (1 + 3 + 8) / 3,
        "learning_rate": 0.004,
        "tokens_per_second": 40 / 1.5,
        "steps_per_second": 3 / 1.5,
        "share_of_peak": 40 / 1.5 / 80,
        "compilations": 1,
        "host_memory_gb": 3.0,
        "device_memory_gb": 0.5,
    }
    assert events.keys() == {f"train/{name}" for name in expected}
    for name, value in expected.items():
        assert events[f"train/{name}"] == {4: pytest.approx(value)}


def test_log_shows_means_every_two_seconds_and_at_the_end(
    tmp_path, clock, read_events, monkeypatch
):
    """Values are fetched as rarely, since fetching waits for the device."""
    fetch = mock.Mock(wraps=train_log._fetch)
    monkeypatch.setattr(train_log, "_fetch", fetch)
    outcomes = [_outcome(i, 1, 1, 1) for i in range(1, 13)]
    _train(tmp_path, clock, outcomes, first_step=40)
    losses = read_events(tmp_path)["train/loss"]
    # Steps 42 to 45 take two seconds, so do 46 to 49; 52 is the last.
    assert losses == {
        45: pytest.approx((2 + 3 + 4 + 5) / 4),
        49: pytest.approx((6 + 7 + 8 + 9) / 4),
        52: pytest.approx((10 + 11 + 12) / 3),
    }
    assert [len(call.args[0]) for call in fetch.call_args_list] == [1, 4, 4, 3]


def _events(folder):
    """Yield the events in a folder, without the version that begins them."""
    (path,) = folder.iterdir()
    for record in tf.data.TFRecordDataset(str(path)).skip(1):
        yield tf.compat.v1.Event.FromString(record.numpy())


def test_recorded_scalar_is_that_of_tf_summary(tmp_path):
    """tf.summary.scalar needs TensorBoard, which the log does without."""
    log = _log(tmp_path / "ours")
    log.validation_done(3, {"loss": 2.5})
    log.close()
    writer = tf.summary.create_file_writer(str(tmp_path / "theirs"))
    with writer.as_default(3):
        tf.summary.scalar("loss", 2.5)
    writer.close()
    ours, theirs = (
        [(event.step, event.summary) for event in _events(tmp_path / folder)]
        for folder in ("ours/validation", "theirs")
    )
    assert ours == theirs


@pytest.mark.parametrize("compiled", [(3,), (2, 4), (2, 3, 4)])
def test_steps_that_compile_do_not_count_in_rates(
    tmp_path, clock, read_events, compiled
):
    """They take 9 seconds instead of half a second; their loss counts."""
    log = _log(tmp_path, last_step=4)
    log.step_done(_outcome(9, 9, 9, 9), 1)
    for number in range(2, 5):
        clock.now += 9.0 if number in compiled else 0.5
        compilations = 1 + sum(other <= number for other in compiled)
        log.step_done(_outcome(number, 1, 1, 10 * number), compilations)
    log.close()
    events = read_events(tmp_path)
    assert events["train/loss"] == {4: pytest.approx(9 / 90)}
    timed = [number for number in (2, 3, 4) if number not in compiled]
    speed = timed and {4: pytest.approx(10 * sum(timed) / 0.5 / len(timed))}
    assert events.get("train/tokens_per_second", []) == speed
    assert events.get("train/steps_per_second", []) == (timed and {4: 2.0})


def test_waiting_for_the_device_counts_in_rates(
    tmp_path, clock, read_events, monkeypatch
):
    """The host is 6 seconds ahead: 4 steps have taken 8, not 2."""
    stack = tf.stack

    def wait(values):
        clock.now += 6.0
        return stack(values)

    monkeypatch.setattr(train_log.tf, "stack", wait)
    log = _log(tmp_path)
    for _ in range(5):
        clock.now += 0.5
        log.step_done(_outcome(1, 1, 1, 1), 1)
    log.close()
    assert read_events(tmp_path)["train/steps_per_second"] == {5: 4 / 8}


def test_extra_checks_and_pauses_change_no_mean(tmp_path, clock, read_events):
    """A checkpoint causes both."""
    log = _log(tmp_path)
    log.step_done(_outcome(9, 9, 9, 9), 1)
    for number in range(1, 5):
        clock.now += 0.5
        log.step_done(_outcome(number, 1, 1, 1), 1)
        if number == 2:
            log.check()
            log.check()
            with log.pause():
                clock.now += 100
    log.close()
    events = read_events(tmp_path)
    assert events["train/loss"] == {5: (1 + 2 + 3 + 4) / 4}
    assert events["train/steps_per_second"] == {5: 4 / 2}


def test_overflows_of_float16_are_counted(tmp_path, clock, read_events):
    norms = (1.0, 2.0, math.inf, 4.0, math.nan)
    outcomes = [_outcome(1, 1, 1, 1, norm=norm) for norm in norms]
    _train(tmp_path, clock, outcomes, policy="mixed_float16")
    events = read_events(tmp_path)
    assert events["train/updates_left_out"] == {5: 2}
    assert events["train/gradient_norm"] == {5: 3.0}


def texts(folder):
    """Return {(tag, step): text} of the events in a folder."""
    return {
        (value.tag, event.step): tf.make_ndarray(value.tensor).item().decode()
        for event in _events(folder)
        for value in event.summary.value
    }


def test_settings_and_translations_are_texts(tmp_path, clock):
    log = _log(tmp_path, first_step=20)
    log.record_settings({"hidden_size": 512, "optimizer": "adam"})
    row = {"source": "a|b", "translation": "c\nd", "reference": "e"}
    log.validation_done(40, {}, [row])
    log.close()
    assert texts(tmp_path / "train") == {
        ("hparams", 20): "| name | value |\n| --- | --- |\n"
        "| hidden_size | 512 |\n| optimizer | adam |"
    }
    assert texts(tmp_path / "validation") == {
        ("translations", 40): "| source | translation | reference |\n"
        "| --- | --- | --- |\n| a\\|b | c d | e |"
    }


def test_log_without_terminal_is_lines(tmp_path, clock, capsys, monkeypatch):
    """With a known GPU they have its memory and the share of its peak."""
    monkeypatch.setattr(train_log, "peak_device_memory", lambda: 5 * 10**8)
    outcomes = [_outcome(1, 1, 1, 1)] * 3
    settings = {"first_step": 7, "last_step": 10, "peak_speed": 8.0}
    _train(tmp_path, clock, outcomes, **settings)
    shown = capsys.readouterr().err
    line = shown.splitlines()[-1]
    assert line.startswith("train: 10/10 100% [")
    assert (
        "loss 1.000, perplexity 2.718, lr 1.00e-02, gradient 1, 2 tokens/s, "
        "99% padding, 25% of peak, host 3.0 GB, device 0.5 GB, compilations 1"
    ) in line
    assert "\r" not in shown


def test_forecast_is_shown_after_a_few_timed_steps(tmp_path, clock, capsys):
    """One step compiles, then each takes half a second: 4 in an interval."""
    outcomes = [_outcome(1, 1, 1, 1)] * 13
    settings = {"last_step": 7_240, "validation_steps": 1_800}
    _train(tmp_path, clock, outcomes, first_step=40, **settings)
    shown = [
        line for line in capsys.readouterr().err.splitlines() if "take" in line
    ]
    assert shown == [
        "At the speed of the first steps, 7,200 steps take 1 h 0 min, and "
        "validations 15 min 0 s or more. Memory: host 3.0 GB."
    ]


def checker(policy="float32", newest="run/checkpoints/ckpt-1200"):
    return train_log.FiniteChecker(
        policy, lambda step: f"{step} sentences in 8 rows", lambda: newest
    )


def test_nan_loss_is_reported_with_step_batch_checkpoint_and_remedies():
    checked = checker("mixed_bfloat16")
    checked.check_step(1_233, 9.25, 1.0)
    with pytest.raises(errors.UserError) as caught:
        checked.check_step(1_234, math.nan, math.nan)
    text = str(caught.value)
    assert text.startswith("The loss of step 1,234 is nan; ")
    for fact in (
        "the step before was 9.25",
        "Its batch: 1234 sentences in 8 rows.",
        "run/checkpoints/ckpt-1200, is from before it",
        "learning_rate_constant",
        "learning_rate_warmup_steps",
        "clip_grad_norm",
        "--mixed_precision=float32",
        "--warm_start_from",
    ):
        assert fact in text


def test_infinite_loss_in_float32_is_reported_without_checkpoint():
    with pytest.raises(errors.UserError) as caught:
        checker(newest=None).check_step(1, math.inf, 1.0)
    text = str(caught.value)
    assert text.startswith("The loss of step 1 is inf. Its batch")
    assert "there is no checkpoint yet" in text
    assert "--mixed_precision" not in text


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_non_finite_gradient_stops_except_in_float16(norm):
    """Loss scaling skips gradients that overflow in float16."""
    for policy in ("float32", "mixed_bfloat16"):
        message = f"gradient of step 7 has the norm {norm}, with a loss of 2.5"
        with pytest.raises(errors.UserError, match=message):
            checker(policy).check_step(7, 2.5, norm)
    checker("mixed_float16").check_step(7, 2.5, norm)
    with pytest.raises(errors.UserError, match="loss of step 7 is nan"):
        checker("mixed_float16").check_step(7, math.nan, norm)


def test_fifty_skipped_updates_in_a_row_stop_float16():
    checked = checker("mixed_float16")
    for first in (1, 51):
        for number in range(first, first + 49):
            checked.check_step(number, 2.5, math.inf)
        if first == 1:
            checked.check_step(50, 2.5, 1.0)
    message = "The gradients of the 50 steps up to 100 are .*--mixed_precision"
    with pytest.raises(errors.UserError, match=message):
        checked.check_step(100, 2.5, math.nan)


@pytest.mark.parametrize(("replicas", "value"), [(1, math.nan), (2, -math.inf)])
def test_non_finite_weight_is_named(strategy_of, replicas, value):
    with strategy_of(replicas).scope():
        variables = [
            keras.Variable(3, dtype="int64", name="step", trainable=False),
            keras.Variable([1.0, 2.0], name="good"),
            keras.Variable([1.0, 2.0], name="bad"),
        ]
    checker().check_weights(3, variables)
    variables[2].assign([1.0, value])
    message = "update of step 3 left values in bad that are not finite"
    with pytest.raises(errors.UserError, match=message):
        checker().check_weights(3, variables)
