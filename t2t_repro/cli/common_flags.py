"""Flags that several commands share, and their types.

Hyperparameters are set by one flag, --hparams=key=value. Only commands read
flags.
"""

import dataclasses
import math
import pathlib
import sys
import typing
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from t2t_repro import errors, fields, hparam, registry
from t2t_repro.cli import config_file
from t2t_repro.io import files, storage
from t2t_repro.problem import Problem, build_problem
from t2t_repro.runtime import cpu
from t2t_repro.text import parallel_files

if TYPE_CHECKING:
    from t2t_repro.runs.run import Run

# Types of flags: settings dataclasses, lists, finite numbers, UTF-8 text.

_MAX_INT = 2**31 - 1  # TensorFlow counts steps with 32 bits
# The functions define flags of the command that calls them.
flags.disclaim_key_flags()


def define_fields(cls: type) -> None:
    """Define a flag for each field of a settings dataclass."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kinds = set(typing.get_args(hints[field.name]) or [hints[field.name]])
        (kind,) = kinds - {type(None)}
        named: tuple[str, Any] = field.name, field.default
        text = field.metadata[fields.HELP]
        constraints = fields.constraints_of(field)
        choices = [
            choice
            for constraint in constraints
            for choice in constraint.choices
        ]
        lows = [
            constraint.low
            for constraint in constraints
            if constraint.low is not None
        ]
        low = lows[0] if lows else 0
        if choices:
            flags.DEFINE_enum(*named, choices, text)
        elif kind is int:
            flags.DEFINE_integer(*named, text, int(low), _MAX_INT)
        elif kind is float:
            define_number(*named, text, low)
        elif kind is bool:
            flags.DEFINE_bool(*named, text)
        else:
            flags.DEFINE_string(*named, text)


def field_values(cls: type) -> Any:
    """Return the settings of the flags that define_fields() defines."""
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**{name: getattr(flags.FLAGS, name) for name in names})


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


def define_list(
    name: str, text: str, of_paths: bool = False
) -> flags.FlagHolder:
    """Define a flag of a list, empty by default; commas are between items."""
    parser = _PathsParser() if of_paths else flags.ListParser()
    serializer = flags.CsvListSerializer(",")
    return flags.DEFINE_flag(_AdditiveFlag(parser, serializer, name, [], text))


def define_number(
    name: str,
    default: float | None,
    text: str,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
) -> flags.FlagHolder:
    """Define a float flag that refuses nan and inf."""
    flag = flags.DEFINE_float(name, default, text, lower_bound, upper_bound)
    flags.register_validator(
        flag,
        lambda value: value is None or math.isfinite(value),
        "must be a finite number",
    )
    return flag


def require_utf8(flag: flags.FlagHolder) -> list[str]:
    """Return the values of a flag, which must be UTF-8."""
    for line in flag.value:
        if not parallel_files.is_text(line):
            raise errors.UserError(
                f"--{flag.name} is not UTF-8: {line[:80]!a}. Convert it, e.g. "
                "with iconv."
            )
    return flag.value


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
    "Name of the hparams set: model and training. --registry_help lists all.",
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
    "Folder of the run; by default ~/t2t_train/PROBLEM/HPARAMS_SET.",
)
# The functions below define flags of the command that calls them.
flags.disclaim_key_flags()


def define_raw_data_flags() -> None:
    """Define flags of the commands that may generate data."""
    flags.DEFINE_string(
        "raw_dir",
        None,
        "Folder of the raw files, or an archive of datagen --archive_file, "
        "instead of a download.",
    )
    flags.DEFINE_integer(
        "num_workers",
        cpu.usable_cores(),
        "Threads that encode text, and processes that filter it.",
        lower_bound=1,
    )


def define_datagen_flags() -> None:
    """Define the flags for raw data, --verify for existing data, --engine."""
    define_raw_data_flags()
    flags.DEFINE_string(
        "engine",
        "local",
        "Engine that filters and encodes text: local, threads of this process; "
        "or dask:ADDRESS, the workers of a Dask cluster.",
    )
    flags.DEFINE_bool(
        "verify",
        False,
        "Compare every file of the data with its checksum first.",
    )


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


def define_target_language_flag(note: str = "") -> flags.FlagHolder:
    """Define the flag of the commands that translate a user's text.

    Args:
        note: sentence to add to its help.
    """
    return flags.DEFINE_string(
        "target_language",
        None,
        "With a many-to-many model: language of the translations, such as de, "
        f"of lines that do not begin with a tag such as <2de>. {note}".rstrip(),
    )


def problem() -> Problem:
    """Return the problem that the flags name."""
    return build_problem(required(_PROBLEM), _PROBLEM_ARGS.value)


def hparams_set() -> str:
    """Return the name of the hparams set."""
    return required(_HPARAMS_SET)


def hparams() -> hparam.HParams:
    """Return the hparams set with --hparams applied."""
    values = fields.override(
        registry.build_hparams(hparams_set()), _HPARAMS.value
    )
    registry.models[values.model]  # an unknown one is refused here
    return values


def configuration() -> str:
    """Return problem and hparams as a file for --config."""
    values: dict[str, Any] = {}
    if _PROBLEM.value:
        values["problem"] = _PROBLEM.value
        values["problem_args"] = dict(problem().arguments)
    values["hparams_set"] = hparams_set()
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
    return folder / problem().full_name / hparams_set()


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


def raw_dir() -> str | None:
    """Return --raw_dir."""
    return flags.FLAGS.raw_dir


def num_workers() -> int:
    """Return --num_workers."""
    return flags.FLAGS.num_workers


def verify() -> bool:
    """Return --verify."""
    return flags.FLAGS.verify


def engine() -> str:
    """Return --engine."""
    return flags.FLAGS.engine


def decode_hparams(problem: Problem) -> hparam.DecodeHParams:
    """Return the settings of the problem's search, with the flag applied."""
    values = fields.override(problem.search, flags.FLAGS.decode_hparams)
    for name in values.rule_names:
        registry.search_rules[name]  # an unknown one is refused here
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


def required(flag: flags.FlagHolder) -> Any:
    """Return the value of a flag that must be given."""
    if not flag.value:
        raise errors.UserError(
            f"--{flag.name} is needed; --help explains it, --registry_help "
            "lists problems and hparams sets."
        )
    return flag.value
