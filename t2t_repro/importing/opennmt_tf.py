"""Transformers of OpenNMT-tf 2.

    ckpt-500000.index, .data-…      weights, which `checkpoint` may name
    model_description.py            see opennmt_tf_description.py
    data.yml                        names the vocabularies; search
    src.vocab, tgt.vocab            see opennmt_tf_vocabularies.py

Sources: models/transformer.py, layers/transformer.py, layers/embedding.py,
encoders/ and decoders/ of OpenNMT-tf.
"""

import ast
import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import yaml

from t2t_repro import errors
from t2t_repro.importing import arrays, imported, weights
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported
from t2t_repro.text import vocabulary, whitespace_tokens
from t2t_repro.text.sentence_piece import MappedSentencePiece
from t2t_repro.text.vocabulary import SpecialTokens
from t2t_repro.text.vocabulary_pair import Vocabularies
from t2t_repro.text.whitespace_tokens import WhitespaceTokens

_END = "/.ATTRIBUTES/VARIABLE_VALUE"
_EPSILON = 1e-3  # default of Keras's LayerNormalization
_MAX_LAYERS = 1000
_MAX_NUMBER = 10_000  # of a setting of the search
# Settings of the search that change outputs and have no counterpart here, with
# the only value that is allowed.
_SEARCH_FIXED = {
    # Its sum is not that of GNMT where a word got no attention.
    "coverage_penalty": 0,
    "sampling_topk": 1,
    "decoding_noise": [],
    "replace_unknown_target": False,
}
_IGNORED = (
    "_CHECKPOINTABLE_OBJECT_GRAPH",
    r"(save_counter|optimizer)/.*",
    r".*/\.OPTIMIZER_SLOT/.*",
)


