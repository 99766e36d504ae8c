"""The layer types of Table 1: how each is built, and what it computes.

Recurrent and convolutional layers are Keras's own; self-attention is ours, in
heads of 64 as in the paper. Each maps [1, n, d] to [1, n, d]. Operations are
multiplications and additions, projections among them, which the paper's
formulas of self-attention leave out: n d^2 beside n^2 d.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops

from t2t_repro.layers import attention, masks

KERNEL = 3  # k
NEIGHBOURHOOD = 32  # r: a position sees |i - j| < r
HEAD = 64  # d_k = d_v: section 3.2.2


class LayerType(NamedTuple):
    """A row of Table 1."""

    complexity: str  # per layer, as the paper has it
    exponents: tuple[float, float]  # of n and d in it, where they are large
    sequential: str  # operations that must follow one another
    path: str  # longest between two positions
    build: Callable  # d -> a function of x [1, n, d]
    operations: Callable  # n, d -> how many


def attention_layer(d):
    """Ours, d wide."""
    heads = max(1, d // HEAD)
    return attention.MultiHeadAttention(d, heads, d, d, "dot_product", 0.0)


def self_attention(d):
    """Every position sees every other."""
    layer = attention_layer(d)
    return lambda x: layer(x, ops.ones((1, 1, 1, 1), "bool"))[0]


def restricted_self_attention(d, reach=NEIGHBOURHOOD):
    """A position sees |i - j| < reach, and only that is computed.

    Blocks of `reach` queries see their own block of keys and the two beside
    it. (The model's restricted_attention masks the whole square instead.)
    """
    layer = attention_layer(d)

    def call(x):  # [1, n, d]
        n = x.shape[1]
        blocks = -(-n // reach)
        rest = blocks * reach - n
        queries = ops.pad(x, ((0, 0), (0, rest), (0, 0)))
        queries = ops.reshape(queries, (blocks, reach, d))
        # Block i of the padded keys is block i - 1 of the queries.
        keys = ops.pad(x, ((0, 0), (reach, rest + reach), (0, 0)))
        keys = ops.reshape(keys, (blocks + 2, reach, d))
        memory = ops.concatenate([keys[:-2], keys[1:-1], keys[2:]], axis=1)
        places = ops.arange(3 * reach) - reach  # [3 r], beside a block's 0
        starts = ops.arange(blocks)[:, None] * reach
        real = ops.logical_and(starts + places >= 0, starts + places < n)
        near = masks.restricted(
            ops.arange(reach), places, reach
        )  # [1, 1, r, 3 r]
        mask = ops.logical_and(near, real[:, None, None])
        found, _ = layer(queries, mask, memory)
        return ops.reshape(found, (1, blocks * reach, d))[:, :n]

    return call


def _recurrent(layer, gates):
    """A recurrent layer, with two products of d x d a gate and a position."""
    return LayerType(
        "n·d²",
        (1, 2),
        "n",
        "n",
        lambda d: layer(d, return_sequences=True),
        lambda n, d: 4 * gates * n * d**2,
    )


def _convolutional(layer=keras.layers.Conv1D, **settings):
    return lambda d: layer(d, KERNEL, padding="same", **settings)


TYPES = {
    "self-attention": LayerType(
        "n²·d",
        (2, 1),
        "1",
        "1",
        self_attention,
        lambda n, d: 4 * n**2 * d + 8 * n * d**2,
    ),
    "restricted self-attention": LayerType(
        "r·n·d",
        (1, 1),
        "1",
        "n/r",
        restricted_self_attention,
        # Keys and values of three blocks are projected for each block.
        lambda n, d: 4 * 3 * NEIGHBOURHOOD * n * d + 16 * n * d**2,
    ),
    "recurrent (SimpleRNN)": _recurrent(keras.layers.SimpleRNN, 1),
    "recurrent (GRU)": _recurrent(keras.layers.GRU, 3),
    "recurrent (LSTM)": _recurrent(keras.layers.LSTM, 4),
    "convolutional": LayerType(
        "k·n·d²",
        (1, 2),
        "1",
        "n/k",
        _convolutional(),
        lambda n, d: 2 * KERNEL * n * d**2,
    ),
    "dilated convolutional": LayerType(
        "k·n·d²",
        (1, 2),
        "1",
        "log_k n",
        _convolutional(dilation_rate=KERNEL),
        lambda n, d: 2 * KERNEL * n * d**2,
    ),
    "separable convolutional": LayerType(
        "k·n·d + n·d²",
        (1, 2),
        "1",
        "log_k n",
        _convolutional(keras.layers.SeparableConv1D, dilation_rate=KERNEL),
        lambda n, d: 2 * KERNEL * n * d + 2 * n * d**2,
    ),
}
