"""Weights of a Transformer by their roles, and tables of positions.

Readers of other systems fill the classes here; by_path() gives the weights the
paths that models.transformer.Transformer has. Kernels are [inputs, outputs].
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_repro.layers import embedding


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


# Tables of positions of other systems, as formulas or as learned ones.

_FORMULAS = "sinusoids", "sines_then_cosines", "timing"
_FIRST_POSITIONS = 0, 1, 2
# Of an angle's rounding, which grows with the position.
_TOLERANCE = 1e-5
_MULTIPLE = 8  # which max_length must be of


def position_settings(
    tables: Sequence[np.ndarray],
) -> tuple[dict[str, Any], list[np.ndarray | None]]:
    """Return hparams of the tables of both sides, and learned positions.

    Args:
        tables: [positions, D] of the encoder, and of the decoder.

    Returns:
        hparams; None for each side where they name a formula, or its table
        [max_length, D], in which the last row is repeated: beyond its end, a
        learned table has its last row.
    """
    formulas = [position_formula(table) for table in tables]
    if formulas[0] and formulas[0] == formulas[1]:
        return formulas[0], [None, None]
    padded = pad_positions([_without_copies(table) for table in tables])
    changes = {"pos": "emb", "first_position": 0, "max_length": len(padded[0])}
    return changes, [*padded]


def pad_positions(tables: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return tables [N, D] with the same length, a valid max_length.

    The last row is repeated: that of all positions beyond a table.
    """
    longest = max(map(len, tables))
    length = -(-longest // _MULTIPLE) * _MULTIPLE
    return [
        np.pad(table, ((0, length - len(table)), (0, 0)), "edge")
        for table in tables
    ]


def position_formula(table: np.ndarray) -> dict[str, Any]:
    """Return the hparams of the formula that a table [N, D] has; {}: none."""
    if not table.any():
        return {"pos": "none", "first_position": 0}
    if table.shape[1] % 2:
        return {}
    zeros, numbers = np.zeros((1, *table.shape)), np.arange(len(table))
    tolerance = _TOLERANCE * max(1, len(table) / 100)
    for first in _FIRST_POSITIONS:
        for name in _FORMULAS:
            layer = embedding.build(name, 0, first, dtype="float32")
            encoded = np.asarray(layer(zeros, numbers[None]))[0]
            if np.abs(encoded - table).max() <= tolerance:
                return {"pos": name, "first_position": first}
    return {}


def _without_copies(table):
    """Return a table without the copies of its last row at its end."""
    differs = np.flatnonzero((table != table[-1]).any(axis=1))
    return table[: (differs[-1] if len(differs) else -1) + 2]
