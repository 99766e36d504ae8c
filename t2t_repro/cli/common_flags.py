"""Flags that several commands share, and their types.

Hyperparameters are set by one flag, --hparams=key=value. Only commands read
flags.
"""

import dataclasses
import inspect
import math
import os
import pathlib
import re
import shlex
import sys
import typing
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from absl import flags

from t2t_repro import errors, hparam, registry
from t2t_repro.cli import config_file
from t2t_repro.data.settings import Data
from t2t_repro.io import fields, files, storage

# Commands declare their options with these and options().
from t2t_repro.io.fields import at_least as at_least
from t2t_repro.io.fields import at_most as at_most
from t2t_repro.io.fields import flag as flag
from t2t_repro.io.fields import one_of as one_of
from t2t_repro.problem import Problem, build_problem
from t2t_repro.text import languages, parallel_files

if TYPE_CHECKING:
    from t2t_repro.runs.run import Run

# Types of flags: settings dataclasses, lists, finite numbers, UTF-8 text.

# Flags that are not part of a recorded command.
_OF_MACHINE = (
    *("data_dir", "output_dir", "raw_dir", "results_dir"),
    *("machine", "processes"),
)
# The folder of an absolute path, where an argument or a part of it begins.
_FOLDER = re.compile(r"(?<![^=:,\s])(?:~|/(?!/))[^=:,]*/")
_MAX_INT = 2**31 - 1  # TensorFlow counts steps with 32 bits
# The functions define flags of the command that calls them.
flags.disclaim_key_flags()
_Settings = TypeVar("_Settings")
# Types of fields with several values, which are separated by commas, or each
# have the flag before them.
List: TypeAlias = tuple[str, ...]
Paths: TypeAlias = tuple[str | pathlib.Path, ...]
Repeated: TypeAlias = Sequence[str]


