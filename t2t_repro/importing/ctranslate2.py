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
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import (
    ctranslate2_files,
    imported,
    model_files,
    weights,
)
from t2t_repro.importing.ctranslate2_files import ModelFile, Tokens
from t2t_repro.importing.imported import FoundVocabularies, Imported, Reference
from t2t_repro.importing.weights import SIDES
from t2t_repro.text.vocabulary import EOS, PAD

# Those of python/ctranslate2/specs/transformer_spec.py.
_NAMES = weights.Names(
    {
        "norm": "{side}/layer_norm/?",
        "input_norm": "{side}/layernorm_embedding/?",
    },
    {
        "self_attention/{query key value}": "self_attention/linear_0/?",
        "self_attention/output_projection": "self_attention/linear_1/?",
        "self_attention/norm": "self_attention/layer_norm/?",
        "self_attention/{relative_keys relative_values}": (
            "self_attention/relative_position_{keys values}"
        ),
        "cross_attention/query": "attention/linear_0/?",
        "cross_attention/{key value}": "attention/linear_1/?",
        "cross_attention/output_projection": "attention/linear_2/?",
        "cross_attention/norm": "attention/layer_norm/?",
        "ffn/filter": "ffn/linear_0/?",
        "ffn/linear": "ffn/linear_0_noact/?",
        "ffn/output_projection": "ffn/linear_1/?",
        "ffn/norm": "ffn/layer_norm/?",
    },
    at="{side}/layer_{i}/",
    dense=("weight", "bias"),
    norm=("gamma", "beta"),
    is_transposed=True,
    has_all_biases=False,
)
# Numbers of heads, where the file has none: src/models/model_factory.cc.
_SPECS = {
    "": 8,
    "TransformerBase": 8,
    "TransformerBig": 16,
    "TransformerSpec": 8,
}
_MAX_REVISION = 7
_ATTENTION_BIAS = r".*/layer_\d+/\w*attention/linear_\d/bias"
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
_SCALE_TOLERANCE = 1e-6
_FORMULAS = "sinusoids", "sines_then_cosines", "timing"  # of positions
_FIRST_POSITIONS = 0, 1, 2
# Of an angle's rounding, which grows with the position.
_POSITIONS_TOLERANCE = 1e-5
# Which attention weights a search returns, and names of old versions; those of
# alibi, which is refused.
_UNUSED = ("alignment_layer", "alignment_heads", "embeddings_merge")
_OF_ALIBI = ("scale_alibi", "alibi_use_positive_positions")
# CTranslate2's defaults: include/ctranslate2/translation.h. Its length of an
# output counts EOS (src/decoding.cc), and min_decoding_length does not.
_SEARCH = {
    "beam_size": 2,
    "alpha": 1.0,
    "length_penalty_offset": 0,
    "min_length": 2,
}


