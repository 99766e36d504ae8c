"""What goes wrong is noticed: bad numbers, slow steps, compilations."""

import math

import keras
import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.training import anomalies


def _guard(policy="float32", newest="run/checkpoints/ckpt-1200"):
    return anomalies.FiniteChecker(
        policy, lambda step: f"{step} sentences in 8 rows", lambda: newest
    )


def test_a_bad_loss_says_what_where_and_what_to_try():
    guard = _guard("mixed_bfloat16")
    guard.check_step(1_233, 9.25, 1.0)
    with pytest.raises(errors.UserError) as caught:
        guard.check_step(1_234, math.nan, math.nan)
    assert str(caught.value) == (
        "The loss of step 1,234 is nan; the step before had 9.25. Its batch: "
        "1234 sentences in 8 rows. Nothing of it is saved: the newest "
        "checkpoint, run/checkpoints/ckpt-1200, is from before it. Try a lower "
        "learning rate (learning_rate_constant), a longer warm-up "
        "(learning_rate_warmup_steps), --mixed_precision=float32, or clipped "
        "gradients (clip_grad_norm), in another --output_dir; "
        "--warm_start_from takes the weights of a checkpoint along."
    )


def test_in_float32_and_before_any_checkpoint():
    with pytest.raises(errors.UserError) as caught:
        _guard(newest=None).check_step(1, math.inf, 1.0)
    text = str(caught.value)
    assert text.startswith("The loss of step 1 is inf. Its batch")
    assert "there is no checkpoint yet" in text
    assert "--mixed_precision" not in text


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_bad_gradient(norm):
    """float16 has loss scaling, which leaves out what overflows."""
    for policy in ("float32", "mixed_bfloat16"):
        message = f"gradient of step 7 has the norm {norm}, with a loss of 2.5"
        with pytest.raises(errors.UserError, match=message):
            _guard(policy).check_step(7, 2.5, norm)
    _guard("mixed_float16").check_step(7, 2.5, norm)
    with pytest.raises(errors.UserError, match="loss of step 7 is nan"):
        _guard("mixed_float16").check_step(7, math.nan, norm)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_bad_weight_is_named(strategy_of, replicas, value):
    with strategy_of(replicas).scope():
        variables = [
            keras.Variable(3, dtype="int64", name="step", trainable=False),
            keras.Variable([1.0, 2.0], name="good"),
            keras.Variable([1.0, 2.0], name="bad"),
        ]
    _guard().check_weights(3, variables)
    variables[2].assign([1.0, value])
    message = "update of step 3 left values in bad that are not finite"
    with pytest.raises(errors.UserError, match=message):
        _guard().check_weights(3, variables)


def _judge(slow, seconds, first=1, now=0.0):
    durations = dict(enumerate(seconds, first))
    return slow.add(durations, now)


def test_too_few_steps_have_no_median():
    assert _judge(anomalies.SlowStepDetector(), [0.5] * 8 + [50.0]) is None
    line = _judge(anomalies.SlowStepDetector(), [0.5] * 9 + [50.0])
    assert line == "step 10 took 50.0 s; the median is 0.5 s"


@pytest.mark.parametrize(
    ("usual", "seconds", "told"),
    [
        (2.0, 8.0, False),  # four times
        (2.0, 8.1, True),
        (0.01, 1.0, False),  # a hundred times, but not a second more
        (0.01, 1.02, True),
    ],
)
def test_far_slower(usual, seconds, told):
    line = _judge(anomalies.SlowStepDetector(), [usual] * 20 + [seconds])
    assert bool(line) is told


def test_a_line_a_minute_tells_of_all():
    slow = anomalies.SlowStepDetector()
    assert _judge(slow, [1.0] * 20 + [9.0], now=100.0)
    assert _judge(slow, [1.0, 7.0], first=22, now=110.0) is None
    assert _judge(slow, [1.0, 8.0, 6.0], first=24, now=159.0) is None
    assert _judge(slow, [1.0], first=27, now=160.0) == (
        "step 25 took 8.0 s; the median is 1 s (3 slow steps since 23)"
    )
    assert _judge(slow, [1.0], first=28, now=300.0) is None


def test_what_stays_slow_is_the_new_pace():
    """After 51 of 100 steps the median is the new one."""
    slow = anomalies.SlowStepDetector()
    _judge(slow, [1.0] * 100)
    assert _judge(slow, [10.0], 101, now=0.0)
    _judge(slow, [10.0] * 50, 102, now=1.0)
    assert _judge(slow, [10.0] * 10, 152, now=122.0) is None


def _count(xla, shapes, step=None):
    """Compilations and surprises after each step on batches of `shapes`."""
    function = step or tf.function(
        lambda batch: tf.reduce_sum(batch["targets"])
    )
    counted = anomalies.CountedStep(function, xla)
    for shape in shapes:
        total = counted({"targets": tf.ones(shape, tf.int32)})
        assert total == tf.reduce_prod(shape)
        yield counted.compilations, counted.retrace_notice


SHAPES = [(1, 1, 2, 3), (1, 1, 2, 3), (1, 1, 4, 5), (1, 1, 4, 5), (1, 1, 2, 3)]


@pytest.mark.parametrize("xla", [True, False])
def test_each_shape_is_traced_once(xla):
    assert list(_count(xla, SHAPES)) == [(n, None) for n in (1, 1, 2, 2, 2)]


@pytest.mark.parametrize(
    ("xla", "counts"), [(True, (1, 2, 3, 3)), (False, (1, 2, 2, 2))]
)
def test_xla_compiles_each_shape_of_one_graph(xla, counts):
    """The second shape makes a graph of any shape, which serves the third."""
    relaxed = tf.function(
        lambda batch: tf.reduce_sum(batch["targets"]), reduce_retracing=True
    )
    shapes = [(1, 1, 2, 3), (1, 1, 4, 5), (1, 1, 6, 7), (1, 1, 2, 3)]
    found = list(_count(xla, shapes, relaxed))
    assert found == [(count, None) for count in counts]


def test_a_known_shape_that_is_traced_again_is_a_surprise():
    """Here by a Python number that is another at each call."""
    numbers = iter(range(10))
    traced = tf.function(
        lambda batch, number: tf.reduce_sum(batch["targets"]) + 0 * number
    )

    def step(batch):
        return traced(batch, next(numbers))

    step.experimental_get_tracing_count = traced.experimental_get_tracing_count
    assert list(_count(False, SHAPES[:2], step)) == [
        (1, None),
        (
            2,
            "compiled anew (number 2) for parts of 1 x 1 x 2 x 3, "
            "a known shape",
        ),
    ]