def read(path: pathlib.Path) -> Imported:
    """Read a model.

    Args:
        path: folder of the checkpoint, or the checkpoint in it.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    prefix = arrays.find_checkpoint(path)
    model_file = find_description(prefix.parent, MODEL)
    data_file = find_description(prefix.parent, *DATA)
    description = read_model(model_file)
    config = read_yaml(data_file)
    found = read_vocabularies(config, data_file)
    tensors = arrays.read_checkpoint_arrays(prefix)
    changes: dict[str, Any] = {"encode_eos": found.encode_eos}
    model_weights = _Reader(tensors, description, changes).read(found)
    left_over = tensors.refuse_rest(_IGNORED)
    files = arrays.checkpoint_files(prefix)
    return Imported(
        changes,
        model_weights,
        found.pair,
        found.kind,
        _search(config, data_file),
        (*files, model_file, data_file, *found.files),
        left_over=left_over,
    )


def _search(config, file):
    """Return the settings of the search as DecodeHParams."""
    params = config.get("params")
    params = params if isinstance(params, Mapping) else {}
    for name in ("beam_width", "length_penalty", "minimum_decoding_length"):
        value = params.get(name, 0)
        if type(value) not in (int, float) or not 0 <= value < _MAX_NUMBER:
            rule = f"from 0 to {_MAX_NUMBER:,}"
            raise imported.refuse(file, name, rule, value)
    for name, only in _SEARCH_FIXED.items():
        if (value := params.get(name, only)) not in (None, only):
            raise imported.refuse(file, name, repr(only), value)
    shortest = int(params.get("minimum_decoding_length", 0))  # without EOS
    return {
        # That of OpenNMT-tf's auto_config.
        "beam_size": int(params.get("beam_width", 4)) or 1,
        "alpha": float(params.get("length_penalty", 0.0)),
        "min_length": shortest + 1 if shortest else 0,
    }


@dataclasses.dataclass
class _Reader:
    """Arrays of a checkpoint by their roles."""

    tensors: Tensors
    description: Mapping[str, Any]
    changes: dict[str, Any]

    def read(self, found: FoundVocabularies) -> weights.Weights:
        """Return all weights, and complete the changes of hparams."""
        rows = [len(order) for order in found.orders]
        source, target = self._embeddings(rows)
        start = target[START_ID]
        kernel = self._take("decoder/output_layer/kernel")
        softmax = target if kernel is None else kernel.T
        bias = self._take("decoder/output_layer/bias", rows[1])
        self._set_structure(source.shape[1], bias is not None)
        self.changes |= imported.sharing(
            kernel is None, target is source and found.pair.have_same_ids
        )
        source, target, softmax = imported.reorder(
            source, target, softmax, found.orders
        )
        return weights.Weights(
            self._side("encoder", source),
            self._side("decoder", target),
            softmax,
            None if bias is None else imported.rows(bias, found.orders[1]),
            start,
        )

    def _embeddings(self, rows):
        """Return both embeddings, one object where the file has one."""
        found = [
            self._take(f"examples_inputter/{side}_inputter/embedding", n, -1)
            for side, n in zip(("features", "labels"), rows, strict=True)
        ]
        present = [array for array in found if array is not None]
        if not present:
            self._need("examples_inputter/features_inputter/embedding")
        if len(present) == 1 and rows[0] != rows[1]:
            raise imported.refuse(
                "the vocabularies", "size", "equal, as the embedding", rows
            )
        return found[0] if found[0] is not None else present[0], present[-1]

    def _set_structure(self, size, softmax_bias):
        """Set the hparams that the names and shapes of arrays show."""
        layers = [self._count(side) for side in ("encoder", "decoder")]
        first = "encoder/layers/0"
        width = self._need(f"{first}/ffn/layer/inner/bias", -1)
        pre_norm = self._has(f"{first}/ffn/input_layer_norm/gamma")
        learned = self._has("encoder/position_encoder/position_embedding")
        positions = "emb" if learned else "timing"
        if self.description["position_encoder_class"] is None:
            positions = "none"
        attention = f"{first}/self_attention/layer/linear_queries/bias"
        self.changes |= {
            "hidden_size": size,
            "filter_size": len(width),
            "num_heads": self.description["num_heads"],
            **imported.layer_counts(*layers),
            "attention_bias": self._has(attention),
            "softmax_bias": softmax_bias,
            "ffn_activation": self.description["ffn_activation"],
            "norm_epsilon": _EPSILON,
            "learned_start": True,  # OpenNMT-tf starts with <s>
            "pos": positions,
            "first_position": 1 if positions == "timing" else 0,
            **imported.norm_order(pre_norm),
            "layer_prepostprocess_dropout": float(self.description["dropout"]),
            "attention_dropout": float(self.description["attention_dropout"]),
            "relu_dropout": float(self.description["ffn_dropout"]),
        }

    def _count(self, side):
        pattern = rf"model/{side}/layers/([0-9]{{1,4}})/.*{re.escape(_END)}"
        numbers = {
            int(name.split("/")[3]) for name in self.tensors.names(pattern)
        }
        count = len(numbers)
        if not numbers or count > _MAX_LAYERS:
            self._need(f"{side}/layers/0/ffn/layer/inner/kernel")
        return count

    def _side(self, side, embedding):
        pre_norm = self.changes["layer_preprocess_sequence"] == "n"
        final_norm = self._norm(f"{side}/layer_norm") if pre_norm else None
        positions = None
        if self.changes["pos"] == "emb":
            name = f"{side}/position_encoder/position_embedding"
            # The first row is never used; the last is that of all positions
            # beyond the table, also here.
            table = self._need(name, -1, self.changes["hidden_size"])[1:]
            if not len(table):
                raise imported.refuse("the weights", name, "two rows", 1)
            (positions,) = weights.pad_positions([table])
            self.changes["max_length"] = len(positions)
        layers = [
            self._layer(f"{side}/layers/{i}", side == "decoder")
            for i in range(self.changes[f"num_{side}_layers"])
        ]
        return weights.Side(embedding, layers, final_norm, None, positions)

    def _layer(self, path, is_decoder):
        size, width = self.changes["hidden_size"], self.changes["filter_size"]
        cross = f"{path}/attention/0"
        return weights.Layer(
            self._attention(f"{path}/self_attention"),
            self._sublayer_norm(f"{path}/self_attention"),
            self._dense(f"{path}/ffn/layer/inner", size, width),
            self._dense(f"{path}/ffn/layer/outer", width, size),
            self._sublayer_norm(f"{path}/ffn"),
            self._attention(cross) if is_decoder else None,
            self._sublayer_norm(cross) if is_decoder else None,
        )

    def _attention(self, path):
        size = self.changes["hidden_size"]
        return weights.Attention(
            *(
                self._dense(f"{path}/layer/linear_{name}", size, size)
                for name in ("queries", "keys", "values", "output")
            )
        )

    def _dense(self, path, inputs, outputs):
        return weights.Dense(
            self._need(f"{path}/kernel", inputs, outputs),
            self._take(f"{path}/bias", outputs),
        )

    def _sublayer_norm(self, path):
        pre_norm = self.changes["layer_preprocess_sequence"] == "n"
        kind = "input" if pre_norm else "output"
        return self._norm(f"{path}/{kind}_layer_norm")

    def _norm(self, path):
        size = self.changes["hidden_size"]
        gamma = self._need(f"{path}/gamma", size)
        return weights.Norm(gamma, self._need(f"{path}/beta", size))

    def _has(self, name):
        return f"model/{name}{_END}" in self.tensors

    def _take(self, name, *shape):
        return self.tensors.take_if_present(f"model/{name}{_END}", *shape)

    def _need(self, name, *shape):
        return self.tensors.take(f"model/{name}{_END}", *shape)


# OpenNMT-tf's descriptions: model_description.py, and a YAML of the data.
#
# The Python file is parsed, never run. It has a model of the catalog
#
#     model = lambda: models.get_model_from_catalog("TransformerBase")
#
# or a call of Transformer with literal arguments. Sources: models/catalog.py,
# models/transformer.py, config.py, docs/configuration.md of OpenNMT-tf.

MODEL = "model_description.py"
DATA = "data.yml", "config.yml", "data.yaml", "config.yaml"
_CATALOG: dict[str, dict[str, Any]] = {
    "Transformer": {},
    "TransformerBase": {},
    "TransformerBaseSharedEmbeddings": {},
    "TransformerBig": {"num_heads": 16},
    "TransformerBigSharedEmbeddings": {"num_heads": 16},
    "TransformerTiny": {"num_heads": 2},
    "ScalingNmtEnDe": {"num_heads": 16, "dropout": 0.3, "ffn_dropout": 0.0},
    "ScalingNmtEnFr": {
        "num_heads": 16,
        "attention_dropout": 0.0,
        "ffn_dropout": 0.0,
    },
}
_MAX_HEADS = 10_000
_FROM_CATALOG = "get_model_from_catalog"
# Arguments of Transformer that the weights do not show, with its defaults.
_DEFAULTS: dict[str, Any] = {
    "num_heads": 8,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "ffn_dropout": 0.1,
    "ffn_activation": "relu",
    "position_encoder_class": "SinusoidalPositionEncoder",
}
# "gelu" of opennmt.layers approximates, that of tf.nn does not.
_ACTIVATIONS = {
    "relu": "relu",
    "layers.gelu": "gelu_tanh",
    "opennmt.layers.gelu": "gelu_tanh",
    "nn.gelu": "gelu",
    "swish": "silu",
    "silu": "silu",
}
# Arguments that the weights show, or that have no effect on outputs.
_SHOWN = {
    "source_inputter",
    "target_inputter",
    "num_layers",
    "num_units",
    "ffn_inner_dim",
    "mha_bias",
    "pre_norm",
    "output_layer_bias",
    "share_embeddings",
    "attention_reduction",
}


def find_description(folder: pathlib.Path, *names: str) -> pathlib.Path:
    """Return a file of the model's folder, or of the one above.

    Averaged checkpoints are in a folder below.

    Raises:
        UserError: there is none.
    """
    for place in (folder, folder.parent):
        for name in names:
            if (place / name).is_file():
                return place / name
    raise errors.UserError(
        f"Neither {folder} nor the folder above has {' or '.join(names)}. "
        f"{MODEL} is in OpenNMT-tf's model_dir, or write\n"
        "    from opennmt import models\n"
        '    model = lambda: models.get_model_from_catalog("TransformerBase")\n'
        f"{DATA[0]} is the --config of the training, or write\n"
        "    data: {source_vocabulary: src.vocab, target_vocabulary: tgt.vocab}"
    )


def read_model(file: pathlib.Path) -> dict[str, Any]:
    """Return the arguments of Transformer that weights do not show.

    Raises:
        UserError: it is another model, or has another form.
    """
    try:
        return _read_model(file)
    except errors.UserError:
        raise
    except Exception as error:  # a parser of deep code raises any type
        reason = str(error) or type(error).__name__
        raise errors.UserError(f"Cannot read {file}: {reason}.") from error


def _read_model(file):
    tree = ast.parse(file.read_text("utf-8"))
    calls = [
        call
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and _name(call) in (*_CATALOG, _FROM_CATALOG)
    ]
    if len(calls) != 1:
        lines = ", ".join(map(str, sorted(call.lineno for call in calls)))
        raise imported.refuse(
            file,
            "the model",
            "one call, of a model of the catalog or of Transformer, such as "
            "model = lambda: opennmt.models.Transformer(num_layers=6, "
            "num_units=512, num_heads=8, ffn_inner_dim=2048) (write what "
            "`model` is in this form, and remove the rest)",
            f"{len(calls)} calls, on lines {lines}" if lines else "none",
        )
    (call,) = calls
    name = _name(call)
    if name == "Transformer":
        return _checked(_arguments(call, file), file)
    if name == _FROM_CATALOG:
        name = _literal(call.args[0]) if call.args else None
        if not isinstance(name, str) or name not in _CATALOG:
            raise imported.refuse(
                file, "the model", f"one of {', '.join(_CATALOG)}", name
            )
    return _checked(_CATALOG[name], file)


def _name(call):
    """Return the name of a call's function, without its module."""
    return ast.unparse(call.func).rpartition(".")[2]