def read(folder: pathlib.Path) -> Imported:
    """Read a model in the folder of these files."""
    file = model_files.find_file(folder, "model.bin")
    model = ctranslate2_files.read_model(file)
    if model.spec not in _SPECS:
        known = "a Transformer with encoder and decoder, TransformerSpec"
        raise model.refuse("its specification", known, model.spec)
    if model.revision > _MAX_REVISION:
        name = "the revision of its specification"
        raise model.refuse(name, f"at most {_MAX_REVISION}", model.revision)
    tokens = ctranslate2_files.read_tokens(folder, model)
    hparams = _read_hparams(model, tokens)
    found = ctranslate2_files.find_vocabularies(folder, tokens)
    ctranslate2_files.refuse_languages(tokens, found)
    model_weights = _weights(model, tokens, found, hparams)
    model.tensors.refuse_rest()
    model.attributes.refuse_rest()
    files = [file, *tokens.config_files, *tokens.lists, *found.files]
    return Imported(
        hparams,
        model_weights,
        found,
        _SEARCH,
        tuple(dict.fromkeys(files)),
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


def _read_hparams(model: ModelFile, tokens: Tokens) -> dict[str, Any]:
    """Return the hparams that the attributes have."""
    attributes, tensors = model.attributes, model.tensors
    for name in tensors.names(".*/gamma"):
        path = name.removesuffix("/gamma")
        if f"{path}/beta" not in tensors:
            rule = "a layer normalization"
            raise model.refuse(path, rule, "RMS normalization")
    for side in (*SIDES, ""):
        for name in _UNUSED:
            attributes.take(f"{side}/{name}".strip("/"), 0)
    for name in _OF_ALIBI:
        attributes.take(f"decoder/{name}", False)
    pre_norm = _of_both_sides(model, "pre_norm", True)
    if _have_norm(model, "layer_norm") != pre_norm:
        rule = "there if pre_norm, and only then"
        raise model.refuse("layer_norm", rule, pre_norm)
    gated = bool(tensors.names(".*/linear_0_noact/weight"))
    number = _of_both_sides(model, "activation", 0)
    activation = _ACTIVATIONS.get(number, ("", ""))[gated]
    if not activation:
        gate = "with a gate" if gated else "without a gate"
        rule = f"one that ffn_activation has {gate}"
        raise model.refuse("activation", rule, number)
    heads = _of_both_sides(model, "num_heads", _SPECS[model.spec])
    if heads < 1:
        raise model.refuse("num_heads", "at least 1", heads)
    return {
        "num_heads": heads,
        "ffn_activation": activation,
        "norm_epsilon": tokens.epsilon or _EPSILON,
        "embedding_norm": _have_norm(model, "layernorm_embedding"),
        **model_files.norm_order(pre_norm),
        "encode_eos": tokens.encodes_eos,
        "attention_bias": bool(tensors.names(_ATTENTION_BIAS)),
        **weights.count_layers(tensors, _NAMES),
    }


def _of_both_sides(model, name, default):
    """Return an attribute that must be the same; old ones have no side."""
    first, second = (
        model.attributes.take((f"{side}/{name}", name), default)
        for side in SIDES
    )
    if first != second:
        raise model.refuse(f"decoder/{name}", f"{first!r}", second)
    return first


def _have_norm(model, name):
    """Return whether both sides have a layer normalization."""
    have = [f"{side}/{name}/gamma" in model.tensors for side in SIDES]
    if have[0] != have[1]:
        rule = "in encoder and decoder, or in none"
        raise model.refuse(name, rule, have)
    return have[0]


def _weights(
    model: ModelFile,
    tokens: Tokens,
    found: FoundVocabularies,
    hparams: dict[str, Any],
) -> dict[str, np.ndarray]:
    """Return all weights by their paths, and complete the hparams."""
    tensors, heads = model.tensors, hparams["num_heads"]
    source = _embedding(model, "encoder", len(tokens.source))
    target = _embedding(model, "decoder", len(tokens.target))
    size = target.shape[1]
    if source.shape[1] != size or size % heads:
        raise model.refuse(
            "the width of the embeddings",
            f"the same, and a multiple of num_heads ({heads})",
            [source.shape[1], size],
        )
    hparams["hidden_size"] = size
    softmax = tensors.take("decoder/projection/weight", len(target), size)
    softmax *= np.float32(model.attributes.take("decoder/scale_outputs", 1.0))
    bias = tensors.take_if_present("decoder/projection/bias", len(target))
    if bias is None:
        bias = np.zeros(len(target), np.float32)
    start = target[tokens.start]
    if model.attributes.take("decoder/start_from_zero_embedding", False):
        start = np.zeros_like(start)
    source, target, start = _factors(model, hparams, source, target, start)
    result = imported.matrices(found.orders, source, target, softmax, bias)
    if not result["softmax/bias"].any():
        del result["softmax/bias"]
    if start.any():
        result["start"] = start
    hparams |= imported.sharing(result, found.pair)
    _set_structure(model, hparams)
    result |= _positions(model, hparams, size)
    result |= weights.read_stacks(tensors, _NAMES, hparams)
    return result | dict(_scaled_queries(model, hparams, result))


def _embedding(model, side, rows):
    """Return an embedding [V, D], before its factor."""
    names = [f"{side}/embeddings/weight", f"{side}/embeddings_0/weight"]
    name = next((n for n in names if n in model.tensors), names[0])
    array = model.tensors.take(name, -1, -1)
    if len(array) != rows:
        rule = f"that of the tokens in the vocabulary, {rows:,}"
        raise model.refuse(f"the number of rows of {name}", rule, len(array))
    return array


def _factors(model, hparams, source, target, start):
    """Set multiply_embedding_mode; other factors become part of the rows."""
    root = math.sqrt(target.shape[1])
    factors = []
    for side in SIDES:
        name = f"{side}/scale_embeddings"
        old = f"{side}/embeddings/multiply_by_sqrt_depth"
        # A flag, or the factor itself.
        if model.attributes.is_float(name):
            factors.append(model.attributes.take(name, 1.0))
        else:
            flag = model.attributes.take((name, old), True)
            factors.append(root if flag else 1.0)
    if all(math.isclose(factor, root, rel_tol=1e-6) for factor in factors):
        hparams["multiply_embedding_mode"] = "sqrt_depth"
        return source, target, start
    hparams["multiply_embedding_mode"] = "none"
    encoder, decoder = (np.float32(factor) for factor in factors)
    return source * encoder, target * decoder, start * decoder


def _set_structure(model, hparams):
    """Set the hparams that the names and shapes of arrays show."""
    tensors, take = model.tensors, model.attributes.take
    size, heads = hparams["hidden_size"], hparams["num_heads"]
    widths = [
        len(tensors.take(f"{side}/layer_0/ffn/linear_0/weight", -1, -1))
        for side in SIDES
    ]
    head_size = take("encoder/layer_0/self_attention/head_dim", size // heads)
    channels = heads * head_size if heads * head_size != size else 0
    rows = 1
    for name in tensors.names(".*/relative_position_keys")[:1]:
        rows = len(tensors.take(name, -1, -1))
        if rows < 3 or rows % 2 == 0:
            rule = "odd and at least 3"
            raise model.refuse(f"the number of rows of {name}", rule, rows)
    scales = set()
    for _, path in _attentions(hparams):
        scales.add(take(f"{path}/queries_scale", None))
        for name, wanted, rule in (
            ("head_dim", max(1, head_size), "the same everywhere"),
            ("num_heads_kv", heads, "num_heads: no head shares keys"),
            ("multi_query", False, "false: no head shares keys"),
        ):
            got = take(f"{path}/{name}", wanted)
            if got != wanted:
                raise model.refuse(f"{path}/{name}", rule, got)
    kind = "dot_product_unscaled" if scales == {1.0} else "dot_product"
    hparams |= {
        **model_files.filter_sizes(*widths),
        "attention_key_channels": channels,
        "attention_value_channels": channels,
        "attention_type": kind,
        "max_relative_position": (rows - 1) // 2,
    }


def _attentions(hparams: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield our path and CTranslate2's of each attention."""
    for side in SIDES:
        for i in range(hparams[f"num_{side}_layers"]):
            at = f"{side}/layer_{i}"
            yield f"{at}/self_attention", f"{at}/self_attention"
            if side == "decoder":
                yield f"{at}/cross_attention", f"{at}/attention"


def _scaled_queries(model, hparams, result):
    """Yield projections of queries with their factor within them, by path.

    Our model divides by the square root of the size of a head, unless no
    attention has a factor.
    """
    if hparams["attention_type"] == "dot_product_unscaled":
        return
    channels = hparams["attention_key_channels"] or hparams["hidden_size"]
    default = (channels // hparams["num_heads"]) ** -0.5
    for ours, theirs in _attentions(hparams):
        factor = model.attributes.take(f"{theirs}/queries_scale", default)
        if math.isclose(factor, default, rel_tol=_SCALE_TOLERANCE):
            continue
        for name in ("kernel", "bias"):
            path = f"{ours}/multihead_attention/query/{name}"
            if path in result:
                yield path, result[path] * np.float32(factor / default)


def _positions(model, hparams, size):
    """Set the hparams of positions; return learned tables by path."""
    names = [f"{side}/position_encodings/encodings" for side in SIDES]
    if hparams["max_relative_position"]:
        hparams["pos"] = "none"
        for name in names:  # not read where positions are relative
            model.tensors.take_if_present(name)
        return {}
    tables = [model.tensors.take_if_present(name, -1, size) for name in names]
    if all(table is None for table in tables):
        # src/layers/common.cc, generate_sinusoidal_position_encoding()
        hparams.update(pos="timing", first_position=1)
        return {}
    for name, table in zip(names, tables, strict=True):
        if table is None or not len(table):
            raise errors.UserError(f"{name} has no rows. Convert it again.")
    first, second = map(_formula, tables)
    if first and first == second:
        hparams |= first
        return {}
    hparams |= {"pos": "emb", "first_position": 0}
    return weights.learned_positions(hparams, *map(_without_copies, tables))


def _without_copies(table):
    """Return a table without the copies of the last row at its end."""
    differs = np.flatnonzero((table != table[-1]).any(axis=1))
    return table[: max(differs, default=-1) + 2]


def _formula(table):
    """Return the hparams of the formula that a table [N, D] has; {}: none."""
    if not table.any():
        return {"pos": "none", "first_position": 0}
    if table.shape[1] % 2:
        return {}
    tolerance = _POSITIONS_TOLERANCE * max(1, len(table) / 100)
    for first, name in itertools.product(_FIRST_POSITIONS, _FORMULAS):
        encoded = weights.encode_positions(name, first, table.shape)
        if np.abs(encoded - table).max() <= tolerance:
            return {"pos": name, "first_position": first}
    return {}
