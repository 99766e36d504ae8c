"""Progress: means over the steps between two looks, by a clock of its own."""

import itertools
import math

import pytest
import tensorflow as tf

from t2t_repro.training import loss, progress


class _Clock:
    """time.monotonic() of this test: moves when it is told to."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Stands in for the module `time` in progress.py."""
    clock = _Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def _sums(smoothed, plain, correct, tokens, slots=100):
    values = smoothed, plain, correct, tokens, slots
    return loss.Sums(*(tf.constant(float(value)) for value in values))


def _train(folder, clock, all_sums, seconds=0.5, first_step=0, last_step=None):
    show = progress.Progress(
        folder,
        first_step,
        last_step or first_step + len(all_sums),
        lambda step: step / 1000,
    )
    for sums in all_sums:
        clock.now += seconds
        show.step_done(sums)
    show.close()


def test_figures_by_hand(tmp_path, clock, read_events):
    """The first step, which compiles, is left out; then 3 steps in 1.5 s."""
    _train(
        tmp_path,
        clock,
        [
            _sums(900, 900, 900, 900),
            _sums(10, 5, 4, 10),
            _sums(20, 10, 6, 10),
            _sums(60, 30, 10, 20, slots=50),
        ],
    )
    events = read_events(tmp_path)
    expected = {
        "loss": 90 / 40,
        "perplexity": math.exp(45 / 40),
        "accuracy": 20 / 40,
        "padding": 1 - 40 / 250,
        "learning_rate": 0.004,
        "tokens_per_second": 40 / 1.5,
        "steps_per_second": 3 / 1.5,
    }
    assert events.keys() == {f"train/{name}" for name in expected}
    for name, value in expected.items():
        assert events[f"train/{name}"] == {4: pytest.approx(value)}


def test_looks_every_two_seconds_and_at_the_end(tmp_path, clock, read_events):
    all_sums = [_sums(i, 1, 1, 1) for i in range(1, 13)]
    _train(tmp_path, clock, all_sums, first_step=40)
    losses = read_events(tmp_path)["train/loss"]
    # Steps 42 to 45 take two seconds, so do 46 to 49; 52 is the last.
    assert losses == {
        45: pytest.approx((2 + 3 + 4 + 5) / 4),
        49: pytest.approx((6 + 7 + 8 + 9) / 4),
        52: pytest.approx((10 + 11 + 12) / 3),
    }


def test_values_are_fetched_only_when_shown(tmp_path, clock):
    """Fetching waits for the device, which then waits for the host."""
    fetched = itertools.count()
    show = progress.Progress(tmp_path, 0, 100, lambda step: 0.0)
    show._show = lambda: next(fetched)
    for _ in range(4):  # 1.2 seconds after the first
        clock.now += 0.4
        show.step_done(_sums(1, 1, 1, 1))
    assert next(fetched) == 0
    clock.now += 2
    show.step_done(_sums(1, 1, 1, 1))
    assert next(fetched) == 2
    show.close()


def test_a_diverging_training_is_shown(tmp_path, clock, read_events):
    """e^1,000,000 is beyond float32, which the events hold."""
    _train(tmp_path, clock, [_sums(1, 1, 0, 1), _sums(1e6, 1e6, 0, 1)])
    perplexity = read_events(tmp_path)["train/perplexity"][2]
    assert 1e30 < perplexity < math.inf


def test_one_step_alone_has_no_figures(tmp_path, clock, read_events):
    _train(tmp_path, clock, [_sums(1, 1, 1, 1)])
    assert read_events(tmp_path) == {}


def test_validation(tmp_path, clock, read_events, capsys):
    show = progress.Progress(tmp_path, 0, 5_000, lambda step: 0.0)
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


def test_without_a_terminal_there_are_lines(tmp_path, clock, capsys):
    _train(tmp_path, clock, [_sums(1, 1, 1, 1)] * 3, first_step=7, last_step=10)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("train: 10/10 100% [")
    assert "2 tokens/s, 99% padding, loss 1.000, lr 1.00e-02" in lines[-1]
    assert not any("\r" in line for line in lines)


def test_on_a_terminal_there_is_a_bar(tmp_path, clock, capsys, monkeypatch):
    monkeypatch.setattr(progress.progress, "_has_width", lambda: True)
    _train(tmp_path, clock, [_sums(1, 1, 1, 1)] * 3)
    shown = capsys.readouterr().err
    assert "\rtrain: 100%" in shown
    assert "loss 1.000" in shown
