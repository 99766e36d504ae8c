"""Learning rates: golden numbers of all sets, and Keras's schedules."""

import dataclasses

import keras
import pytest
from cases import read_cases

from t2t_repro import errors, registry
from t2t_repro.io import arguments
from t2t_repro.training import schedules

UPDATES = (1, 100, 4_000, 8_000, 100_000)
# Literals of 7 digits are 5e-7 off, float32's products as much; the rates of
# update 100,000 and of its neighbours differ by 5e-6.
TOLERANCE = 2e-6
# Sets of the paper and of tensor2tensor, their learning rates at UPDATES, and
# their peak: computed independently, in 30 decimal places, from section 5.3 and
# tensor2tensor's learning_rate.py.
GOLDEN = read_cases("""
base transformer_base_v1 transformer_moe
  1.746928e-07 1.746928e-05 6.987712e-04 4.941059e-04 1.397542e-04 6.987712e-04
big big_enfr parsing table3_big table3_c_d1024
  1.235265e-07 1.235265e-05 4.941059e-04 3.493856e-04 9.882118e-05 4.941059e-04
table3_c_d256
  2.470529e-07 2.470529e-05 9.882118e-04 6.987712e-04 1.976424e-04 9.882118e-04
base_lion
  3.493856e-08 3.493856e-06 1.397542e-04 9.882118e-05 2.795085e-05 1.397542e-04
base_adafactor
  1.000000e-02 1.000000e-02 1.000000e-02 1.000000e-02 3.162293e-03 1.000000e-02
base_prenorm
  6.987712e-04 6.987712e-04 6.987712e-04 4.941368e-04 1.397549e-04 6.987712e-04
transformer_base_v2
  1.235265e-07 1.235265e-05 4.941059e-04 9.882118e-04 2.795085e-04 9.882118e-04
transformer_base_v3 transformer_base transformer_relative
  0.0 1.222912e-05 4.939824e-04 9.880882e-04 2.795099e-04 9.882118e-04
transformer_big transformer_big_enfr
  0.0 8.647294e-06 3.492983e-04 6.986839e-04 1.976433e-04 6.987712e-04
transformer_base_single_gpu
  0.0 4.891648e-06 1.975929e-04 3.952353e-04 3.162293e-04 7.905694e-04
transformer_big_single_gpu transformer_parsing_base
  0.0 3.057280e-06 1.234956e-04 2.470221e-04 1.976433e-04 4.941059e-04
transformer_parsing_big
  0.0 2.445824e-05 9.879647e-04 6.988149e-04 1.976433e-04 9.882118e-04
transformer_tiny
  0.0 2.445824e-05 9.879647e-04 1.976176e-03 5.590198e-04 1.976424e-03
transformer_small
  0.0 1.729459e-05 6.985966e-04 1.397368e-03 3.952867e-04 1.397542e-03
""")


@pytest.mark.parametrize(
    ("name", "numbers"),
    [(name, GOLDEN[names]) for names in GOLDEN for name in names.split()],
)
@pytest.mark.usefixtures("tiny_hparams")
def test_golden_learning_rates(name, numbers):
    *rates, peak = map(float, numbers.split())
    hparams = registry.build_hparams(name)
    actual = [float(schedules.learning_rate(hparams, step)) for step in UPDATES]
    assert actual == pytest.approx(rates, rel=TOLERANCE)
    highest = schedules.peak(hparams).rate
    assert highest == pytest.approx(peak, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "constant", "epoch"),
    [("convs2s", 50, 93_750), ("convs2s_iwslt", 200, 1_250)],
)
@pytest.mark.usefixtures("tiny_hparams")
def test_rate_of_convs2s_is_a_quarter_then_a_tenth_of_it_each_epoch(
    name, constant, epoch
):
    hparams = registry.build_hparams(name)
    for number, rate in enumerate((0.25, 0.025, 0.0025, 0.00025)):
        first = (constant + number - 1) * epoch + 2 if number else 1
        last = (constant + number) * epoch + 1
        for step in (first, last):
            found = float(schedules.learning_rate(hparams, step))
            assert found == pytest.approx(rate)
    assert hparams.train_steps == (constant + 3) * epoch


def test_schedule_factors_multiply_and_count_from_0(base):
    for schedule, at_1, at_26, at_401 in (
        ("constant", 3.0, 3.0, 3.0),
        ("linear_warmup", 0.0, 0.25, 1.0),
        ("rsqrt_decay", 0.1, 0.1, 0.05),
        ("rsqrt_hidden_size", 512**-0.5, 512**-0.5, 512**-0.5),
        ("constant*linear_warmup*rsqrt_decay", 0.0, 0.075, 0.15),
        ("rsqrt_normalized_decay", 1.0, 1.0, 0.5),
        ("linear_warmup * constant * cosdecay *", 0.0, 0.75, 1.5),
    ):
        hparams = dataclasses.replace(
            base,
            learning_rate_schedule=schedule,
            learning_rate_constant=3.0,
            learning_rate_warmup_steps=100,
            learning_rate_decay_steps=800,  # cos(pi / 2) = 0 at s = 400
        )
        for step, expected in ((1, at_1), (26, at_26), (401, at_401)):
            rate = schedules.learning_rate(hparams, step)
            assert keras.backend.standardize_dtype(rate.dtype) == "float32"
            assert float(rate) == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "train_steps", "rate", "step"),
    [
        ("tiny", None, 3e-3, 401),  # a warm-up from 0, of 400 steps
        ("tiny", 401, 3e-3, 401),
        ("tiny", 4, 3e-3 * 3 / 400, 4),
        ("tiny", 1, 0.0, 1),
        ("base", 100_000, 6.987712e-4, 4_000),  # counted from 1
        ("base", 100, 1.746928e-5, 100),
        ("base_prenorm", 100_000, 6.987712e-4, 1),  # no warm-up
        ("fine_tuning", None, 5e-5, 101),
    ],
)
@pytest.mark.usefixtures("tiny_hparams")
def test_peak_is_the_first_update_with_the_highest_rate(
    name, train_steps, rate, step
):
    """A run that ends during the warm-up never has the rate at its end."""
    peak = schedules.peak(registry.build_hparams(name), train_steps)
    assert peak.rate == pytest.approx(rate, rel=TOLERANCE)
    assert peak.step == step


