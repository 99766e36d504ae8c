"""Transformers of OpenNMT-tf 2.

    ckpt-500000.index, .data-…  weights, which `checkpoint` may name
    model_description.py        the model, in Python, which is never run
    data.yml                    names the vocabularies; search
    src.vocab, tgt.vocab        a token on each line: <blank>, <s>, </s>, others

One more id, the last, is that of all unknown tokens. Sources: models/,
layers/, encoders/, decoders/, data/vocab.py, inputters/text_inputter.py and
docs/configuration.md of OpenNMT-tf.
"""

import ast
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import arrays, imported, model_files, weights
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported, Side
from t2t_repro.importing.model_files import Setting
from t2t_repro.text import vocabulary
from t2t_repro.text.vocabulary import SpecialTokens

MODEL = "model_description.py"
DATA = "data.yml", "config.yml", "data.yaml", "config.yaml"
_END = "/.ATTRIBUTES/VARIABLE_VALUE"
_NAMES = weights.Names(
    {"norm": "model/{side}/layer_norm/?"},
    {
        "self_attention/{query key value output_projection}": (
            "self_attention/layer/linear_{queries keys values output}/?"
        ),
        "self_attention/norm": "self_attention/{order}_layer_norm/?",
        "cross_attention/{query key value output_projection}": (
            "attention/0/layer/linear_{queries keys values output}/?"
        ),
        "cross_attention/norm": "attention/0/{order}_layer_norm/?",
        "ffn/{filter output_projection}": "ffn/layer/{inner outer}/?",
        "ffn/norm": "ffn/{order}_layer_norm/?",
    },
    at="model/{side}/layers/{i}/",
    dense=(f"kernel{_END}", f"bias{_END}"),
    norm=(f"gamma{_END}", f"beta{_END}"),
    order=("output", "input"),
)
_IGNORED = (
    "_CHECKPOINTABLE_OBJECT_GRAPH",
    r"(save_counter|optimizer)/.*",
    r".*/\.OPTIMIZER_SLOT/.*",
)
_MAX_NUMBER = 10_000
# Arguments of Transformer that the weights do not show, with its defaults.
_ARGUMENTS = {
    "num_heads": Setting(8, "num_heads", lowest=1, below=_MAX_NUMBER),
    "dropout": Setting(0.1, "layer_prepostprocess_dropout", below=1),
    "attention_dropout": Setting(0.1, "attention_dropout", below=1),
    "ffn_dropout": Setting(0.1, "relu_dropout", below=1),
    # "gelu" of opennmt.layers approximates, that of tf.nn does not.
    "ffn_activation": Setting(
        "relu",
        "ffn_activation",
        {
            "relu": "relu",
            "layers.gelu": "gelu_tanh",
            "nn.gelu": "gelu",
            "swish": "silu",
            "silu": "silu",
        },
    ),
}
_POSITIONS = "position_encoder_class"
_POSITION_ENCODERS = "SinusoidalPositionEncoder", "PositionEmbedder"
# One of them, or a call without a reducer, which would replace the sum.
_POSITION_ENCODER = re.compile(
    rf"(lambda: )?([\w.]+\.)?({'|'.join(_POSITION_ENCODERS)})"
    r"(\((maximum_position=)?\d*\))?"
)
# Arguments that the weights show, or that have no effect on outputs.
_SHOWN = """
    source_inputter target_inputter num_layers num_units ffn_inner_dim mha_bias
    pre_norm output_layer_bias share_embeddings attention_reduction
""".split()
_FROM_CATALOG = "get_model_from_catalog"
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
_SEARCH = {
    "beam_width": Setting(4, below=_MAX_NUMBER),  # of auto_config
    "length_penalty": Setting(0.0, "alpha", below=_MAX_NUMBER),
    "minimum_decoding_length": Setting(0, below=_MAX_NUMBER),
}
# Settings of the search that change outputs and have no counterpart here, with
# the only value that is allowed.
_SEARCH_FIXED = {
    # Its sum is not that of GNMT where a word got no attention.
    "coverage_penalty": 0,
    "sampling_topk": 1,
    "decoding_noise": [],
    "replace_unknown_target": False,
}
_FIRST = ["<blank>", "<s>", "</s>"]
_START_ID = 1
_UNKNOWN = "<unk>"
_SIDES = "source", "target"
# Parameters of SentencePiece models in settings of a tokenization, and those of
# samples, which are drawn only in a training.
_MODEL_KEYS = "model", "sp_model_path"
_SAMPLING = "sp_nbest_size", "sp_nbest", "sp_alpha", "nbest_size", "alpha"
_NO_TOKENIZER = "SpaceTokenizer"


