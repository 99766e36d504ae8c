"""Flags that commands share, each defined once, and how a command starts.

A flag exists only for what is not a hyperparameter; the rest is
--hparams=key=value. Only commands read flags.
"""

import dataclasses
import math
import os
import pathlib
import signal
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from absl import app, flags, logging

from t2t_repro import (
    command_help,
    errors,
    fields,
    files,
    hparam,
    registry,
    tensorflow_import,
)
from t2t_repro.problem import Problem, build_problem

_MOST = 2**31 - 1  # TensorFlow counts with 32 bits
_HELP = ("--help", "-help", "-h", "-?", "--helpshort")
_HELPFULL = ("--helpfull", "-helpfull")
# Groups of flags for run(), of commands that open a run.
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
_PROBLEM_ARGS = flags.DEFINE_string(
    "problem_args",
    "",
    "Arguments of the problem; their names are below.",
)
_HPARAMS_SET = flags.DEFINE_string(
    "hparams_set",
    None,
    "Name of the hparams set: model and training. --registry_help lists all.",
)
_HPARAMS = flags.DEFINE_string(
    "hparams",
    "",
    "Hparams that differ from the set's; their names are below.",
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", "~/t2t_data", "Folder for generated data and downloads."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir",
    None,
    "Folder of the run; by default ~/t2t_train/PROBLEM/HPARAMS_SET.",
)
_USR_DIR = flags.DEFINE_string(
    "usr_dir", None, "Folder of Python modules with your own definitions."
)
flags.DEFINE_alias("t2t_usr_dir", "usr_dir")
_REGISTRY_HELP = flags.DEFINE_bool(
    "registry_help",
    False,
    "List problems, hparams sets, models, metrics and other names, and exit.",
)
# The functions below define flags of the command that calls them.
flags.disclaim_key_flags()


def define_raw_data_flags():
    """Define flags of the commands that may generate data."""
    flags.DEFINE_string(
        "raw_dir", None, "Folder of the raw files, instead of a download."
    )
    flags.DEFINE_integer(
        "num_workers",
        os.cpu_count(),
        "Number of threads that encode text.",
        lower_bound=1,
    )


def define_datagen_flags():
    """Define the same flags, and --verify for data that exists."""
    define_raw_data_flags()
    flags.DEFINE_bool(
        "verify",
        False,
        "Compare every file of the data with its checksum first.",
    )


def define_decoding_flags():
    """Define flags of the commands that load a trained model."""
    flags.DEFINE_string(
        "checkpoint_path",
        None,
        "Checkpoint such as RUN/checkpoints/ckpt-1500; several, "
        "comma-separated, make an ensemble. By default the averaged "
        "checkpoint if there is one, else the latest.",
    )
    flags.DEFINE_string(
        "decode_hparams",
        "",
        "Settings of the search that differ from the problem's; their "
        "names are below.",
    )


