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
once, with the arguments, and its instance is called. Several losses, joined by
+, are added.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf
from keras import ops

from t2t_repro import errors, registry
from t2t_repro.data.batches import DENOMINATORS
from t2t_repro.data.corpus import ALIGNMENTS
from t2t_repro.decoding.translation import layer_index
from t2t_repro.io import arguments
from t2t_repro.layers.randomness import Rng
from t2t_repro.metrics.metric import RESERVED
from t2t_repro.models.seq2seq import AuxiliaryLoss
from t2t_repro.runtime.keras_compat import Tensor
from t2t_repro.training.cross_entropy import Sums, smoothed_cross_entropy

CROSS_ENTROPY = "cross_entropy"
_SETTING = "hparam loss"
_GIVEN = 4  # arguments of a loss: batch, states, output layer, rng
# Figures of training and of validations, which losses must not replace.
_FIGURES = {
    *RESERVED,
    *"loss_name loss_minus_smoothing_constant padding gradient_norm "
    "learning_rate updates_left_out tokens_per_second steps_per_second "
    "share_of_peak host_memory_gb device_memory_gb compilations".split(),
}
# Takes a batch's row features with "cross_attention", the attention weights
# [B, H, T, L] of each decoder layer; states [B, T, E], the model's output layer
# and the state of random numbers (None in validations). It returns {name:
# (loss, denominator)}.
Loss = Callable[[Mapping[str, Tensor], Tensor, Any, Rng | None], Any]


def build(text: str) -> tuple[Loss | None, ...]:
    """Return the losses of "name:key=value+name"; None: cross-entropy.

    Raises:
        UserError: a name is unknown, or an argument wrong or missing.
    """
    return tuple(map(_build_one, arguments.split(text)))


def _build_one(text):
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
    own: Iterable[Loss | None],
    usual: Sums,
    batch: Mapping[str, Any],
    states: Tensor,
    output_layer: Any,
    rng: Rng | None,
) -> list[AuxiliaryLoss]:
    """Return the terms of losses, sums over a batch.

    Cross-entropy is `usual`; the other arguments are those of a Loss.

    Raises:
        UserError: a loss returns no such terms, or two return the same.
    """
    found: dict[str, AuxiliaryLoss] = {}
    for loss in own:
        of_loss = (
            _terms(loss(batch, states, output_layer, rng), batch)
            if loss
            else [AuxiliaryLoss(CROSS_ENTROPY, usual.smoothed, "target_tokens")]
        )
        for term in of_loss:
            if term.name in found:
                raise errors.UserError(
                    f"Two losses of {_SETTING} have a term {term.name!r}. "
                    "Their sum would hide one: omit one of them."
                )
            found[term.name] = term
    return list(found.values())


def _terms(returned, batch):
    """Return the sums over a batch of what a loss returned."""
    try:
        found = [
            AuxiliaryLoss(name, _sum(value, batch), per)
            for name, (value, per) in returned.items()
        ]
        if not found:
            raise ValueError("no loss")
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
        UserError: a loss names another denominator, or has the name of
            another figure.
    """
    result: dict[str, tf.Tensor] = {}
    for loss in losses:
        if loss.name in _FIGURES or loss.name in registry.metrics:
            raise errors.UserError(
                f"A loss must not have the name {loss.name!r}, which is that "
                "of a metric or another figure. Rename it."
            )
        if loss.per not in counts:
            raise errors.UserError(
                f"The loss {loss.name!r} must be per one of {tuple(counts)}; "
                f"got {loss.per!r}."
            )
        result[loss.name] = tf.cast(loss.total, tf.float32) / counts[loss.per]
    return result


class GuidedAlignment:
    """Cross-entropy of a head's attention against given word alignments.

    Garg et al. 2019 (arXiv 1909.02074), section 4.1: a target subword that is
    linked to n source subwords has the distribution 1 / n over them, and the
    attention of one head of the decoder approaches it. Unlinked subwords do
    not count. The decoder sees earlier targets only, as it does in a search.
    """

    def __init__(self, weight: float = 0.05, layer: int = 0, head: int = 1):
        """Choose layer and head, both from 1; layer 0: the last but one."""
        if weight <= 0 or layer < 0 or head < 1:
            raise ValueError(
                "weight must be above 0, layer at least 0 and head at least "
                f"1; got {weight}, {layer} and {head}"
            )
        self.weight, self.layer, self.head = weight, layer or None, head

    def __call__(
        self,
        batch: Mapping[str, Any],
        states: Tensor,
        output_layer: Any,
        rng: Rng | None,
    ) -> dict[str, tuple[Tensor, str]]:
        """Return {"alignment": the weighted loss of each token [B, T]}."""
        layers = batch["cross_attention"]
        if not layers:
            raise errors.UserError(
                "guided_alignment reads the attention of a Transformer, which "
                "this model, or --recompute_grad, does not keep. Choose "
                "another model, or omit --recompute_grad."
            )
        if ALIGNMENTS not in batch:
            raise errors.UserError(
                "guided_alignment needs batches with word alignments. Make "
                "the data with --problem_args=alignments=…, and omit "
                "bpe_dropout and unigram_alpha, which change the subwords."
            )
        setting = "layer of guided_alignment"
        weights = layers[layer_index(self.layer, len(layers), setting)]
        num_heads = weights.shape[1]
        if self.head > num_heads:
            raise errors.UserError(
                f"head of guided_alignment must be from 1 to {num_heads}; got "
                f"{self.head}."
            )
        links = ops.cast(batch[ALIGNMENTS], "float32")
        counts = ops.sum(links, axis=-1, keepdims=True)
        shares = links / ops.maximum(counts, 1.0)
        # A weight that is 0 in float32 has no gradient.
        logs = ops.log(ops.maximum(weights[:, self.head - 1], 1e-30))
        loss = -self.weight * ops.sum(shares * logs, axis=-1)
        return {"alignment": (loss, "target_tokens")}
