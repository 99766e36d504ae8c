"""Configuration files: the flags of a command, as YAML or JSON.

    problem: multi30k_ende
    problem_args: {vocab_size: 4000}
    hparams_set: multi30k_tiny
    hparams:
      batch_tokens: 4096
    train_steps: 3000

A run.json is one, too: it repeats the training. Flags on the command line
override the file; of `hparams` and the like, only the values that they name.

A configuration file is as powerful as a command line: its usr_dir is imported.
A run.json is not, since a run may come from anyone.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import yaml
from absl import flags

from t2t_repro import errors, registry
from t2t_repro.io import fields, files
from t2t_repro.training.options import Options

# Flags whose value is key=value,key=value: a mapping in the file.
SETTINGS = ("problem_args", "hparams", "decode_hparams")
_BOOLEANS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_RUN_JSON = "run.json"
_RUN = {  # what repeats a run, of its run.json
    "problem": str,
    "problem_arguments": dict,
    "hparams_set": str,
    "hparams": dict,
    "random_seed": int,
    "data_dir": str,
    "manifest_sha256": str,
}


def apply(
    name: str, known: flags.FlagValues = flags.FLAGS
) -> registry.Definitions | None:
    """Set the flags that a file names and the command line does not.

    Args:
        name: path of a file .yaml, .yml or .json.
        known: the flags of the command.

    Returns:
        The definitions of a run.json and of --usr_dir.

    Raises:
        UserError: the file cannot be read, or a flag in it is unknown or has a
            wrong value, or the definitions of a run are not to be loaded.
    """
    path = files.expand_path(name)
    definitions = None
    if path.name == _RUN_JSON:
        run = files.read_json(path, _RUN)
        if "usr_dir" in run:
            stored = registry.stored_folders(run["usr_dir"])
            files.require_json_shape(path, stored, registry.SHAPE)
            definitions = registry.of_run(
                stored,
                path.parent,
                registry.read(*known["usr_dir"].value or ()),
            )
        repeated = _repeated(path, run)
        values = {flag: repeated[flag] for flag in repeated if flag in known}
        _refuse_other_set(known, values)
    else:
        values = _read(path)
    if "config" in values:
        raise errors.UserError(
            f"{path} names another file, by `config`, which is not read. Copy "
            "the flags of that file into this one."
        )
    for flag in values:
        if flag not in known:
            hint = errors.hint(flag, list(known))
            raise errors.UserError(
                f"{path} has {flag!r}, which is not a flag of this command."
                f"{hint} --help lists the flags."
            )
    settings = [(_original(known, name), values[name]) for name in values]
    if name := _repeated_name([flag.name for flag, _ in settings]):
        raise errors.UserError(
            f"{path} has --{name} twice, once by its other name. Omit one."
        )
    try:
        for flag, value in settings:
            _set(flag, value)
        known.validate_all_flags()  # once: some compare several flags
    except (flags.Error, errors.UserError) as error:
        message = message_of(error)
        raise errors.UserError(f"{path}: {message}") from error
    return definitions


def message_of(error: Exception) -> str:
    """Return the message of an error of flags, without Python's quotes."""
    return re.sub(r"\('Non-bool.*\)$", "expected true or false", str(error))


def _original(known, name):
    """Return the flag of a name, which may be an alias of absl."""
    flag = known[name]
    alias = re.fullmatch(r"Alias for --(\w+)\.", flag.help or "")
    return known[alias[1]] if alias else flag


def _refuse_other_set(known, values):
    """Refuse --hparams_set beside a run.json, which has all of its hparams."""
    if "hparams_set" not in values:
        return
    flag = known["hparams_set"]
    if flag.present and flag.value != values["hparams_set"]:
        raise errors.UserError(
            f"A run.json has every hparam of its set, "
            f"{values['hparams_set']!r}; got --hparams_set={flag.value}, of "
            "which nothing would remain. Omit one of the two."
        )