def read(path: pathlib.Path) -> Imported:
    """Read a model: a folder of these files, or a checkpoint in it."""
    prefix = arrays.find_checkpoint(path)
    model_file = _find_description(prefix.parent, MODEL)
    data_file = _find_description(prefix.parent, *DATA)
    arguments, hparams = read_model(model_file)
    config = model_files.read_yaml(data_file)
    found = read_vocabularies(config, data_file)
    hparams["encode_eos"] = _encodes_eos(config["data"], data_file)
    tensors = arrays.read_checkpoint_arrays(prefix)
    _set_structure(tensors, arguments, hparams)
    model_weights = _weights(tensors, hparams, found)
    left_over = tensors.refuse_rest(_IGNORED)
    files = arrays.checkpoint_files(prefix)
    return Imported(
        hparams,
        model_weights,
        found,
        read_search(config, data_file),
        (*files, model_file, data_file, *found.files),
        left_over,
    )


def read_search(config: Mapping[str, Any], file: pathlib.Path) -> Any:
    """Return the settings of the search as DecodeHParams."""
    params = config.get("params")
    params = (
        model_files.without_null(params) if isinstance(params, Mapping) else {}
    )
    settings, search = model_files.read_settings(params, _SEARCH, file)
    model_files.require_fixed(file, params, _SEARCH_FIXED)
    shortest = settings["minimum_decoding_length"]  # without EOS
    return search | {
        "beam_size": settings["beam_width"] or 1,
        "min_length": shortest + 1 if shortest else 0,
    }


def _set_structure(tensors, arguments, hparams):
    """Set the hparams that the names and shapes of arrays show."""

    def has(name):
        return f"model/{name}{_END}" in tensors

    first = "encoder/layers/0"
    width = tensors.take(f"model/{first}/ffn/layer/inner/bias{_END}", -1)
    kernel = f"model/{first}/ffn/layer/inner/kernel{_END}"
    is_learned = has("encoder/position_encoder/position_embedding")
    positions = "emb" if is_learned else "timing"
    if arguments[_POSITIONS] is None:
        positions = "none"
    hparams |= {
        "hidden_size": len(tensors.take(kernel, -1, len(width))),
        "filter_size": len(width),
        **weights.count_layers(tensors, _NAMES),
        **model_files.norm_order(has(f"{first}/ffn/input_layer_norm/gamma")),
        "attention_bias": has(
            f"{first}/self_attention/layer/linear_queries/bias"
        ),
        "norm_epsilon": 1e-3,  # default of Keras's LayerNormalization
        "pos": positions,
        "first_position": 1 if positions == "timing" else 0,
    }


def _weights(
    tensors: Tensors, hparams: dict[str, Any], found: FoundVocabularies
) -> dict[str, np.ndarray]:
    """Return all weights by their paths, and complete the hparams."""
    size, rows = hparams["hidden_size"], [len(order) for order in found.orders]
    source, target = _embeddings(tensors, rows, size)
    scope = "model/decoder/output_layer"
    kernel = tensors.take_if_present(f"{scope}/kernel{_END}", size, rows[1])
    bias = tensors.take_if_present(f"{scope}/bias{_END}", rows[1])
    result = imported.matrices(
        found.orders,
        source,
        target,
        target if kernel is None else kernel.T,
        bias,
    )
    result["start"] = target[_START_ID]  # OpenNMT-tf starts with <s>
    hparams |= imported.sharing(result, found.pair)
    if hparams["pos"] == "emb":
        # The last row is that of all positions beyond the table, also here; the
        # first one is never used.
        name = f"model/{{side}}/position_encoder/position_embedding{_END}"
        result |= weights.take_positions(tensors, name, 1, hparams)
    return result | weights.read_stacks(tensors, _NAMES, hparams)