def _arguments(call, file):
    """Return the arguments of a call that weights do not show."""
    found = {}
    positional = ["source_inputter", "target_inputter"]
    if len(call.args) > len(positional):
        raise imported.refuse(
            file, "Transformer()", "with named arguments", len(call.args)
        )
    for keyword in call.keywords:
        if keyword.arg in _SHOWN:
            continue
        if keyword.arg not in _DEFAULTS:
            raise imported.refuse(
                file, f"{keyword.arg}", "omitted", ast.unparse(keyword.value)
            )
        found[keyword.arg] = _literal(keyword.value)
    return found


def _literal(node):
    """Return a literal's value, or the source of another expression."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return ast.unparse(node)


def _checked(found: dict[str, Any], file: pathlib.Path) -> dict[str, Any]:
    settings = _DEFAULTS | found
    activation = str(settings["ffn_activation"])
    names = [
        name
        for name in _ACTIVATIONS
        if activation == name or activation.endswith(f".{name}")
    ]
    heads, encoder = settings["num_heads"], settings["position_encoder_class"]
    known = "SinusoidalPositionEncoder", "PositionEmbedder"
    dropouts = [settings[k] for k in _DEFAULTS if k.endswith("dropout")]
    for name, is_right, rule in (
        (
            "num_heads",
            type(heads) is int and 1 <= heads < _MAX_HEADS,
            f"a number from 1, below {_MAX_HEADS:,}",
        ),
        ("ffn_activation", names, f"one of {', '.join(_ACTIVATIONS)}"),
        (
            "position_encoder_class",
            encoder is None or any(k in str(encoder) for k in known),
            f"None or one of {', '.join(known)}",
        ),
        (
            "dropout",
            all(type(d) in (int, float) and 0 <= d < 1 for d in dropouts),
            "a number of at least 0, below 1",
        ),
    ):
        if not is_right:
            raise imported.refuse(file, name, rule, settings[name])
    return settings | {"ffn_activation": _ACTIVATIONS[names[0]]}


def read_yaml(file: pathlib.Path) -> dict[str, Any]:
    """Return the content of a YAML file.

    Raises:
        UserError: it cannot be read, or is no mapping.
    """
    try:
        content = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise errors.UserError(f"Cannot read {file}: {error}.") from error
    if not isinstance(content, dict):
        raise errors.UserError(
            f"{file} must have settings by their names; got "
            f"{type(content).__name__}."
        )
    return content


# Vocabularies of OpenNMT-tf, and what its settings of the data say of text.
#
# A file has a token on each line: <blank>, <s>, </s>, then the others. One more
# id, the last, is that of all unknown tokens. Source: data/vocab.py and
# inputters/text_inputter.py of OpenNMT-tf.

_FIRST = ["<blank>", "<s>", "</s>"]
START_ID = 1
_UNKNOWN = "<unk>"
_SIDES = "source", "target"
# Parameters of SentencePiece models in settings of a tokenization.
_MODEL_KEYS = "model", "sp_model_path"
_NO_TOKENIZER = "SpaceTokenizer"


def read_vocabularies(
    config: Mapping[str, Any], file: pathlib.Path
) -> FoundVocabularies:
    """Read the vocabularies that the settings of the data name.

    Args:
        config: content of the file.
        file: its path, beside which the other files are.

    Raises:
        UserError: a file is missing or damaged, or text is tokenized in a way
            that cannot be represented.
    """
    data = config.get("data")
    if not isinstance(data, Mapping):
        raise errors.UserError(f"{file} has no settings under `data`.")
    files = [_beside(data, f"{side}_vocabulary", file) for side in _SIDES]
    tokens = [_tokens(path) for path in files]
    models = [_sentence_piece(data, side, file) for side in _SIDES]
    encode_eos = _encodes_eos(data, file)
    unknown = [vocabulary.unused_name(_UNKNOWN, names) for names in tokens]
    lists = [[*t, name] for t, name in zip(tokens, unknown, strict=True)]
    special = [SpecialTokens("</s>", name, "<blank>") for name in unknown]
    if (models[0] is None) != (models[1] is None):
        raise imported.refuse(
            file,
            "tokenization",
            "SentencePiece on both sides, or none",
            "one of them",
        )
    if models[0] is None:
        mapped = [
            whitespace_tokens.map_ids(*side)
            for side in zip(lists, special, strict=True)
        ]
        sides: list[Any] = [WhitespaceTokens(model) for model, _ in mapped]
        orders = [order for _, order in mapped]
        kind = "whitespace_tokens"
    else:
        pieces = [
            imported.map_ids(*side)
            for side in zip(models, lists, special, files, strict=True)
        ]
        sides = [MappedSentencePiece(one.model) for one in pieces]
        orders = [one.order for one in pieces]
        kind = "mapped_sentence_piece"
    used = dict.fromkeys([*files, *(m for m in models if m)])
    return FoundVocabularies(
        Vocabularies.of(*sides), kind, orders, list(used), encode_eos
    )


def _beside(settings, key, file):
    """Return the file that a setting names."""
    path = settings.get(key)
    if not isinstance(path, str) or not path or "\0" in path:
        raise imported.refuse(file, key, "the path of a file", path)
    named = imported.named_file(file.parent, path)
    if not os.path.isfile(named):
        raise errors.UserError(
            f"There is no {named}, {key} in {file}. Copy it there: a file "
            "outside of that folder is not read."
        )
    return named


def _tokens(file: pathlib.Path) -> list[str]:
    """Return the tokens of a vocabulary by their ids."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise errors.UserError(f"Cannot read {file}: {error}.") from error
    lines = text.removesuffix("\n").split("\n")
    tokens = [line.rstrip("\r") for line in lines]
    if tokens[: len(_FIRST)] != _FIRST or len(set(tokens)) < len(tokens):
        raise errors.UserError(
            f"{file} must have each token once, {', '.join(_FIRST)} first; "
            f"got {tokens[:3]} and {len(tokens) - len(set(tokens))} "
            "repetitions."
        )
    return tokens