def dump(values: Mapping[str, Any]) -> str:
    """Return flags as YAML that apply() reads."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)


def _read(path: pathlib.Path) -> dict[str, Any]:
    """Read a mapping whose scalars are text: flags know their types."""
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".json":
            values = json.loads(
                text,
                parse_int=str,
                parse_float=str,
                object_pairs_hook=_without_repetition,
            )
        else:
            values = yaml.load(text, _Loader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise errors.UserError(
            f"Cannot read the configuration {path}: {error}"
        ) from error
    if not isinstance(values, dict):
        raise errors.UserError(
            f"A configuration has lines `flag: value`; {path} has "
            f"{errors.shown(values)}."
        )
    return values


def _repeated_name(names):
    """Return the first name that a list has twice, or None."""
    return next((name for name in names if names.count(name) > 1), None)


def _without_repetition(pairs):
    """Return a dict of JSON's pairs; raise a ValueError if a key repeats."""
    if key := _repeated_name([key for key, _ in pairs]):
        raise ValueError(f"{key!r} is given twice.")
    return dict(pairs)


class _Loader(yaml.BaseLoader):
    """YAML whose scalars stay text: `xla: on` is not a boolean here."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict:
        if key := _repeated_name([key.value for key, _ in node.value]):
            raise yaml.YAMLError(f"{key!r} is given twice{node.start_mark}.")
        values = super().construct_mapping(node, deep)  # checks the keys
        nulls = {
            key.value: None for key, value in node.value if _is_null(value)
        }
        return values | nulls


def _is_null(node):
    is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
    return is_plain and node.value in ("", "~", "null")


def _repeated(path, run):
    """Return the flags that repeat the training of a run.json."""
    values = {name: run[name] for name in _RUN}
    arguments = values.pop("problem_arguments")
    values["problem_args"] = _with_vocabulary(path, arguments)
    if not values.pop("manifest_sha256"):  # an imported model has no data
        del values["data_dir"]
    options = run.get("options", {})  # runs of before have none
    files.require_json_shape(path, options, dict)
    known = {field.name for field in dataclasses.fields(Options)}
    if others := sorted(options.keys() - known):  # usr_dir, for example
        raise errors.UserError(
            f"{path} has options that no training has: {', '.join(others)}. "
            "Remove them, or give them as flags."
        )
    return values | options


def _with_vocabulary(path, arguments):
    """Replace a given vocabulary that has moved by the run's copy."""
    from t2t_repro.text import vocabulary_pair

    given = str(arguments.get("vocabulary") or "")
    if all(pathlib.Path(name).exists() for name in given.split(":")):
        return arguments
    separate = bool(arguments.get("separate_vocabularies"))
    copies = vocabulary_pair.paths(path.parent.absolute(), separate)
    if not all(copy.exists() for copy in copies):
        return arguments
    return arguments | {"vocabulary": ":".join(map(str, copies))}


def _set(flag: flags.Flag, value: Any) -> None:
    if value is None:
        return
    if flag.name in SETTINGS:
        if not isinstance(value, dict):
            raise errors.UserError(
                f"{flag.name} must be a mapping of names to values; got "
                f"{errors.shown(value)}."
            )
        given = {
            key: _text(item) for key, item in value.items() if item is not None
        }
        given |= fields.items(flag.value) if flag.present else {}
        flag.unparse()
        flag.parse(fields.join(given))
    elif not flag.present:
        texts = [value]
        if isinstance(flag, flags.MultiFlag):
            texts = _several(value)
        for text in map(_text, texts):
            if flag.boolean:
                text = _BOOLEANS.get(text.lower(), text)
            flag.parse(text)


def _several(value):
    """Return the values of a flag that may be repeated."""
    if isinstance(value, dict):  # {name: {key: value}} is name:key=value
        items = {
            name: {key: _text(item) for key, item in values.items()}
            for name, values in value.items()
            if isinstance(values, dict)
        }
        if items.keys() == value.keys():
            return [f"{name}:{fields.join(items[name])}" for name in items]
    return value if isinstance(value, list) else [value]


def _text(value):
    """Return a value as on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, dict):
        raise errors.UserError(
            f"Expected one value; got {errors.shown(value)}."
        )
    return str(value)