def _embeddings(tensors, rows, size):
    """Return both embeddings, equal where the file has one."""
    names = [
        f"model/examples_inputter/{side}_inputter/embedding{_END}"
        for side in ("features", "labels")
    ]
    there = [name for name in names if name in tensors]
    if len(there) != 1:
        return [*map(tensors.take, names, rows, [size] * 2)]
    if rows[0] != rows[1]:
        rule = "equal, as the embedding"
        raise model_files.refuse("the vocabularies", "size", rule, rows)
    return [tensors.take(there[0], rows[0], size)] * 2


# model_description.py has a model of the catalog,
#
#     model = lambda: models.get_model_from_catalog("TransformerBase")
#
# or a call of Transformer with literal arguments.


def _find_description(folder: pathlib.Path, *names: str) -> pathlib.Path:
    """Return a file of the model's folder, or of the one above.

    Averaged checkpoints are in a folder below.
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


def read_model(file: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of Transformer, and the hparams that they are.

    Raises:
        UserError: it is another model, or has another form.
    """
    with model_files.reading(file):  # a parser of deep code raises any type
        arguments = _parse_model(file)
    activation = str(arguments.get("ffn_activation", "relu"))
    arguments["ffn_activation"] = next(
        (
            name
            for name in _ARGUMENTS["ffn_activation"].values
            if re.fullmatch(rf"([\w.]+\.)?{re.escape(name)}", activation)
        ),
        activation,
    )
    _, hparams = model_files.read_settings(arguments, _ARGUMENTS, file)
    encoder = arguments.setdefault(_POSITIONS, _POSITION_ENCODERS[0])
    if encoder is not None and not _POSITION_ENCODER.fullmatch(str(encoder)):
        rule = f"None, or {' or '.join(_POSITION_ENCODERS)} without a reducer"
        raise model_files.refuse(file, _POSITIONS, rule, encoder)
    return arguments, hparams


def _parse_model(file):
    """Return the arguments in a file that weights do not show."""
    tree = ast.parse(file.read_text("utf-8"))
    made = [node for each in tree.body for node in _model_of(each)]
    name = _name(made[-1]) if made else None
    if len(made) != 1 or name not in (*_CATALOG, _FROM_CATALOG):
        raise model_files.refuse(
            file,
            "the model",
            "one call, of a model of the catalog or of Transformer, such as "
            "model = lambda: opennmt.models.Transformer(num_layers=6, "
            "num_units=512, num_heads=8, ffn_inner_dim=2048) (write what "
            "`model` is in this form, and remove the rest)",
            " and ".join(map(ast.unparse, made)) or "none",
        )
    (call,) = made
    if name == "Transformer":
        return _arguments(call, file)
    if name == _FROM_CATALOG:
        name = _literal(call.args[0]) if call.args else None
        if not isinstance(name, str) or name not in _CATALOG:
            rule = f"one of {', '.join(_CATALOG)}"
            raise model_files.refuse(file, "the model", rule, name)
    elif call.args or call.keywords:
        raise model_files.refuse(file, name, "without arguments", "some")
    return dict(_CATALOG[name])


def _model_of(statement):
    """Return what a statement makes the name `model`, if it does."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name("model")], value=value)
            | ast.AnnAssign(target=ast.Name("model"), value=value)
        ) if value:
            return [value.body if isinstance(value, ast.Lambda) else value]
        case ast.FunctionDef(
            name="model",
            body=[ast.Return(value)]
            | [ast.Expr(ast.Constant()), ast.Return(value)],
        ) if value:
            return [value]
        case ast.FunctionDef(name="model") | ast.ClassDef(name="model"):
            return [statement]
    return []


def _name(node):
    """Return the name of a call's function, without its module."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2]
    return None