def _sentence_piece(data, side, file):
    """Return the SentencePiece model of a side; None: text has tokens.

    Where the settings name no tokenization, a model beside them is meant.
    """
    settings = data.get(f"{side}_tokenization")
    if isinstance(settings, str):
        name = _beside(data, f"{side}_tokenization", file)
        settings = read_yaml(name)
    if not settings:
        beside = sorted(
            path
            for path in file.parent.iterdir()
            if path.suffix in (".model", ".spm") and path.is_file()
        )
        if len(beside) > 1:
            raise errors.UserError(
                f"{file.parent} has {len(beside)} SentencePiece models. Name "
                f"one in {file}: {side}_tokenization: {{type: "
                f"SentencePieceTokenizer, params: {{model: {beside[0].name}}}}}"
            )
        return beside[0] if beside else None
    kind = "OpenNMTTokenizer"
    parameters = settings
    if isinstance(settings, Mapping) and "type" in settings:
        kind, parameters = settings["type"], settings.get("params") or {}
    if kind == _NO_TOKENIZER:
        return None
    if isinstance(parameters, Mapping):
        keys = [key for key in _MODEL_KEYS if key in parameters]
        rest = {k: v for k, v in parameters.items() if k not in _MODEL_KEYS}
        # Samples, which only a training draws.
        rest = {k: v for k, v in rest.items() if not k.startswith("sp_nbest")}
        if keys and rest in ({}, {"mode": "none"}):
            return _beside(parameters, keys[0], file)
    raise imported.refuse(
        file,
        f"{side}_tokenization",
        f"{_NO_TOKENIZER}, or SentencePiece without other rules",
        settings,
    )


def _encodes_eos(data, file):
    """Return whether sources end in EOS; refuse other marks."""
    controls = {side: data.get(f"{side}_sequence_controls") for side in _SIDES}
    source, target = (
        value if isinstance(value, Mapping) else {}
        for value in controls.values()
    )
    for name, value, expected in (
        ("source_sequence_controls.start", source.get("start"), False),
        ("target_sequence_controls.start", target.get("start", True), True),
        ("target_sequence_controls.end", target.get("end", True), True),
    ):
        if bool(value) != expected:
            raise imported.refuse(file, name, str(expected).lower(), value)
    return bool(source.get("end"))
