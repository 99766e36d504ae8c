"""Weights of a Transformer by their roles, and by the paths of our model.

Readers of other systems fill the classes here; by_path() gives the weights the
paths that models.transformer.Transformer has. Kernels are [inputs, outputs].
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np


class Dense(NamedTuple):
    """Linear projection."""

    kernel: np.ndarray  # [inputs, outputs]
    bias: np.ndarray | None  # [outputs]; None: the model has none


class Norm(NamedTuple):
    """Layer normalization."""

    gamma: np.ndarray  # [D]
    beta: np.ndarray  # [D]


class Attention(NamedTuple):
    """Projections of an attention sublayer; heads are consecutive columns."""

    query: Dense
    key: Dense
    value: Dense
    output: Dense
    # [2 M + 1, K] of self-attention; None: positions are absolute.
    relative_keys: np.ndarray | None = None
    relative_values: np.ndarray | None = None


class Layer(NamedTuple):
    """Layer of the encoder, or with cross-attention of the decoder."""

    self_attention: Attention
    self_attention_norm: Norm
    filter: Dense  # [D, F]
    output: Dense  # [F, D]
    ffn_norm: Norm
    cross_attention: Attention | None = None
    cross_attention_norm: Norm | None = None
    linear: Dense | None = None  # [D, F], beside `filter` if that is gated


class Side(NamedTuple):
    """Encoder or decoder with its embedding."""

    embedding: np.ndarray  # [V, D]
    layers: Sequence[Layer]
    final_norm: Norm | None = None  # of pre-norm
    embedding_norm: Norm | None = None
    positions: np.ndarray | None = None  # [positions, D], learned ones


class Weights(NamedTuple):
    """All weights of a Transformer."""

    encoder: Side
    decoder: Side
    softmax: np.ndarray  # [V, D]
    softmax_bias: np.ndarray | None = None  # [V]
    start: np.ndarray | None = None  # [D]; None: zeros
    inputs_bias: np.ndarray | None = None  # [D]; None: zeros


def by_path(weights: Weights, hparams: Any) -> dict[str, np.ndarray]:
    """Return {path: array}, as building.by_path() names the weights.

    Args:
        weights: weights by their roles.
        hparams: TransformerHParams, which decide which of them are shared and
            where the norms are.
    """
    return dict(_all(weights, hparams))


def _all(weights: Weights, hparams: Any) -> Iterator[tuple[str, np.ndarray]]:
    softmax = "softmax"
    if hparams.shared_embedding_and_softmax_weights:
        softmax = "embedding"
    else:
        yield "inputs_embedding/weight", weights.encoder.embedding
        if hparams.shared_targets_embedding_and_softmax_weights:
            softmax = "targets_embedding"
        else:
            yield "targets_embedding/weight", weights.decoder.embedding
    yield f"{softmax}/weight", weights.softmax
    if weights.softmax_bias is not None:
        yield f"{softmax}/bias", weights.softmax_bias
    if weights.start is not None:
        yield "start", weights.start
    if weights.inputs_bias is not None:
        yield "inputs_bias", weights.inputs_bias
    yield from _side("encoder", "inputs", weights.encoder, hparams)
    yield from _side("decoder", "targets", weights.decoder, hparams)


def _side(path, features, side, hparams):
    if side.positions is not None:
        yield f"{features}_positions/table", side.positions
    if side.embedding_norm is not None:
        yield from _norm(f"{path}/input_norm", side.embedding_norm)
    if side.final_norm is not None:
        yield from _norm(f"{path}/norm", side.final_norm)
    norm = "input_norm" if hparams.layer_preprocess_sequence == "n" else "norm"
    for i, layer in enumerate(side.layers):
        at = f"{path}/layer_{i}"
        yield from _attention(f"{at}/self_attention", layer.self_attention)
        yield from _norm(
            f"{at}/self_attention/{norm}", layer.self_attention_norm
        )
        if layer.cross_attention is not None:
            yield from _attention(
                f"{at}/cross_attention", layer.cross_attention
            )
            yield from _norm(
                f"{at}/cross_attention/{norm}", layer.cross_attention_norm
            )
        yield from _dense(f"{at}/ffn/feed_forward/filter", layer.filter)
        if layer.linear is not None:
            yield from _dense(f"{at}/ffn/feed_forward/linear", layer.linear)
        yield from _dense(
            f"{at}/ffn/feed_forward/output_projection", layer.output
        )
        yield from _norm(f"{at}/ffn/{norm}", layer.ffn_norm)


def _attention(path, attention):
    path = f"{path}/multihead_attention"
    yield from _dense(f"{path}/query", attention.query)
    yield from _dense(f"{path}/key", attention.key)
    yield from _dense(f"{path}/value", attention.value)
    yield from _dense(f"{path}/output_projection", attention.output)
    if attention.relative_keys is not None:
        yield f"{path}/relative_keys", attention.relative_keys
    if attention.relative_values is not None:
        yield f"{path}/relative_values", attention.relative_values


def _dense(path, dense):
    yield f"{path}/kernel", dense.kernel
    if dense.bias is not None:
        yield f"{path}/bias", dense.bias


def _norm(path, norm):
    yield f"{path}/gamma", norm.gamma
    yield f"{path}/beta", norm.beta
