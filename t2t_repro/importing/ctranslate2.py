"""Folders of CTranslate2's Transformers.

    model.bin                                weights and attributes
    config.json                              from binary version 6
    shared_vocabulary.json or .txt           or source_… and target_…
    sentencepiece.model, source.spm, …       the model that made the tokens

An absent attribute means what it means to CTranslate2, in
src/models/transformer.cc, src/models/sequence_to_sequence.cc and
src/layers/transformer.cc.
"""

import importlib.util
import math
import pathlib
import re
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import arrays, ctranslate2_files, imported, weights
from t2t_repro.importing.ctranslate2_files import ModelFile, Tokens
from t2t_repro.importing.imported import (
    FoundVocabularies,
    Imported,
    Reference,
)
from t2t_repro.text.vocabulary import EOS, PAD

_SIDES = "encoder", "decoder"
# Numbers of heads, where the file has none: src/models/model_factory.cc.
_SPECS = {
    "": 8,
    "TransformerBase": 8,
    "TransformerBig": 16,
    "TransformerSpec": 8,
}
_MAX_REVISION = 7
_REFERENCE_LENGTH = 6  # tokens that CTranslate2 scores
# include/ctranslate2/ops/activation.h; with a gate, and without.
_ACTIVATIONS = {
    0: ("relu", "reglu"),
    1: ("gelu_tanh", ""),
    2: ("silu", "swiglu"),
    3: ("gelu", "geglu"),
    4: ("gelu_sigmoid", ""),
    6: ("", "glu"),
}
_EPSILON = 1e-5  # src/layers/common.cc
# Which attention weights a search returns; names of old versions.
_UNUSED = ("alignment_layer", "alignment_heads", "embeddings_merge")
# CTranslate2's defaults: include/ctranslate2/translation.h. Its length of an
# output counts EOS (src/decoding.cc), and min_decoding_length does not.
_SEARCH = {
    "beam_size": 2,
    "alpha": 1.0,
    "length_penalty_offset": 0,
    "min_length": 2,
}


