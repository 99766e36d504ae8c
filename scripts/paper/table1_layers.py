"""Layer types of Table 1, with their operations.

Recurrent and convolutional layers are those of Keras; self-attention is ours,
with heads of 64 as in the paper. Each maps [1, n, d] to [1, n, d]. Operations
are multiplications and additions. They include the projections, n d^2, which
the paper's formulas of self-attention, n^2 d, omit.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops

from t2t_repro.layers import attention

KERNEL = 3  # k
NEIGHBOURHOOD = 32  # r: a position attends to |i - j| < r
HEAD = 64  # d_k = d_v: section 3.2.2


class LayerType(NamedTuple):
    """A row of Table 1."""

    complexity: str  # per layer, in the paper
    exponents: tuple[float, float]  # of n and d in it, for large n and d
    sequential: str  # number of sequential operations
    path: str  # maximum path length between two positions
    build: Callable  # d -> a function of x [1, n, d]
    operations: Callable  # n, d -> number of operations


def attention_layer(d):
    """Build our attention layer of width d."""
    heads = max(1, d // HEAD)
    return attention.MultiHeadAttention(d, heads, d, d, "dot_product", 0.0)


def self_attention(d):
    """Build self-attention of every position to every other."""
    layer = attention_layer(d)
    return lambda x: layer(x, ops.ones((1, 1, 1, 1), "bool"))[0]


def restricted_self_attention(d, reach=NEIGHBOURHOOD):
    """Build self-attention to |i - j| < reach, which computes nothing else.

    Blocks of `reach` queries attend to their own block of keys and to the two
    neighbours. (The model's restricted_attention masks the whole square.)
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
        offsets = ops.arange(3 * reach) - reach  # [3 r], from a block's start
        starts = ops.arange(blocks)[:, None] * reach
        real = ops.logical_and(starts + offsets >= 0, starts + offsets < n)
        near = attention.restricted_mask(
            ops.arange(reach), offsets, reach
        )  # [1, 1, r, 3 r]
        mask = ops.logical_and(near, real[:, None, None])
        outputs, _ = layer(queries, mask, memory)
        return ops.reshape(outputs, (1, blocks * reach, d))[:, :n]

    return call


def _recurrent(layer, gates):
    """Describe a recurrent layer: two d x d products per gate and position."""
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
        # For each block, the keys and values of three blocks are projected.
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
