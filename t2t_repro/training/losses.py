"""Losses: cross-entropy, and registered ones in its place.

@losses.register("focal")
def focal(batch, states, output_layer, rng, gamma=2.0):
    \"\"\"Weight each token by (1 - p)^gamma.\"\"\"
    logits = output_layer.logits(states)
    log_probs = ops.log_softmax(logits)
    log_p = ops.take_along_axis(log_probs, batch["targets"][..., None], -1)
    loss = -((1 - ops.exp(log_p)) ** gamma) * log_p
    return {"focal": (loss[..., 0], "target_tokens")}

The hparam `loss` names it, with arguments: focal:gamma=1.5. A class is built
once, with the arguments, and its instance is called.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from t2t_repro import errors, registry
from t2t_repro.data.batches import DENOMINATORS
from t2t_repro.io import arguments
from t2t_repro.layers.randomness import Rng
from t2t_repro.models.seq2seq import AuxiliaryLoss
from t2t_repro.runtime.keras_compat import Tensor
from t2t_repro.training.cross_entropy import Sums, smoothed_cross_entropy

CROSS_ENTROPY = "cross_entropy"
_SETTING = "hparam loss"
_GIVEN = 4  # arguments of a loss: batch, states, output layer, rng
# Figures of training and of validations, which terms must not replace.
_FIGURES = frozenset(
    "loss perplexity accuracy padding gradient_norm learning_rate".split()
)
# Takes a batch's row features, states [B, T, E], the model's output layer and
# the state of random numbers (None in validations); returns {name: (loss,
# denominator)}.
Loss = Callable[[Mapping[str, Tensor], Tensor, Any, Rng | None], Any]


def build(text: str) -> Loss | None:
    """Return the loss of "name:key=value"; None: cross-entropy.

    Raises:
        UserError: the name is unknown, or an argument wrong or missing.
    """
    name, _, values = text.partition(":")
    definition = registry.losses[name].value
    if name == CROSS_ENTROPY:
        if values:
            raise errors.UserError(
                f"The loss {CROSS_ENTROPY} takes no arguments; got "
                f"{_SETTING}={text}. The hparam label_smoothing smooths it."
            )
        return None
    if not inspect.isclass(definition):
        return arguments.bind(
            definition, values, f"{_SETTING}={text}", num_given=_GIVEN
        )
    built = registry.losses.construct(text, _SETTING)
    if not callable(built):
        raise errors.UserError(
            f"The loss {name!r} must be a function of (batch, states, "
            "output_layer, rng), or a class whose instances are called with "
            f"these; instances of {definition.__qualname__} cannot be called."
        )
    return built


def cross_entropy(
    batch: Mapping[str, Tensor],
    states: Tensor,
    output_layer: Any,
    label_smoothing: float = 0.0,
    num_chunks: int = 1,
    xla: bool = False,
) -> Sums:
    """Sum the label-smoothed cross-entropy over a batch.

    A loss may add to `smoothed`, a sum over target tokens. The output layer has
    `weight` and `bias`; other arguments are smoothed_cross_entropy()'s.
    """
    weights = [tf.convert_to_tensor(output_layer.weight)]
    if output_layer.bias is not None:
        weights.append(tf.convert_to_tensor(output_layer.bias.value))
    return smoothed_cross_entropy(
        states,
        weights,
        batch["targets"],
        batch["targets_segment"],
        label_smoothing,
        num_chunks,
        xla,
    )


def terms(
    loss: Loss,
    batch: Mapping[str, Tensor],
    states: Tensor,
    output_layer: Any,
    rng: Rng | None,
) -> list[AuxiliaryLoss]:
    """Return the terms of a registered loss, sums over a batch.

    Raises:
        UserError: the loss returns no such terms.
    """
    returned = loss(batch, states, output_layer, rng)
    try:
        found = [
            AuxiliaryLoss(name, _sum(value, batch), per)
            for name, (value, per) in returned.items()
        ]
        if not found or _FIGURES & returned.keys():
            raise ValueError(f"names must not be in {sorted(_FIGURES)}")
        return found
    except (AttributeError, TypeError, ValueError) as error:
        raise errors.UserError(
            "A loss must return {name: (loss, denominator)}, such as "
            '{"focal": (x, "target_tokens")}, where the loss is a number, a '
            "sum over the batch, or has the shape [B, T] of the targets, and "
            f"the denominator is one of {', '.join(DENOMINATORS)}; got "
            f"{str(returned):.200} ({error})."
        ) from error


def _sum(value, batch):
    """Return [] float32; losses of tokens [B, T] count where one is real."""
    value = tf.cast(value, tf.float32)
    if value.shape.rank == 2:
        is_real = tf.convert_to_tensor(batch["targets_segment"]) > 0
        value.shape.assert_is_compatible_with(is_real.shape)
        return tf.reduce_sum(tf.where(is_real, value, 0.0))
    if value.shape.rank:
        raise ValueError(f"the shape {value.shape}")
    return value


def divided(
    losses: Iterable[AuxiliaryLoss], counts: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """Return {name: [] float32}, sums divided by the counts of a whole batch.

    Raises:
        UserError: a loss names another denominator.
    """
    result = {}
    for loss in losses:
        if loss.per not in counts:
            raise errors.UserError(
                f"The loss {loss.name!r} must be per one of {tuple(counts)}; "
                f"got {loss.per!r}."
            )
        result[loss.name] = tf.cast(loss.total, tf.float32) / counts[loss.per]
    return result