def read(folder: pathlib.Path) -> Imported:
    """Read a model.

    Args:
        folder: folder of the files above.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    file = arrays.find_file(folder, "model.bin")
    model = ctranslate2_files.read_model(file)
    _check_spec(model, file)
    tokens = ctranslate2_files.read_tokens(folder, model)
    changes = _hparams(model, tokens, file)
    found = ctranslate2_files.find_vocabularies(folder, tokens)
    ctranslate2_files.refuse_languages(tokens, found)
    model_weights = _weights(model, tokens, found, changes, file)
    model.tensors.refuse_rest()
    model.attributes.refuse_rest()
    return Imported(
        changes,
        model_weights,
        found.pair,
        found.kind,
        _SEARCH,
        (file, *tokens.files, *found.files),
        reference=_reference(folder, tokens, found),
    )


def _reference(
    folder: pathlib.Path, tokens: Tokens, found: FoundVocabularies
) -> Reference | None:
    """Return a pair for CTranslate2 to score, if its package is installed."""
    if importlib.util.find_spec("ctranslate2") is None:
        return None
    special = {*tokens.special, tokens.target[tokens.start], "<s>"}
    ids, texts = [], []
    for names, order, vocabulary in zip(
        (tokens.source, tokens.target), found.orders, found.pair, strict=True
    ):
        # order has a -1 where CTranslate2 has no such token.
        known = [
            i
            for i, theirs in enumerate(order)
            if theirs >= 0
            and names[theirs] not in special
            and i not in (PAD, EOS, vocabulary.unknown)
        ]
        ids.append(known[:: -(-len(known) // _REFERENCE_LENGTH) or 1])
        texts.append([names[order[i]] for i in ids[-1]])
    if tokens.encodes_eos and not tokens.adds_eos:
        texts[0].append(tokens.special.eos)

    def log_probs() -> list[float]:
        import ctranslate2

        translator = ctranslate2.Translator(str(folder), compute_type="float32")
        (result,) = translator.score_batch([texts[0]], [texts[1]])
        return list(result.log_probs)

    return Reference("CTranslate2", [*ids[0], EOS], [*ids[1], EOS], log_probs)


def _check_spec(model: ModelFile, file: pathlib.Path) -> None:
    """Refuse models that are no Transformers of encoder and decoder."""
    if model.spec not in _SPECS:
        known = "a Transformer with encoder and decoder, TransformerSpec"
        raise imported.refuse(file, "its specification", known, model.spec)
    if model.revision > _MAX_REVISION:
        raise imported.refuse(
            file,
            "the revision of its specification",
            f"at most {_MAX_REVISION}",
            model.revision,
        )


class _Sides:
    """Attributes of encoder and decoder, which must be the same."""

    def __init__(self, model: ModelFile, file: pathlib.Path) -> None:
        self._model, self._file = model, file

    def names(self, side, name):
        """Return the names of an attribute, the older one second."""
        return (f"{side}/{name}", name)

    def one(self, name: str, default: Any) -> Any:
        """Return the value that both sides have."""
        take = self._model.attributes.take
        values = [take(self.names(side, name), default) for side in _SIDES]
        if values[0] != values[1]:
            raise imported.refuse(
                self._file, f"decoder/{name}", f"{values[0]!r}", values[1]
            )
        return values[0]

    def both_or_none(self, name: str) -> bool:
        """Return whether both sides have a layer normalization."""
        have = [
            f"{side}/{name}/gamma" in self._model.tensors for side in _SIDES
        ]
        if have[0] != have[1]:
            raise imported.refuse(
                self._file, name, "in encoder and decoder, or in none", have
            )
        return have[0]


def _hparams(
    model: ModelFile, tokens: Tokens, file: pathlib.Path
) -> dict[str, Any]:
    """Return the hparams that the attributes have."""
    sides, attributes = _Sides(model, file), model.attributes
    for side in (*_SIDES, ""):
        for name in _UNUSED:
            attributes.take(f"{side}/{name}".strip("/"), 0)
    for name in ("scale_alibi", "alibi_use_positive_positions"):
        attributes.take(f"decoder/{name}", False)  # of alibi, refused
    pre_norm = sides.one("pre_norm", True)
    if sides.both_or_none("layer_norm") != pre_norm:
        raise imported.refuse(
            file, "layer_norm", "there if pre_norm, and only then", pre_norm
        )
    gated = bool(model.tensors.names(".*/linear_0_noact/weight"))
    number = sides.one("activation", 0)
    activation = _ACTIVATIONS.get(number, ("", ""))[gated]
    if not activation:
        gate = "with a gate" if gated else "without a gate"
        raise imported.refuse(
            file, "activation", f"one that ffn_activation has {gate}", number
        )
    heads = sides.one("num_heads", _SPECS[model.spec])
    if heads < 1:
        raise imported.refuse(file, "num_heads", "at least 1", heads)
    return {
        "num_heads": heads,
        "ffn_activation": activation,
        "norm_epsilon": tokens.epsilon or _EPSILON,
        "embedding_norm": sides.both_or_none("layernorm_embedding"),
        **imported.norm_order(pre_norm),
        "encode_eos": tokens.encodes_eos,
    }


def _weights(model, tokens, found, changes, file):
    """Return all weights by their roles; add the hparams that they show."""
    tensors = model.tensors
    source = _embedding(model, "encoder", len(tokens.source), file)
    target = _embedding(model, "decoder", len(tokens.target), file)
    size = target.shape[1]
    if source.shape[1] != size or size % changes["num_heads"]:
        raise imported.refuse(
            file,
            "the width of the embeddings",
            f"the same, and a multiple of num_heads ({changes['num_heads']})",
            [source.shape[1], size],
        )
    changes["hidden_size"] = size
    softmax = tensors.take("decoder/projection/weight", len(target), size)
    softmax *= np.float32(
        model.attributes.take_float("decoder/scale_outputs", 1.0)
    )
    bias = tensors.take_if_present("decoder/projection/bias", len(target))
    start = target[tokens.start]
    if model.attributes.take("decoder/start_from_zero_embedding", False):
        start = np.zeros_like(start)
    changes["learned_start"] = bool(start.any())
    source, target, start = _factors(model, changes, source, target, start)
    source, target, softmax = imported.reorder(
        source, target, softmax, found.orders
    )
    bias = _softmax_bias(bias, found.orders[1])
    changes["softmax_bias"] = bias is not None
    _share(changes, found, source, target, softmax)
    layers = Layers(model, file, size, changes["num_heads"])
    changes.update(layers.hparams)
    tables = _positions(model, changes, size)
    sides = [
        weights.Side(
            embedding,
            layers.read(side),
            _norm(layers, changes["layer_preprocess_sequence"] == "n", side),
            layers.norm(f"{side}/layernorm_embedding")
            if changes["embedding_norm"]
            else None,
            table,
        )
        for side, embedding, table in zip(
            _SIDES, (source, target), tables, strict=True
        )
    ]
    return weights.Weights(
        *sides, softmax, bias, start if changes["learned_start"] else None
    )


def _softmax_bias(bias, order):
    """Return the bias of our logits; None: it is 0."""
    if bias is None:
        bias = np.zeros(1 + max(order), np.float32)
    ours = imported.rows(bias, order)
    if order[0] < 0:  # no PAD there
        ours[0] = imported.PAD_BIAS
    return ours if ours.any() else None


def _norm(layers, is_there, side):
    """Return the normalization of a stack's output, if there is one."""
    return layers.norm(f"{side}/layer_norm") if is_there else None