def _with(base, name, arguments="", **changes):
    """Return `base` with a schedule, a rate of 0.5, 100 steps."""
    return dataclasses.replace(
        base,
        learning_rate_schedule=name,
        learning_rate_schedule_arguments=arguments,
        **{"learning_rate_constant": 0.5, "train_steps": 100} | changes,
    )


KERAS = {  # schedule, its arguments: rates of updates 1, 26 and 76
    "cosine_decay": (0.5, 0.4267767, 0.0732233),
    # A warm-up from 0 to the constant, and a decay to the last step.
    "cosine_decay warmup_steps=50": (0.0, 0.25, 0.25),
    # A warm-up that is longer than the run, whose peak is the last step.
    "cosine_decay warmup_steps=400:decay_steps=99": (0.0, 0.03125, 0.09375),
    "exponential_decay decay_rate=0.5:decay_steps=50:staircase=true": (
        *(0.5, 0.5, 0.25),
    ),
    "polynomial_decay end_learning_rate=0": (0.5, 0.375, 0.125),
    "inverse_time_decay decay_rate=4": (0.5, 0.25, 0.125),
    "cosine_decay_restarts first_decay_steps=50": (0.5, 0.25, 0.4267767),
    "piecewise_constant_decay boundaries=10/30:values=0.25/1/0.125": (
        *(0.25, 1.0, 0.125),
    ),
}


@pytest.mark.parametrize(("schedule", "rates"), KERAS.items())
def test_keras_schedules_have_their_rates_and_the_highest_as_peak(
    base, monkeypatch, schedule, rates
):
    hparams = _with(base, *schedule.split())
    for step, expected in zip((1, 26, 76), rates, strict=True):
        rate = schedules.learning_rate(hparams, step)
        assert keras.backend.standardize_dtype(rate.dtype) == "float32"
        assert float(rate) == pytest.approx(expected, rel=1e-5)
    schedule = schedules.build(hparams)
    every = [float(schedule(iterations)) for iterations in range(100)]
    for most in (1 << 20, 9):
        monkeypatch.setattr(schedules, "_MAX_STEPS", most)
        peak = schedules.peak(hparams)
        assert peak.rate == pytest.approx(max(every), rel=TOLERANCE)
        assert every[peak.step - 1] == pytest.approx(max(every), rel=TOLERANCE)


def test_every_schedule_of_keras_is_tested():
    library = keras.optimizers.schedules
    known = arguments.subclasses(library, library.LearningRateSchedule)
    assert {name.split()[0] for name in KERAS} == known.keys()


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("name", "arguments", "rates", "peak"),
    [
        # Rates of updates 1, 6, 41 and 91.
        ("trapezoid", "", (0.0, 0.25, 0.5, 0.25), 11),
        ("trapezoid", "cooldown=0.5", (0.0, 0.25, 0.5, 0.1), 11),
        ("halving", "every=40", (0.5, 0.5, 0.25, 0.125), 1),
    ],
)
def test_registered_schedule_has_its_rates(base, name, arguments, rates, peak):
    hparams = _with(base, name, arguments, learning_rate_warmup_steps=10)
    schedules.check(hparams)
    for step, rate in zip((1, 6, 41, 91), rates, strict=True):
        actual = float(schedules.learning_rate(hparams, step))
        assert actual == pytest.approx(rate, rel=1e-6)
    assert schedules.peak(hparams) == (0.5, peak)


@pytest.mark.usefixtures("toys")
def test_rate_of_several_numbers_is_refused(base):
    registry.schedules.register("pair")(lambda done, hparams: [done, done])
    with pytest.raises(errors.UserError, match="a rate is one number, not of"):
        schedules.check(_with(base, "pair"))


def test_rates_that_do_not_fit_the_steps_are_refused(base, registries):
    registries.schedules.register("falling")(lambda done, hparams: 8.0 - done)
    schedules.check(_with(base, "falling"), 9)
    schedules.check(base, 1)  # its first rate may be 0
    with pytest.raises(errors.UserError, match=r"of step 12 is -3\. .*fewer"):
        schedules.check(_with(base, "falling"), 12)
    too_late = f"warmup_steps={base.train_steps}"
    with pytest.raises(errors.UserError, match="leaves no step to the decay"):
        schedules.check(_with(base, "cosine_decay", too_late))


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("noam", "", False),
        ("cosine_decay", "", True),
        ("cosine_decay", "decay_steps=100", False),
        ("piecewise_constant_decay", "boundaries=5:values=1/0.5", False),
    ],
)
def test_schedules_that_end_with_the_training(base, name, arguments, expected):
    assert schedules.has_end(_with(base, name, arguments)) == expected
