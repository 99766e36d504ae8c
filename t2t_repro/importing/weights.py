"""Weights of a Transformer by our paths, and names of other systems for them.

A reader has `Names`, tables of what a system calls the weights of the layers.
read_stacks() takes them from a file by these tables. Paths are those of
models.transformer.Transformer, and kernels are [inputs, outputs].
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_repro.importing import model_files
from t2t_repro.importing.arrays import Tensors, aligned_copy
from t2t_repro.layers import embedding
from t2t_repro.layers.sublayers import GATES

SIDES = "encoder", "decoder"


class Names(NamedTuple):
    """Names that a system gives to the weights of encoder and decoder.

    `stack` and `layer` have its names by our paths, without the scopes that
    only our paths have: "ffn/filter". Where there are several names, a file has
    one of them. "{a b}" stands for a and b, of path and name in the same order;
    a name without it has the arrays of all paths side by side. These are
    replaced in a name:

        ?          the word for kernel or bias, for gamma or beta
        {order}    the word for post-norm or pre-norm
        {side}     encoder or decoder
        {i}        number of the layer
    """

    stack: Mapping[str, str]  # after "encoder/"
    layer: Mapping[str, str | tuple[str, ...]]  # after "encoder/layer_0/"
    at: str  # beginning of the names of a layer, after `scope`
    dense: tuple[str, str]  # words for kernel and bias
    norm: tuple[str, str]  # words for gamma and beta
    order: tuple[str, str] = ("", "")  # words for post-norm and pre-norm
    is_transposed: bool = False  # whether kernels are [outputs, inputs]
    has_all_biases: bool = True  # False: one that the file lacks is 0
    scope: str = ""  # beginning of all names, in which nothing is replaced


# Scopes of our paths between a sublayer and its projections.
_SCOPES = {
    "self_attention": "multihead_attention",
    "cross_attention": "multihead_attention",
    "ffn": "feed_forward",
}
# D hidden size, F filter size, K and V all keys' and values' channels, R rows
# and H columns of tables of relative positions.
_SHAPES = {
    "query": "DK",
    "key": "DK",
    "value": "DV",
    "output_projection": "VD",
    "relative_keys": "RH",
    "relative_values": "RH",
    "filter": "DF",
    "linear": "DF",
    "ffn/output_projection": "FD",
    "norm": "D",
    "input_norm": "D",
}


def count_layers(tensors: Tensors, names: Names) -> dict[str, int]:
    """Return the hparams of the numbers of layers that have arrays."""
    counts = []
    for side in SIDES:
        at = names.at.replace("{side}", side).replace("{i}", r"\d+")
        layers = {re.findall(at, name)[0] for name in tensors.names(f"{at}.*")}
        counts.append(len(layers))
    return model_files.layer_counts(*counts)


def read_stacks(
    tensors: Tensors,
    names: Names,
    hparams: Mapping[str, Any],
    numbers: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, np.ndarray]:
    """Return the weights of encoder and decoder without embeddings, by path.

    Args:
        tensors: arrays of the file.
        names: their names.
        hparams: those of the model that are not the same in fine_tuning.
        numbers: numbers of the layers in the names of a side, where they are
            not 0, 1, ….

    Raises:
        UserError: an array is missing, or has another shape.
    """
    found: dict[str, np.ndarray] = {}
    for side in SIDES:
        reader = _Reader(tensors, names, hparams, side)
        found.update(reader.read(names.stack, side, names.scope))
        count = hparams[f"num_{side}_layers"] or hparams["num_hidden_layers"]
        for i, number in enumerate((numbers or {}).get(side, range(count))):
            at = names.at.replace("{side}", side).replace("{i}", str(number))
            layer, at = f"{side}/layer_{i}", names.scope + at
            found.update(reader.read(names.layer, layer, at))
    return found


@dataclasses.dataclass
class _Reader:
    tensors: Tensors
    names: Names
    hparams: Mapping[str, Any]
    side: str

    def __post_init__(self) -> None:
        given = self.hparams
        width = self.side == "decoder" and given.get("decoder_filter_size")
        size = given["hidden_size"]
        keys = given.get("attention_key_channels") or size
        relative = given.get("max_relative_position", 0)
        self.pre_norm = given.get("layer_preprocess_sequence") == "n"
        self.sizes = {
            "D": size,
            "F": width or given["filter_size"],
            "K": keys,
            "V": given.get("attention_value_channels") or size,
            "R": 2 * relative + 1,
            "H": keys // given["num_heads"] if relative else 0,
        }
        # Parts that only some models have.
        self.parts = {
            "norm": self.pre_norm,
            "input_norm": given.get("embedding_norm", False),
            "ffn/linear": given.get("ffn_activation") in GATES,
            "self_attention/{relative_keys relative_values}": relative > 0,
        }

    def read(
        self, table: Mapping[str, Any], path: str, at: str
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield paths and arrays of a stack or of a layer.

        `table` has their names, which begin with `at`, by our paths.
        """
        for part, names in table.items():
            is_cross = part.startswith("cross_attention")
            if not self.parts.get(part, True) or (
                is_cross and self.side == "encoder"
            ):
                continue
            theirs = self._choose(part, names, at)
            ours = _expand(part)
            count = len(ours) // len(theirs)  # of our arrays in one of theirs
            for i, name in enumerate(theirs):
                parts = ours[i * count : (i + 1) * count]
                for ending, array in self._take(name, parts).items():
                    values = np.split(array, count, axis=-1)
                    for one, value in zip(parts, values, strict=True):
                        yield f"{path}/{self._path(one)}{ending}", value

    def _choose(self, part, names, at):
        """Return the names that the file has, or else the first.

        An array that was taken has another meaning: layer_norms.1 of a decoder
        of fairseq is that of its cross-attention, and of an encoder the last.
        """
        order = self.names.order[self.pre_norm]
        word = (self.names.norm if _is_norm(part) else self.names.dense)[0]
        options = []
        for name in (names,) if isinstance(names, str) else names:
            name = name.replace("{order}", order).replace("{side}", self.side)
            options.append([at + one for one in _expand(name)])
            if options[-1][0].replace("?", word) in self.tensors.left:
                return options[-1]
        return options[0]

    def _path(self, part):
        scope, _, last = part.rpartition("/")
        if not scope:
            return part
        if last == "norm":
            return f"{scope}/{'input_norm' if self.pre_norm else 'norm'}"
        return f"{scope}/{_SCOPES[scope]}/{last}"

    def _take(self, name, parts):
        """Return {ending of our path: array}, with `parts` side by side."""
        letters = _SHAPES.get(parts[0]) or _SHAPES[parts[0].rpartition("/")[2]]
        shape = [self.sizes[letter] for letter in letters]
        take = self.tensors.take
        if "?" not in name:
            return {"": take(name, *shape)}
        words = self.names.norm if _is_norm(parts[0]) else self.names.dense
        first, second = (name.replace("?", word) for word in words)
        if _is_norm(parts[0]):
            if self.hparams.get("norm") == "rms":
                return {"/scale": take(first, *shape)}
            gamma, beta = take(first, *shape), take(second, *shape)
            return {"/gamma": gamma, "/beta": beta}
        inputs, outputs = shape[0], len(parts) * shape[1]
        if self.names.is_transposed:
            kernel = aligned_copy(take(first, outputs, inputs).T)
        else:
            kernel = take(first, inputs, outputs)
        found = {"/kernel": kernel}
        if parts[0].startswith("ffn") or self.hparams.get("attention_bias"):
            has_bias = self.names.has_all_biases or second in self.tensors
            zeros = np.zeros(outputs, np.float32)
            found["/bias"] = take(second, outputs) if has_bias else zeros
        return found


