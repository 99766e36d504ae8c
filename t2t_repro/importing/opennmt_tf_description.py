"""OpenNMT-tf's descriptions: model_description.py, and a YAML of the data.

The Python file is parsed, never run. It has a model of the catalog

    model = lambda: models.get_model_from_catalog("TransformerBase")

or a call of Transformer with literal arguments. Sources: models/catalog.py,
models/transformer.py, config.py, docs/configuration.md of OpenNMT-tf.
"""

import ast
import pathlib
from typing import Any

import yaml

from t2t_repro import errors
from t2t_repro.importing import imported

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


def find(folder: pathlib.Path, *names: str) -> pathlib.Path:
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