def _embedding(model, side, rows, file):
    """Return an embedding [V, D], before its factor."""
    names = [f"{side}/embeddings/weight", f"{side}/embeddings_0/weight"]
    name = next((n for n in names if n in model.tensors), names[0])
    array = model.tensors.take(name, -1, -1)
    if len(array) != rows:
        raise imported.refuse(
            file,
            f"the number of rows of {name}",
            f"that of the tokens in the vocabulary, {rows:,}",
            len(array),
        )
    return array


def _factors(model, changes, source, target, start):
    """Set multiply_embedding_mode; other factors become part of the rows."""
    root = math.sqrt(target.shape[1])
    factors = []
    for side in _SIDES:
        name = f"{side}/scale_embeddings"
        old = f"{side}/embeddings/multiply_by_sqrt_depth"
        # A flag, or the factor itself.
        if model.attributes.is_float(name):
            factors.append(model.attributes.take_float(name, 1.0))
        else:
            flag = model.attributes.take((name, old), True)
            factors.append(root if flag else 1.0)
    if all(math.isclose(factor, root, rel_tol=1e-6) for factor in factors):
        changes["multiply_embedding_mode"] = "sqrt_depth"
        return source, target, start
    changes["multiply_embedding_mode"] = "none"
    encoder, decoder = (np.float32(factor) for factor in factors)
    return source * encoder, target * decoder, start * decoder


def _share(changes, found, source, target, softmax):
    """Set the hparams of matrices that are one."""
    changes |= imported.sharing(
        np.array_equal(target, softmax),
        found.pair.have_same_ids and np.array_equal(source, target),
    )


def _positions(model, changes, size):
    """Set the hparams of positions; return learned tables, or None twice."""
    names = [f"{side}/position_encodings/encodings" for side in _SIDES]
    if changes["max_relative_position"]:
        changes["pos"] = "none"
        for name in names:  # not read where positions are relative
            model.tensors.take_if_present(name)
        return None, None
    tables = [model.tensors.take_if_present(name, -1, size) for name in names]
    if all(table is None for table in tables):
        # src/layers/common.cc, generate_sinusoidal_position_encoding()
        changes.update(pos="timing", first_position=1)
        return None, None
    for name, table in zip(names, tables, strict=True):
        if table is None or not len(table):
            raise errors.UserError(f"{name} has no rows. Convert it again.")
    found, learned = weights.position_settings(tables)
    changes.update(found)
    return learned


