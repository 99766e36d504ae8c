"""Losses beside that of docs/hparams.md, and what is none."""

from keras import ops

from t2t_repro.layers import randomness
from t2t_repro.registry import losses
from t2t_repro.training.losses import cross_entropy


@losses.register("noisy")
class Noisy:
    """Cross-entropy, and noisy squares of states for each sentence."""

    def __init__(self, weight: float):
        self.weight = weight

    def __call__(self, batch, states, output_layer, rng):
        squares = ops.mean(states**2, axis=-1)
        if rng is not None:
            stream = randomness.stream_id("noisy")
            noise = randomness.uniform(rng, stream, ops.shape(squares))
            squares = squares * ops.cast(noise, squares.dtype)
        sums = cross_entropy(batch, states, output_layer, 0.2)
        return {
            "smoothed": (sums.smoothed, "target_tokens"),
            "squares": (self.weight * squares, "sentences"),
        }


@losses.register("no_call")
class NoCall:
    """Loss that cannot be called."""


@losses.register("too_few")
def too_few(batch, states):
    """Return a loss without the output layer."""


@losses.register("returned")
def returned(batch, states, output_layer, rng, kind: str):
    """Return what is not a loss."""
    total = ops.sum(states)
    return {
        "number": total,
        "empty": {},
        "figure": {"perplexity": (total, "target_tokens")},
        "denominator": {"other": (total, "words")},
        "states": {"other": (states, "target_tokens")},
        "columns": {"other": (states[:, :1, 0], "target_tokens")},
    }[kind]