def _arguments(call, file):
    """Return the arguments of a call that weights do not show."""
    if len(call.args) > len(_SIDES):  # source_inputter, target_inputter
        raise model_files.refuse(
            file, "Transformer()", "with named arguments", len(call.args)
        )
    found = {}
    for keyword in call.keywords:
        if keyword.arg in (*_ARGUMENTS, _POSITIONS):
            found[keyword.arg] = _literal(keyword.value)
        elif keyword.arg not in _SHOWN:
            value = ast.unparse(keyword.value)
            raise model_files.refuse(file, f"{keyword.arg}", "omitted", value)
    return found


def _literal(node):
    """Return a literal's value, or the source of another expression."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return ast.unparse(node)


def read_vocabularies(
    config: Mapping[str, Any], file: pathlib.Path
) -> FoundVocabularies:
    """Read the vocabularies beside the settings of the data, which name them.

    Raises:
        UserError: a file is missing or damaged, or text is tokenized in a way
            that cannot be represented.
    """
    data = config.get("data")
    if not isinstance(data, Mapping):
        raise errors.UserError(f"{file} has no settings under `data`.")
    sides = []
    for side in _SIDES:
        path = _beside(data, f"{side}_vocabulary", file)
        tokens = _tokens(path)
        unknown = vocabulary.unused_name(_UNKNOWN, tokens)
        special = SpecialTokens("</s>", unknown, "<blank>")
        sides.append(Side([*tokens, unknown], special, path))
    models = [_sentence_piece(data, side, file) for side in _SIDES]
    if (models[0] is None) != (models[1] is None):
        rule = "SentencePiece on both sides, or none"
        raise model_files.refuse(file, "tokenization", rule, "one of them")
    if models[0] is None:
        return imported.map_tokens(sides)
    return imported.map_pieces(models, sides)


def _beside(settings, key, file):
    """Return the file that a setting names."""
    path = settings.get(key)
    if not isinstance(path, str) or not path or "\0" in path:
        raise model_files.refuse(file, key, "the path of a file", path)
    named = model_files.named_file(file.parent, path)
    if not os.path.isfile(named):
        raise errors.UserError(
            f"There is no {named}, {key} in {file}. Copy it there: a file "
            "outside of that folder is not read."
        )
    return named


def _tokens(file: pathlib.Path) -> list[str]:
    """Return the tokens of a vocabulary by their ids."""
    tokens = [line.rstrip("\r") for line in model_files.read_lines(file)]
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
        settings = model_files.read_yaml(name)
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
    parameters = settings  # of OpenNMTTokenizer, where no type is named
    if isinstance(settings, Mapping) and "type" in settings:
        if settings["type"] == _NO_TOKENIZER:
            return None
        parameters = settings.get("params") or {}
    if isinstance(parameters, Mapping):
        keys = [key for key in _MODEL_KEYS if key in parameters]
        rest = {
            name: value
            for name, value in parameters.items()
            if name not in (*keys, *_SAMPLING)
        }
        # Without a mode, OpenNMTTokenizer splits words before SentencePiece.
        is_whole = rest == {"mode": "none"} or (not rest and "model" in keys)
        if keys and is_whole:
            return _beside(parameters, keys[0], file)
    raise model_files.refuse(
        file,
        f"{side}_tokenization",
        f"{_NO_TOKENIZER}, or SentencePiece without other rules: beside "
        "sp_model_path, mode: none",
        settings,
    )


def _encodes_eos(data, file):
    """Return whether sources end in EOS; refuse other marks."""
    controls = [data.get(f"{side}_sequence_controls") for side in _SIDES]
    source, target = (c if isinstance(c, Mapping) else {} for c in controls)
    for name, value, expected in (
        ("source_sequence_controls.start", source.get("start"), False),
        ("target_sequence_controls.start", target.get("start", True), True),
        ("target_sequence_controls.end", target.get("end", True), True),
    ):
        if bool(value) != expected:
            raise model_files.refuse(file, name, str(expected).lower(), value)
    return bool(source.get("end"))
