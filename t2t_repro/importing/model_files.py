"""Files of other systems' models, and checks of the settings in them."""

import contextlib
import json
import os
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from t2t_repro import errors
from t2t_repro.io import files

# None of these runs code of a file. Scalars stay text, or become values.
_TEXTS = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_VALUES = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_file(folder: pathlib.Path, *names: str) -> pathlib.Path:
    """Return the first of the files that is in a folder.

    Raises:
        UserError: there is none.
    """
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise errors.UserError(
        f"{folder} has no {' or '.join(names)}. Name the folder of the model: "
        "--input=…."
    )


def named_file(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Return the path of a file that another file of a model names.

    It is the path where the model was trained, perhaps on another machine.
    What lies outside of the model's folder is no part of the model, and would
    be shown in errors or become a part of the run.
    """
    path = pathlib.PurePath(name)
    is_inside = not path.is_absolute() and ".." not in path.parts
    if is_inside and os.path.isfile(folder / path):
        return folder / path
    return folder / path.name


def read_json(file: pathlib.Path, shape: Any) -> Any:
    """Call files.read_json() on a file of another program."""
    remedy = "Download or convert the model again."
    return files.read_json(file, shape, remedy)


def read_tokens(file: pathlib.Path) -> list[str]:
    """Return the tokens of a JSON file {token: id} by their ids."""
    return tokens_by_id(read_json(file, {str: int}), file)


def tokens_by_id(ids: Mapping[str, int], file: pathlib.Path) -> list[str]:
    """Return tokens by their ids, of a file.

    Raises:
        UserError: an id is missing, or used twice.
    """
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise errors.UserError(
            f"The ids in {file} must be 0, 1, 2, … {len(tokens) - 1:,}; some "
            "are missing or used twice."
        )
    return tokens


def read_yaml(file: pathlib.Path, is_text: bool = False) -> dict[str, Any]:
    """Call parse_yaml() on a file."""
    return parse_yaml(files.read_bytes(file), file, is_text)


def parse_yaml(
    content: bytes, file: pathlib.Path | str, is_text: bool = False
) -> dict[str, Any]:
    """Return a mapping of names in YAML.

    Args:
        content: the YAML; of a file .json, the JSON: YAML has no pairs of
            surrogates.
        file: path of the file, for errors.
        is_text: whether all scalars stay text, as of tokens.

    Raises:
        UserError: it cannot be read, or is no such mapping.
    """
    with reading(file):
        if str(file).endswith(".json"):
            parse = str if is_text else None
            values = json.loads(content, parse_int=parse, parse_float=parse)
        else:
            values = yaml.load(content, _TEXTS if is_text else _VALUES)
    if not isinstance(values, dict) or not all(
        isinstance(key, str) for key in values
    ):
        raise errors.UserError(
            f"{file} must have lines `name: value`; got {errors.shown(values)}."
        )
    return values


def read_lines(file: pathlib.Path, newline: str | None = None) -> list[str]:
    """Return the lines of a file in UTF-8, without an empty last one.

    `newline` is that of open(): by "", carriage returns are no line ends.

    Raises:
        UserError: it cannot be read.
    """
    with reading(file), file.open(encoding="utf-8", newline=newline) as opened:
        return opened.read().removesuffix("\n").split("\n")


@contextlib.contextmanager
def reading(file: pathlib.Path | str, kind: str = "") -> Iterator[None]:
    """Raise a UserError instead of what a library raises over a file.

    The content of a damaged file, or of a hostile one, makes libraries raise
    errors of any type.

    `kind` is what it should be, such as "a model of Marian".
    """
    try:
        yield
    except errors.UserError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise unreadable(file, reason, kind) from error


def unreadable(file: Any, reason: Any, kind: str = "") -> errors.UserError:
    """Return the error of a file that is damaged, or of another program."""
    as_it = f" as {kind}" if kind else ""
    return errors.UserError(
        f"The file {file} cannot be read{as_it}: {reason}. Download it again."
    )


class Content:
    """Content of a binary file, taken from its beginning to its end."""

    def __init__(self, file: pathlib.Path):
        """Read the file."""
        self._content = files.read_bytes(file)
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that were not taken."""
        return len(self._content) - self._at

    def take(self, dtype: Any, count: int) -> np.ndarray:
        """Return the next `count` numbers.

        Raises:
            ValueError: the file ends before.
        """
        size = count * np.dtype(dtype).itemsize
        if size > self.left:
            raise ValueError(
                f"it ends within {size:,} bytes that begin at byte {self._at:,}"
            )
        found: np.ndarray = np.frombuffer(self._content, dtype, count, self._at)
        self._at += size
        return found

    def number(self, dtype: Any) -> int:
        """Return the next number, as of take()."""
        return int(self.take(dtype, 1)[0])


# Settings in these files, and the hparams that they are.

LIMIT = 10**6  # of numbers


class Setting(NamedTuple):
    """Values that a setting of another system may have, and its hparam."""

    # Value of one that is absent; its type is that of all values. A type: the
    # setting must be given.
    default: Any
    hparam: str = ""  # "": none, or one that depends on other settings, too
    # The only values, and what each is as the hparam; empty: any value.
    values: Mapping[Any, Any] | Sequence[Any] = ()
    lowest: float = 0  # of a number
    below: float = LIMIT


def read_settings(
    given: Mapping[str, Any], table: Mapping[str, Setting], file: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check settings, and fill in defaults.

    Args:
        given: values by name; others than those of the table are ignored.
        table: the settings.
        file: path of the file that has them, for errors.

    Returns:
        The settings of the table, and the hparams that they are.

    Raises:
        UserError: a value is of another type, or none of those in the table.
    """
    settings, hparams = {}, {}
    for name, setting in table.items():
        is_needed = isinstance(setting.default, type)
        kind = setting.default if is_needed else type(setting.default)
        value = given.get(name, None if is_needed else setting.default)
        if not _is_of_type(value, kind):
            raise refuse(file, name, f"of type {kind.__name__}", value)
        if isinstance(value, int | float) and kind is not bool:
            lowest, below = setting.lowest, setting.below
            if not lowest <= value < below:
                rule = f"at least {lowest:,}, and below {below:,}"
                raise refuse(file, name, rule, value)
        if setting.values and value not in setting.values:
            raise refuse(file, name, one_of(setting.values), value)
        settings[name] = value = kind(value)
        if setting.hparam:
            ours = setting.values
            is_map = isinstance(ours, Mapping)
            hparams[setting.hparam] = ours[value] if is_map else value
    return settings, hparams


def without_null(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those for which null is the default."""
    return {name: value for name, value in values.items() if value is not None}


def _is_of_type(value, kind):
    """Return whether a value is of a type; 0 and 1 are flags, too."""
    if kind is bool:
        return type(value) in (bool, int) and value in (0, 1)
    return type(value) is kind or (kind is float and type(value) is int)


def one_of(values: Iterable[Any]) -> str:
    """Return the rule of a setting with a few values."""
    names = [*map(repr, values)]
    return f"one of {', '.join(names)}" if names[1:] else names[0]


def require(
    file: Any, values: Mapping[str, Any], name: str, is_right: Any, rule: str
) -> None:
    """Refuse a setting that is not right; `rule` is what it must be.

    `values` are the settings by name, and `file` is their path, for errors.
    """
    if not is_right:
        raise refuse(file, name, rule, values.get(name))


def require_fixed(
    file: Any,
    values: Mapping[str, Any],
    fixed: Mapping[str, Any],
    same: Sequence[Any] = (),
) -> None:
    """Refuse values of settings without counterpart that change outputs.

    Args:
        file: as of require().
        values: settings by name; an absent one is right.
        fixed: the only value of each.
        same: other values that mean the same.
    """
    for name, only in fixed.items():
        rule = "null" if only is None else repr(only)
        is_right = values.get(name, only) in (only, *same)
        require(file, values, name, is_right, rule)


def require_off(
    file: Any, values: Mapping[str, Any], names: Iterable[str]
) -> None:
    """Refuse settings without counterpart that are not false, 0 or absent."""
    for name in names:
        require(file, values, name, not values.get(name), "false or 0")


def require_same(
    file: Any,
    values: Mapping[str, Any],
    settings: Mapping[str, Any],
    same: Mapping[str, str],
) -> None:
    """Refuse settings that are given and differ from others, with defaults.

    `same` has the name of the other one of each.
    """
    for name, other in same.items():
        wanted = settings[other]
        is_right = values.get(name, wanted) == wanted
        require(file, values, name, is_right, f"{other} ({wanted!r})")


def refuse(file: Any, name: str, rule: str, got: Any) -> errors.UserError:
    """Return the error of a setting in a file that must be something else."""
    return errors.UserError(
        f"This model cannot be imported: {name} in {file} must be {rule}; got "
        f"{errors.shown(got)}."
    )


def refuse_rest(file: Any, kind: str, rest: Collection[str]) -> None:
    """Refuse "arrays" or "attributes" of these names, if there are any."""
    if rest:
        more = f" and {len(rest) - 5} more" if len(rest) > 5 else ""
        raise errors.UserError(
            f"{file} has {kind} that no hparam of the Transformer stands for: "
            f"{', '.join(sorted(rest)[:5])}{more}. Such a model cannot be "
            "imported."
        )


def layer_counts(encoder: int, decoder: int) -> dict[str, int]:
    """Return the hparams of the numbers of layers."""
    return {
        "num_hidden_layers": max(encoder, decoder),
        "num_encoder_layers": encoder,
        "num_decoder_layers": decoder,
    }


def filter_sizes(encoder: int, decoder: int) -> dict[str, int]:
    """Return the hparams of the widths F; the decoder's 0 is the encoder's."""
    different = decoder if decoder != encoder else 0
    return {"filter_size": encoder, "decoder_filter_size": different}


def norm_order(pre_norm: bool) -> dict[str, str]:
    """Return the hparams of normalized inputs of sublayers, or of outputs."""
    return {
        "layer_preprocess_sequence": "n" if pre_norm else "none",
        "layer_postprocess_sequence": "da" if pre_norm else "dan",
    }