def options(cls: type[_Settings]) -> type[_Settings]:
    """Make a class a frozen dataclass, each field of which is a flag."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    define_fields(cls)
    return cls


def define_fields(cls: type, names: Container[str] | None = None) -> None:
    """Define a flag for each field of a settings dataclass.

    A field is a bool, int, float or str, one of these or None, or of several
    values: see List. An int has 32 bits, unless it has an upper bound, which
    may be math.inf.

    Args:
        cls: the class. An underscore at the end of the name of a field, which
            would be a keyword of Python, is not part of the flag.
        names: the fields that are flags; None: all.
    """
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if names is None or field.name in names:
            _define_field(field, hints[field.name])


def _define_field(field, hint):
    name, text = field.name.rstrip("_"), field.metadata[fields.HELP]
    bounds = fields.constraints_of(field)
    choices = [choice for bound in bounds for choice in bound.choices]
    low = max((b.low for b in bounds if b.low is not None), default=None)
    high = min((b.high for b in bounds if b.high is not None), default=None)
    kinds, named = fields.kinds_of(hint), (name, field.default)
    if choices:
        flags.DEFINE_enum(*named, choices, text)
    elif hint == Repeated:
        flags.DEFINE_multi_string(name, [], text)
    elif hint in (List, Paths):
        parser = _PathsParser() if hint == Paths else flags.ListParser()
        serializer = flags.CsvListSerializer(",")
        flags.DEFINE_flag(_AdditiveFlag(parser, serializer, name, [], text))
    elif kinds == [int]:
        high = None if high == math.inf else high or _MAX_INT
        flags.DEFINE_integer(*named, text, low or 0, high)
    elif kinds == [float]:
        flags.register_validator(
            flags.DEFINE_float(*named, text, low, high),
            lambda value: value is None or math.isfinite(value),
            "must be a finite number",
        )
    elif kinds == [bool]:
        flags.DEFINE_bool(*named, text)
    else:
        flags.DEFINE_string(*named, text)


def field_values(cls: Callable[..., _Settings]) -> _Settings:
    """Return the settings of the flags that define_fields() defines."""
    names = inspect.signature(cls).parameters
    return cls(
        **{name: getattr(flags.FLAGS, name.rstrip("_")) for name in names}
    )


class _AdditiveFlag(flags.Flag):
    """Flag whose repetitions add up; absl's last one would replace the others.

    Its value is a list, or text with commas between the items.
    """

    def parse(self, argument: Any) -> None:
        """Add the items of an argument to those of earlier ones."""
        known = self.value if self.present else None
        super().parse(argument)
        if known:
            items = isinstance(known, list)
            self.value = (
                known + self.value if items else f"{known},{self.value}"
            )


def define_items(name: str, default: str | None, text: str) -> flags.FlagHolder:
    """Define a flag of text with commas between its items."""
    parser = flags.ArgumentParser[str]()
    serializer = flags.ArgumentSerializer[str]()
    return flags.DEFINE_flag(
        _AdditiveFlag(parser, serializer, name, default, text)
    )


class _PathsParser(flags.ListParser):
    """Parser of a list of paths, whose names may have commas."""

    def parse(self, argument: str | list[str]) -> list[str]:
        """Return the paths; quotes are those of CSV, as in other lists."""
        if not argument or isinstance(argument, list) or '"' in argument:
            return super().parse(argument)
        return files.split_paths(argument)


def require_utf8(name: str) -> list[str]:
    """Return the values of a flag, which must be UTF-8."""
    value: list[str] | str | None = getattr(flags.FLAGS, name)
    lines = [value] if isinstance(value, str) else value or []
    for line in lines:
        if not parallel_files.is_text(line):
            raise errors.UserError(
                f"--{name} is not UTF-8: {line[:80]!a}. Convert it, e.g. with "
                "iconv."
            )
    return lines


# Help of --target_language, of the commands that translate a user's text.
TARGET_LANGUAGE = (
    "With a many-to-many model: language of the translations, such as de, of "
    "lines that do not begin with a tag such as <2de>."
)
SOURCE_LANGUAGE = (
    "With --target_language, and a model that reads the language of its "
    "sources, such as NLLB: that language, by default the run's."
)


def direction(options: Any) -> str:
    """Return --source_language and --target_language: "en-de", "de" or "".

    Raises:
        UserError: there is a source alone, or two different ones.
    """
    source, target = (
        options.source_language or "",
        options.target_language or "",
    )
    source, target = languages.chosen_direction(target, source)
    if source and not target:
        raise errors.UserError(
            f"--source_language={source} needs --target_language. Give both."
        )
    return f"{source}-{target}" if source else target


# Groups of flags for run(), in commands that open a run.
RUN = {
    "Required: --output_dir, or --problem and --hparams_set": (
        "output_dir",
        "problem",
        "hparams_set",
    ),
    "Checks: refused where the run has other values": (
        "problem_args",
        "hparams",
    ),
}

_PROBLEM = flags.DEFINE_string(
    "problem",
    None,
    "Name of the problem: data and languages. X_rev swaps X's languages; "
    "--registry_help lists all.",
)
_PROBLEM_ARGS = define_items(
    "problem_args",
    "",
    "Arguments of the problem; t2t datagen --help lists their names.",
)
_HPARAMS_SET = flags.DEFINE_string(
    "hparams_set",
    None,
    "Name of the hparams set: model and training; of a sweep several, "
    "comma-separated. --registry_help lists all.",
)
_HPARAMS = define_items(
    "hparams",
    "",
    "Hparams that differ from the set's; t2t trainer --help lists their names.",
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    "~/t2t_data",
    "Folder for generated data and downloads. This folder and --raw_dir, "
    "--output_dir and --export_dir may be URLs, s3://BUCKET/FOLDER or "
    "gs://BUCKET/FOLDER.",
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir",
    None,
    "Folder of the run, or of the runs of a sweep. The default for a run is "
    "~/t2t_train/PROBLEM/HPARAMS_SET.",
)


def define_data_flags() -> None:
    """Define flags of the commands that may generate data."""
    define_fields(Data, ("raw_dir", "num_workers", "engine", "verify"))


def data() -> Data:
    """Return the settings of --data_dir and define_data_flags()."""
    return field_values(Data)


def define_decoding_flags() -> None:
    """Define flags of the commands that load a trained model."""
    define_items(
        "checkpoint_path",
        None,
        "Checkpoint such as RUN/checkpoints/ckpt-1500; several, "
        "comma-separated, make an ensemble. By default the averaged "
        "checkpoint if there is one, else the latest.",
    )
    define_items(
        "decode_hparams",
        "",
        "Settings of the search that differ from the problem's; their "
        "names are below.",
    )


def problem() -> Problem:
    """Return the problem that the flags name."""
    return build_problem(required("problem"), _PROBLEM_ARGS.value)


def hparams() -> hparam.HParams:
    """Return the hparams set with --hparams applied."""
    hparams_set = registry.build_hparams(required("hparams_set"))
    values = hparams_set.override(_HPARAMS.value)
    registry.models[values.model]  # an unknown one is refused here
    return values


def configuration() -> str:
    """Return problem and hparams as a file for --config."""
    values: dict[str, Any] = {}
    if _PROBLEM.value:
        values["problem"] = _PROBLEM.value
        values["problem_args"] = dict(problem().arguments)
    values["hparams_set"] = required("hparams_set")
    values["hparams"] = dataclasses.asdict(hparams())
    return config_file.dump(values)


def data_dir() -> str:
    """Return --data_dir as it is written: there may be no home for its ~."""
    return _DATA_DIR.value


def given_data_dir() -> str | None:
    """Return --data_dir; None if the flag is absent."""
    return _DATA_DIR.value if flags.FLAGS[_DATA_DIR.name].present else None


def output_dir() -> pathlib.Path:
    """Return --output_dir, or its default for problem and hparams set."""
    if _OUTPUT_DIR.value:
        return storage.local_path(_OUTPUT_DIR.value)
    if not (_PROBLEM.value and _HPARAMS_SET.value):
        raise errors.UserError(
            "Name the run with --output_dir, or with --problem and "
            "--hparams_set."
        )
    folder = files.expand_path("~/t2t_train")
    return folder / problem().full_name / _HPARAMS_SET.value


def expected_settings() -> dict[str, Any]:
    """Return settings that flags give, for Run.open() to compare."""
    expected: dict[str, Any] = {}
    if _PROBLEM.value:
        expected["problem"] = _PROBLEM.value
        expected["problem_arguments"] = problem().arguments
    if _HPARAMS_SET.value:
        expected["hparams_set"] = _HPARAMS_SET.value
    if _HPARAMS.value:
        expected["hparams"] = _HPARAMS.value
    return expected


def decode_hparams(problem: Problem) -> hparam.DecodeHParams:
    """Return the settings of the problem's search, with the flag applied."""
    values = problem.search.override(flags.FLAGS.decode_hparams)
    registry.of_search(values)  # an unknown name is refused here
    return values