def define_fields(cls):
    """Define a flag for each field of a settings dataclass."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kinds = set(typing.get_args(hints[field.name]) or [hints[field.name]])
        (kind,) = kinds - {type(None)}
        named = field.name, field.default
        text = field.metadata[fields.HELP]
        rules = fields.rules_of(field)
        choices = [choice for rule in rules for choice in rule.choices]
        if choices:
            flags.DEFINE_enum(*named, choices, text)
        elif kind is int:
            low = next((rule.low for rule in rules if rule.low is not None), 0)
            flags.DEFINE_integer(*named, text, low, _MOST)
        elif kind is bool:
            flags.DEFINE_bool(*named, text)
        else:
            flags.DEFINE_string(*named, text)


def values_of(cls):
    """Return the settings of the flags that define_fields() defines."""
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**{name: getattr(flags.FLAGS, name) for name in names})


def define_number(name, default, text, lower_bound=None, upper_bound=None):
    """Define a float flag that refuses nan and inf."""
    flag = flags.DEFINE_float(name, default, text, lower_bound, upper_bound)
    flags.register_validator(
        flag,
        lambda value: value is None or math.isfinite(value),
        "must be a finite number",
    )
    return flag


def sentences(flag) -> list[str]:
    """Return the values of a flag, which must be UTF-8."""
    for line in flag.value:
        try:
            line.encode("utf-8")
        except UnicodeEncodeError as error:
            raise errors.UserError(
                f"--{flag.name} is not UTF-8: {line[:80]!a}. Convert it, e.g. "
                "with iconv."
            ) from error
    return flag.value


def run(
    main: Callable[[], int | None],
    groups: Mapping[str, Iterable[str]] | None = None,
) -> NoReturn:
    """Run a command: load definitions, call main(), explain UserErrors.

    Modules that need TensorFlow are imported within main(), so that --help
    and mistakes in flags answer at once.

    Args:
        main: the command; returns an exit status, or None for 0.
        groups: {title: names of flags} that --help shows first, the required
            ones at the top.
    """
    module = sys.modules[main.__module__]

    def start(arguments):
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # TensorFlow says much
        # Text is UTF-8 whatever the locale; names of files may be no text.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
        try:
            return _run(main, arguments, module.__doc__ or "", groups or {})
        except errors.UserError as error:
            print(f"Error: {error}{error.page}", file=sys.stderr)
            return 1
        except Exception as error:
            if isinstance(error, BrokenPipeError) and error.filename is None:
                # Standard output's, as of `| head`, which has read enough.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 128 + signal.SIGPIPE
            if (explained := errors.explain(error)) is None:
                raise
            print(f"Error: {explained}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            return 130

    app.run(start, flags_parser=_parse)


def _parse(argv):
    """Parse flags; return the arguments that are left, and requests of help.

    absl's own --help ends with status 1.
    """
    requests = [item for item in argv[1:] if item in (*_HELP, *_HELPFULL)]
    try:
        rest = flags.FLAGS([item for item in argv if item not in requests])
    except flags.Error as error:
        print(
            f"Error: {error} {_program(argv[0])} --help tells the flags.",
            file=sys.stderr,
        )
        sys.exit(1)
    return rest[1:], requests


def _program(path):
    """Return how a user calls this command."""
    name = pathlib.Path(path)
    here = pathlib.Path(__file__).parent
    return f"t2t {name.stem}" if name.parent == here else name.name


def _run(main, arguments, description, groups):
    """Print the help that is asked for, or call main()."""
    rest, help_requests = arguments
    registry.load_definitions(_USR_DIR.value)
    if help_requests:
        print(command_help.page(description, groups, sys.argv[0]), flush=True)
        if {*help_requests} & {*_HELPFULL}:
            print(f"\n{command_help.absl_flags()}", flush=True)
        return 0
    if rest:
        raise errors.UserError(f"Unexpected arguments: {rest}.")
    if _REGISTRY_HELP.value:
        print(registry.describe(), flush=True)
        return 0
    tensorflow_import.import_tensorflow()
    code = main()
    sys.stdout.flush()  # here a full disk is still explained
    return code


def problem() -> Problem:
    """The problem that the flags name."""
    return build_problem(required(_PROBLEM), _PROBLEM_ARGS.value)


def hparams_set() -> str:
    """The name of the hparams set."""
    return required(_HPARAMS_SET)


def hparams() -> hparam.HParams:
    """The hparams set with --hparams applied."""
    values = fields.override(
        registry.build_hparams(hparams_set()), _HPARAMS.value
    )
    registry.models[values.model]  # an unknown one is refused here
    return values


def data_dir(run=None) -> pathlib.Path:
    """--data_dir; where it is not named, that of a run, if there is one."""
    if run and not flags.FLAGS[_DATA_DIR.name].present:
        return files.path(run.settings["data_dir"])
    return files.path(_DATA_DIR.value)


def output_dir() -> pathlib.Path:
    """--output_dir, or its default for the problem and the hparams set."""
    folders = output_dirs()
    if len(folders) > 1:
        raise errors.UserError(
            "--output_dir takes several folders for the report only; got "
            f"{_OUTPUT_DIR.value}."
        )
    return folders[0]


def output_dirs() -> list[pathlib.Path]:
    """--output_dir where it may name several, comma-separated."""
    if _OUTPUT_DIR.value:
        return [files.path(name) for name in _OUTPUT_DIR.value.split(",")]
    if not (_PROBLEM.value and _HPARAMS_SET.value):
        raise errors.UserError(
            "Name the training with --output_dir, or with --problem and "
            "--hparams_set."
        )
    folder = files.path("~/t2t_train")
    return [folder / problem().full_name / hparams_set()]


def expected_settings() -> dict:
    """Return what the flags say of an existing run, for runs.open_run()."""
    expected = {}
    if _PROBLEM.value:
        expected["problem"] = _PROBLEM.value
        expected["problem_arguments"] = problem().arguments
    if _HPARAMS_SET.value:
        expected["hparams_set"] = _HPARAMS_SET.value
    if _HPARAMS.value:
        expected["hparams"] = _HPARAMS.value
    return expected


def raw_dir() -> str | None:
    """--raw_dir."""
    return flags.FLAGS.raw_dir


def num_workers() -> int:
    """--num_workers."""
    return flags.FLAGS.num_workers


def verify() -> bool:
    """--verify."""
    return flags.FLAGS.verify


def checkpoint_path() -> str | None:
    """--checkpoint_path."""
    return flags.FLAGS.checkpoint_path


def decode_hparams(problem) -> hparam.DecodeHParams:
    """The paper's search, as the problem and then the flag change it."""
    return fields.override(problem.search, flags.FLAGS.decode_hparams)


def required(flag):
    """The value of a flag that this command cannot do without."""
    if not flag.value:
        raise errors.UserError(
            f"--{flag.name} is needed; --help explains it, --registry_help "
            "lists problems and hparams sets."
        )
    return flag.value