def _is_norm(part):
    return part.endswith("norm")


def _expand(pattern: str) -> list[str]:
    """Return ["a.x", "b.x"] of "{a b}.x", and ["x"] of "x"."""
    before, brace, rest = pattern.partition("{")
    words, _, after = rest.partition("}")
    if not brace:
        return [pattern]
    return [f"{before}{word}{after}" for word in words.split()]


def by_path(
    weights: Mapping[str, np.ndarray], hparams: Any
) -> dict[str, np.ndarray]:
    """Return weights, as if none were shared, by the paths of a model."""
    unused: tuple[str, ...] = ()
    kept = layer = "softmax"  # names of the matrix that others share
    if hparams.shared_embedding_and_softmax_weights:
        unused, layer = ("inputs_embedding", "targets_embedding"), "embedding"
    elif hparams.shared_embedding:
        unused, kept = ("targets_embedding",), "inputs_embedding"
        layer = "embedding"
    elif hparams.shared_targets_embedding_and_softmax_weights:
        unused, layer = ("targets_embedding",), "targets_embedding"
    return {
        re.sub(f"^{kept}/", f"{layer}/", path): array
        for path, array in weights.items()
        if path.partition("/")[0] not in unused
    }


# Positions.


def encode_positions(pos: str, first: int, shape: tuple[int, ...]) -> Any:
    """Return what a formula adds to embeddings of the shape [N, D].

    `pos` is as the hparam, and `first` as first_position.
    """
    layer = embedding.build(pos, 0, first, dtype="float32")
    zeros = np.zeros((1, *shape), np.float32)
    return np.asarray(layer(zeros, np.arange(shape[0])[None]))[0]


_MULTIPLE = 8  # which max_length must be of


def learned_positions(
    hparams: dict[str, Any], *tables: np.ndarray
) -> dict[str, np.ndarray]:
    """Return learned positions by path, and set max_length.

    The tables [positions, D] of both sides are made equally long, a multiple of
    8. The last row is repeated: it is that of all positions beyond a table.
    """
    length = -(-max(map(len, tables)) // _MULTIPLE) * _MULTIPLE
    hparams["max_length"] = length
    return {
        f"{kind}_positions/table": np.pad(
            table, ((0, length - len(table)), (0, 0)), "edge"
        )
        for kind, table in zip(("inputs", "targets"), tables, strict=True)
    }


def take_positions(
    tensors: Tensors, names: str, first: int, hparams: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Return learned_positions() of the arrays of both sides.

    `names` has {side} for that of an array. Rows before number `first`, that of
    the first position, are not used.

    Raises:
        UserError: an array is missing, or has no other rows.
    """
    tables = []
    for side in SIDES:
        name = names.replace("{side}", side)
        table = tensors.take(name, -1, hparams["hidden_size"])
        if len(table) <= first:
            rule = f"of more than {first} rows"
            raise model_files.refuse("the weights", name, rule, len(table))
        tables.append(table[first:])
    return learned_positions(hparams, *tables)