def open_run() -> "Run":
    """Open the run that the flags name, without TensorFlow.

    Raises:
        UserError: there is no such run, or a flag contradicts it.
    """
    from t2t_repro.runs.run import Run

    return Run.open(output_dir(), expected_settings())


def open_runs() -> list["Run"]:
    """Open the runs of --output_dir, comma-separated, without TensorFlow."""
    from t2t_repro.runs.run import Run

    if not _OUTPUT_DIR.value:
        return [open_run()]
    expected = expected_settings()
    folders = files.split_paths(_OUTPUT_DIR.value)
    return [Run.open(folder, expected) for folder in folders]


class TrainedModel(NamedTuple):
    """Model of a run that flags name, which is not loaded yet."""

    run: "Run"
    checkpoint_paths: list[pathlib.Path]  # several of an ensemble
    decode_hparams: hparam.DecodeHParams

    def print_checkpoints(self) -> None:
        """Print the paths."""
        paths = ",".join(map(str, self.checkpoint_paths))
        print(f"Checkpoint: {paths}.", file=sys.stderr)


def trained_model() -> TrainedModel:
    """Return the model that the flags name, found without TensorFlow.

    Raises:
        UserError: there is no such run or checkpoint, or a flag contradicts the
            run or has a setting of the search that does not exist.
    """
    run = open_run()
    paths = run.checkpoints(flags.FLAGS.checkpoint_path)
    return TrainedModel(run, paths, decode_hparams(run.problem))


def print_next(command: str, *more: str, of_run: bool = True) -> None:
    """Print the command, with its flags, that usually follows a finished one.

    With T2T_NEXT=0 in the environment, it is not printed. The flags that name
    the run, or its data, come first, unless `of_run` is false.
    """
    if os.environ.get("T2T_NEXT") == "0":
        return
    names = ["usr_dir", "problem", "problem_args", "hparams_set", "data_dir"]
    if _OUTPUT_DIR.value:
        names = ["output_dir"]
    naming = given(*names) if of_run else []
    line = shlex.join(["t2t", command, *naming, *more])
    print(f"Next: {line}", file=sys.stderr)


def given(*names: str) -> list[str]:
    """Return the flags of these names that the command line or file gives."""
    known = [flags.FLAGS[name] for name in names]
    return [
        word
        for flag in known
        if flag.present
        for word in flag.serialize().splitlines()
    ]


def refuse_ignored(ignored: Mapping[str, Iterable[str]]) -> None:
    """Refuse flags that another one ignores, {flag: flags}, if it is given.

    Raises:
        UserError: one of them has another value than its default.
    """
    for name, others in ignored.items():
        for other in map(flags.FLAGS.__getitem__, others):
            if flags.FLAGS[name].value and other.value != other.default:
                raise errors.UserError(
                    f"--{name} ignores {other.serialize()}. Omit one of them."
                )


def portable(*omitted: str) -> str:
    """Return the given flags as text, without folders of this machine.

    Flags of folders and of `omitted` names are left out; other absolute paths
    become file names.
    """
    names = [name for name in flags.FLAGS if name not in _OF_MACHINE + omitted]
    return shlex.join(map(without_folders, given(*names)))


def without_folders(command: str) -> str:
    """Return a command or an argument with file names for absolute paths."""
    return _FOLDER.sub("", command)


def required(name: str) -> Any:
    """Return the value of a flag that must be given."""
    value = flags.FLAGS[name].value
    if not value:
        raise errors.UserError(
            f"--{name} is needed; --help explains it, --registry_help lists "
            "problems and hparams sets."
        )
    return value
