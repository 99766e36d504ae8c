"""Checks for non-finite numbers."""

import math

import keras
import pytest

from t2t_repro import errors
from t2t_repro.training import train_log


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
        for step in range(first, first + 49):
            checked.check_step(step, 2.5, math.inf)
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
