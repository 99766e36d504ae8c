"""Progress: means over the steps between two looks, by a clock of its own."""

import itertools
import math
import types

import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.training import anomalies, cross_entropy, step, train_log


@pytest.fixture
def clock(monkeypatch):
    """time.monotonic() of progress.py: moves when it is told to."""
    clock = types.SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(train_log, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def _memory(monkeypatch):
    """3 GB are in use, and there is no GPU."""
    monkeypatch.setattr(train_log.utilization, "host_memory", lambda: 3 * 10**9)
    monkeypatch.setattr(train_log.utilization, "device_memory", lambda: None)


def _outcome(smoothed, plain, correct, tokens, slots=100, norm=1.0):
    values = smoothed, plain, correct, tokens, slots, norm
    *sums, norm = (tf.constant(float(value)) for value in values)
    return step.Outcome(cross_entropy.Sums(*sums), norm)


def _progress(folder, first_step=0, last_step=1_000, full_speed=None):
    guard = anomalies.FiniteChecker("float32", "batch {}".format, lambda: None)
    return train_log.TrainLog(
        folder,
        first_step,
        last_step,
        lambda step: step / 1000,
        guard,
        full_speed,
    )


def _train(
    folder, clock, outcomes, first_step=0, last_step=None, full_speed=None
):
    """Steps of half a second."""
    last_step = last_step or first_step + len(outcomes)
    show = _progress(folder, first_step, last_step, full_speed)
    for outcome in outcomes:
        clock.now += 0.5
        show.step_done(outcome, compilations=1)
    show.close()


def test_figures_by_hand(tmp_path, clock, read_events, monkeypatch):
    """The first step, which compiles, is left out; then 3 steps in 1.5 s."""
    monkeypatch.setattr(
        train_log.utilization, "device_memory", lambda: 5 * 10**8
    )
    _train(
        tmp_path,
        clock,
        [
            _outcome(900, 900, 900, 900),
            _outcome(10, 5, 4, 10, norm=1.0),
            _outcome(20, 10, 6, 10, norm=3.0),
            _outcome(60, 30, 10, 20, slots=50, norm=8.0),
        ],
        full_speed=80.0,
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


def test_looks_every_two_seconds_and_at_the_end(tmp_path, clock, read_events):
    outcomes = [_outcome(i, 1, 1, 1) for i in range(1, 13)]
    _train(tmp_path, clock, outcomes, first_step=40)
    losses = read_events(tmp_path)["train/loss"]
    # Steps 42 to 45 take two seconds, so do 46 to 49; 52 is the last.
    assert losses == {
        45: pytest.approx((2 + 3 + 4 + 5) / 4),
        49: pytest.approx((6 + 7 + 8 + 9) / 4),
        52: pytest.approx((10 + 11 + 12) / 3),
    }


def test_values_are_fetched_only_when_shown(tmp_path, clock, monkeypatch):
    """Fetching waits for the device, which then waits for the host."""
    fetched = itertools.count()
    show = _progress(tmp_path)
    monkeypatch.setattr(show, "check", lambda: next(fetched))
    monkeypatch.setattr(show, "_show", lambda: next(fetched))
    for _ in range(4):  # the first, and then 1.2 seconds
        clock.now += 0.4
        show.step_done(_outcome(1, 1, 1, 1), 1)
    assert next(fetched) == 1
    clock.now += 2
    show.step_done(_outcome(1, 1, 1, 1), 1)
    assert next(fetched) == 4
    show.close()


@pytest.mark.parametrize("compiled", [(3,), (2, 4), (2, 3, 4)])
def test_steps_that_compile_are_in_no_rate(
    tmp_path, clock, read_events, compiled
):
    """They take 9 seconds instead of half a one; their loss counts."""
    show = _progress(tmp_path, last_step=4)
    show.step_done(_outcome(9, 9, 9, 9), 1)
    for number in range(2, 5):
        clock.now += 9.0 if number in compiled else 0.5
        compilations = 1 + sum(other <= number for other in compiled)
        show.step_done(_outcome(number, 1, 1, 10 * number), compilations)
    show.close()
    events = read_events(tmp_path)
    assert events["train/loss"] == {4: pytest.approx(9 / 90)}
    timed = [number for number in (2, 3, 4) if number not in compiled]
    speed = timed and {4: pytest.approx(10 * sum(timed) / 0.5 / len(timed))}
    assert events.get("train/tokens_per_second", []) == speed
    assert events.get("train/steps_per_second", []) == (timed and {4: 2.0})


@pytest.fixture
def lagging(monkeypatch, clock):
    """The device: whoever fetches from it waits for its `seconds`."""
    real, device = tf.stack, types.SimpleNamespace(seconds=6.0)

    def wait(values):
        clock.now += device.seconds
        return real(values)

    monkeypatch.setattr(train_log.tf, "stack", wait)
    return device


def test_waiting_for_the_device_is_time_of_the_steps(
    tmp_path, clock, read_events, lagging
):
    """The host is 6 seconds ahead: 4 steps have taken 8, not 2."""
    show = _progress(tmp_path)
    for _ in range(5):
        clock.now += 0.5
        show.step_done(_outcome(1, 1, 1, 1), 1)
    show.close()
    assert read_events(tmp_path)["train/steps_per_second"] == {5: 4 / 8}


def test_checks_in_between_lose_nothing(tmp_path, clock, read_events):
    """Before a checkpoint, say; and a pause is no time of the steps."""
    show = _progress(tmp_path)
    show.step_done(_outcome(9, 9, 9, 9), 1)
    for number in range(1, 5):
        clock.now += 0.5
        show.step_done(_outcome(number, 1, 1, 1), 1)
        if number == 2:
            show.check()
            show.check()
            with show.pause():
                clock.now += 100
    show.close()
    events = read_events(tmp_path)
    assert events["train/loss"] == {5: (1 + 2 + 3 + 4) / 4}
    assert events["train/steps_per_second"] == {5: 4 / 2}


def test_the_first_bad_step_is_named(tmp_path, clock):
    """However many steps later it is fetched, and with no figure shown."""
    show = _progress(tmp_path, first_step=40)
    for mean in (5.0, 5.0, math.nan, math.nan):
        show.step_done(_outcome(mean, mean, 1, 2), 1)
    message = "loss of step 43 is nan; the step before had 2.5.*: batch 43"
    with pytest.raises(errors.UserError, match=message):
        show.check()
    show.close()


@pytest.mark.parametrize("count", [2, 16, 17, 18, 40])
def test_any_number_is_fetched_whole(tmp_path, clock, read_events, count):
    """Blocks of 16, of which the last is filled up."""
    show = _progress(tmp_path, last_step=count)
    for number in range(1, count + 1):
        clock.now += 0.01
        show.step_done(_outcome(number, 1, 1, 1), 1)
    show.close()
    mean = pytest.approx((2 + count) / 2)  # of 2 … count
    assert read_events(tmp_path)["train/loss"][count] == mean


def test_the_first_step_is_checked_at_once(tmp_path, clock):
    show = _progress(tmp_path)
    with pytest.raises(errors.UserError, match="loss of step 1 is inf"):
        show.step_done(_outcome(math.inf, 1, 1, 1), 1)
    show.close()


def test_a_slow_step_is_told(tmp_path, clock, capsys):
    """Not the one that compiles, nor one around a pause."""
    show = _progress(tmp_path)
    for number in range(1, 31):
        clock.now += {12: 30.0, 15: 20.0, 25: 9.0}.get(number, 0.25)
        show.step_done(_outcome(1, 1, 1, 1), compilations=1 + (number >= 15))
        if number == 20:
            with show.pause():
                clock.now += 50
    clock.now += 5
    show.close()
    shown = capsys.readouterr().err
    assert shown.count("the median is 0.25 s\n") == 2
    assert "step 12 took 30.0 s;" in shown and "step 25 took 9.0 s;" in shown


def test_a_wait_is_the_work_of_all_steps_before(
    tmp_path, clock, capsys, lagging
):
    """Of 8: each takes 0.25 and 6 / 8 seconds, but at last 0.25 and 60 / 8."""
    show = _progress(tmp_path)
    for number in range(1, 50):
        lagging.seconds = 60.0 if number == 49 else 6.0
        clock.now += 0.25
        show.step_done(_outcome(1, 1, 1, 1), 1)
    show.close()
    shown = capsys.readouterr().err
    assert shown.count("median") == 1
    assert "42 took 7.8 s; the median is 1 s (8 slow steps since 42)" in shown


def test_a_diverging_training_is_shown(tmp_path, clock, read_events):
    """e^1,000,000 is beyond float32, which the events hold."""
    _train(tmp_path, clock, [_outcome(1, 1, 0, 1), _outcome(1e6, 1e6, 0, 1)])
    perplexity = read_events(tmp_path)["train/perplexity"][2]
    assert 1e30 < perplexity < math.inf


def test_one_step_alone_has_no_figures(tmp_path, clock, read_events):
    _train(tmp_path, clock, [_outcome(1, 1, 1, 1)])
    assert read_events(tmp_path) == {}


def test_validation(tmp_path, clock, read_events, capsys):
    show = _progress(tmp_path)
    figures = {"loss": 2.5, "loss_minus_constant": 1.25, "accuracy": 0.75}
    show.validation_done(1_200, figures)
    show.close()
    assert read_events(tmp_path) == {
        f"validation/{name}": {1_200: value} for name, value in figures.items()
    }
    assert (
        "step 1,200: validation  loss 2.5000  loss minus constant 1.2500  "
        "accuracy 0.7500\n"
    ) in capsys.readouterr().err


def test_without_a_terminal_there_are_lines(
    tmp_path, clock, capsys, monkeypatch
):
    """With share and memory of a GPU where there is a known one."""
    outcomes = [_outcome(1, 1, 1, 1)] * 3
    figures = (
        "loss 1.000, perplexity 2.718, lr 1.00e-02, gradient 1, 2 tokens/s, "
        "99% padding, {}host 3.0 GB, {}compilations 1"
    )
    _train(tmp_path, clock, outcomes, 7, 10)
    plain = capsys.readouterr().err
    monkeypatch.setattr(
        train_log.utilization, "device_memory", lambda: 5 * 10**8
    )
    _train(tmp_path, clock, outcomes, 7, 10, full_speed=8.0)
    for shown, extra in (
        (plain, ("", "")),
        (capsys.readouterr().err, ("25% of peak, ", "device 0.5 GB, ")),
    ):
        line = shown.splitlines()[-1]
        assert line.startswith("train: 10/10 100% [")
        assert figures.format(*extra) in line
        assert "\r" not in shown


def test_on_a_terminal_there_is_a_bar(tmp_path, clock, capsys, monkeypatch):
    monkeypatch.setattr(train_log.progress, "_has_width", lambda: True)
    _train(tmp_path, clock, [_outcome(1, 1, 1, 1)] * 3)
    shown = capsys.readouterr().err
    assert "\rtrain: 100%" in shown
    assert "loss 1.000" in shown