# Layers of CTranslate2's Transformer, from the variables of a model.bin.
#
# Their names are those of python/ctranslate2/specs/transformer_spec.py:
#
#     encoder/layer_0/self_attention/linear_0/weight    queries, keys and values
#     encoder/layer_0/self_attention/linear_1/weight    outputs
#     decoder/layer_0/attention/linear_0/weight         queries
#     decoder/layer_0/attention/linear_1/weight         keys and values
#     decoder/layer_0/attention/linear_2/weight         outputs
#     decoder/layer_0/ffn/linear_0/weight               filter
#     decoder/layer_0/ffn/linear_0_noact/weight         beside a gate
#     decoder/layer_0/ffn/linear_1/weight               outputs
#
# Each sublayer has a layer_norm, and matrices are [outputs, inputs].

_SCALE_TOLERANCE = 1e-6
_LAYER_SIDES = "encoder", "decoder"


class Layers:
    """Reader of layers, which also finds the hparams that they share."""

    def __init__(
        self,
        model: ModelFile,
        file: pathlib.Path,
        hidden_size: int,
        num_heads: int,
    ):
        """Find out what all layers share.

        Args:
            model: content of the model.bin.
            file: its path, for errors.
            hidden_size: D.
            num_heads: H.
        """
        self._tensors, self._attributes = model.tensors, model.attributes
        self._file = file
        self._size, self._heads = hidden_size, num_heads
        self._counts = {side: self._count(side) for side in _LAYER_SIDES}
        self._has_bias = bool(
            self._tensors.names(r".*/layer_\d+/\w*attention/linear_\d/bias")
        )
        self._relative = self._tensors.names(".*/relative_position_keys")
        self._has_gate = bool(self._tensors.names(".*/linear_0_noact/weight"))
        self._width = len(
            self._tensors.take("encoder/layer_0/ffn/linear_0/weight", -1, -1)
        )
        self._head_size = self._attributes.take(
            "encoder/layer_0/self_attention/head_dim",
            hidden_size // num_heads,
        )
        self._unscaled = self._is_unscaled()

    @property
    def hparams(self) -> dict[str, Any]:
        """Hparams of the layers."""
        channels = self._heads * self._head_size
        if channels == self._size:
            channels = 0
        kind = "dot_product_unscaled" if self._unscaled else "dot_product"
        relative = 0
        if self._relative:
            table = self._tensors.take(self._relative[0], -1, -1)
            relative = (len(table) - 1) // 2
            if len(table) < 3 or len(table) % 2 == 0:
                raise imported.refuse(
                    self._file,
                    f"the number of rows of {self._relative[0]}",
                    "odd and at least 3",
                    len(table),
                )
        return {
            "filter_size": self._width,
            "num_heads": self._heads,
            **imported.layer_counts(**self._counts),
            "attention_key_channels": channels,
            "attention_value_channels": channels,
            "attention_type": kind,
            "attention_bias": self._has_bias,
            "max_relative_position": relative,
        }

    def read(self, side: str) -> list[weights.Layer]:
        """Read the layers of "encoder" or "decoder"."""
        return [
            self._layer(f"{side}/layer_{i}", side == "decoder")
            for i in range(self._counts[side])
        ]

    def norm(self, path: str) -> weights.Norm:
        """Read a layer normalization."""
        if f"{path}/gamma" in self._tensors and (
            f"{path}/beta" not in self._tensors
        ):
            raise imported.refuse(
                self._file, path, "a layer normalization", "RMS normalization"
            )
        return weights.Norm(
            self._tensors.take(f"{path}/gamma", self._size),
            self._tensors.take(f"{path}/beta", self._size),
        )

    def _count(self, side):
        names = self._tensors.names(rf"{side}/layer_\d+/.*")
        numbers = {re.findall(r"\d+", name)[0] for name in names}
        count = next(
            i for i in range(len(numbers) + 1) if str(i) not in numbers
        )
        if not count:
            raise imported.refuse(self._file, f"the {side}", "of layers", None)
        return count

    def _scale_names(self):
        """Return the names of the factors of queries of all attentions."""
        return [
            f"{side}/layer_{i}/{name}/queries_scale"
            for side in _LAYER_SIDES
            for i in range(self._counts[side])
            for name in ("self_attention", "attention")
            if side == "decoder" or name == "self_attention"
        ]

    def _is_unscaled(self):
        take = self._attributes.take_float
        return {take(name, None) for name in self._scale_names()} == {1.0}

    def _layer(self, path, is_decoder):
        size, width = self._size, self._width
        ffn = f"{path}/ffn"
        linear = None
        if self._has_gate:
            linear = self._dense(f"{ffn}/linear_0_noact", size, width)
        layer = weights.Layer(
            self._attention(f"{path}/self_attention", [3]),
            self.norm(f"{path}/self_attention/layer_norm"),
            self._dense(f"{ffn}/linear_0", size, width),
            self._dense(f"{ffn}/linear_1", width, size),
            self.norm(f"{ffn}/layer_norm"),
            linear=linear,
        )
        if not is_decoder:
            return layer
        return layer._replace(
            cross_attention=self._attention(f"{path}/attention", [1, 2]),
            cross_attention_norm=self.norm(f"{path}/attention/layer_norm"),
        )

    def _dense(self, path, inputs, outputs, has_bias=True):
        """Read a projection; a bias that the file lacks is 0."""
        kernel = self._tensors.take(f"{path}/weight", outputs, inputs)
        bias = self._tensors.take_if_present(f"{path}/bias", outputs)
        if bias is None and has_bias:
            bias = np.zeros(outputs, np.float32)
        return weights.Dense(kernel.T, bias)

    def _attention(self, path, products):
        """Read an attention.

        Args:
            path: its scope.
            products: how many of queries, keys and values share a matrix.
        """
        self._check_attention(path)
        channels = self._heads * self._head_size
        projections = []
        for i, count in enumerate(products):
            dense = self._dense(
                f"{path}/linear_{i}",
                self._size,
                count * channels,
                self._has_bias,
            )
            kernels = np.split(dense.kernel, count, axis=1)
            biases = [None] * count
            if dense.bias is not None:
                biases = np.split(dense.bias, count)
            projections += map(weights.Dense, kernels, biases)
        projections[0] = self._scaled(path, projections[0])
        output = self._dense(
            f"{path}/linear_{len(products)}",
            channels,
            self._size,
            self._has_bias,
        )
        attention = weights.Attention(*projections, output)
        if not self._relative or path.endswith("/attention"):
            return attention
        rows = len(self._tensors.take(self._relative[0]))
        keys, values = (
            self._tensors.take(
                f"{path}/relative_position_{name}", rows, self._head_size
            )
            for name in ("keys", "values")
        )
        return attention._replace(relative_keys=keys, relative_values=values)

    def _check_attention(self, path):
        """Refuse an attention that differs from the others, or shares heads."""
        for name, wanted, rule in (
            ("head_dim", self._head_size, "the same everywhere"),
            ("num_heads_kv", self._heads, "num_heads: no head shares keys"),
            ("multi_query", False, "false: no head shares keys"),
        ):
            got = self._attributes.take(f"{path}/{name}", wanted)
            if got != wanted:
                raise imported.refuse(self._file, f"{path}/{name}", rule, got)

    def _scaled(self, path, query):
        """Return a projection of queries with their factor within it.

        The model divides by the square root of the size of a head, unless no
        attention has a factor.
        """
        default = self._head_size**-0.5
        factor = self._attributes.take_float(f"{path}/queries_scale", default)
        if self._unscaled or math.isclose(
            factor, default, rel_tol=_SCALE_TOLERANCE
        ):
            return query
        return weights.Dense(
            *(
                None if array is None else array * np.float32(factor / default)
                for array in query
            )
        )
