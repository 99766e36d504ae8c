"""Flags that commands share, each defined once, and how a command starts.

A flag exists only for what is not a hyperparameter; the rest is
--hparams=key=value. Only commands read flags.
"""

import contextlib
import dataclasses
import math
import os
import pathlib
import runpy
import signal
import sys
import typing

from absl import app, flags, logging

from t2t_repro import errors, fields, files, hparam, registry
from t2t_repro.problem import Problem, build_problem

_MOST = 2**31 - 1  # TensorFlow counts with 32 bits
_NVIDIA_DRIVER = pathlib.Path("/proc/driver/nvidia")


@contextlib.contextmanager
def _silent_stderr():
    """Sends what is written to file descriptor 2 to nowhere."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _import_tensorflow():
    """Imports TensorFlow, without its notes on missing GPUs where none is.

    It writes them before its logging can be told not to. Where there is a
    driver they stay: they then say why a GPU is not used.
    """
    quiet = os.name == "posix" and not _NVIDIA_DRIVER.exists()
    with _silent_stderr() if quiet else contextlib.nullcontext():
        import tensorflow as tf

        tf.config.list_physical_devices()


# Now: the modules that a command imports after this one import TensorFlow.
_import_tensorflow()

_PROBLEM = flags.DEFINE_string(
    "problem", None, "Name of the problem; X_rev swaps X's languages."
)
_PROBLEM_ARGS = flags.DEFINE_string(
    "problem_args", "", "Arguments of the problem: key=value,key=value."
)
_HPARAMS_SET = flags.DEFINE_string(
    "hparams_set", None, "Name of the hparams set."
)
_HPARAMS = flags.DEFINE_string(
    "hparams", "", "Settings that differ from the set's: key=value,key=value."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", "~/t2t_data", "Folder of generated data and of downloads."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir",
    None,
    "Folder of the training; ~/t2t_train/PROBLEM/HPARAMS_SET if left out.",
)
_USR_DIR = flags.DEFINE_string(
    "usr_dir", None, "Folder of Python modules with definitions of your own."
)
flags.DEFINE_alias("t2t_usr_dir", "usr_dir")
_REGISTRY_HELP = flags.DEFINE_bool(
    "registry_help",
    False,
    "List problems, hparams sets, models, metrics and more, and exit.",
)


def define_raw_data_flags():
    """Of the commands that may generate data."""
    flags.DEFINE_string(
        "raw_dir", None, "Folder with the raw files: no download then."
    )
    flags.DEFINE_integer(
        "num_workers", os.cpu_count(), "Threads that encode.", lower_bound=1
    )


def define_datagen_flags():
    """The same, and what they do with data that is there."""
    define_raw_data_flags()
    flags.DEFINE_bool(
        "verify", False, "Compare every file of the data with its checksum."
    )


def define_decoding_flags():
    """Of the commands that load a trained model."""
    flags.DEFINE_string(
        "checkpoint_path",
        None,
        "Checkpoint, as …/ckpt-1500; several, comma-separated, make an "
        "ensemble. By default the averaged one where there is one, else the "
        "latest.",
    )
    flags.DEFINE_string(
        "decode_hparams",
        "",
        "Settings of the search that differ from the paper's: "
        "beam_size=4,alpha=0.6,extra_length=50,return_beams=false,"
        "sampling_temp=0.0,….",
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
    """Return the settings that the flags of define_fields() say."""
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**{name: getattr(flags.FLAGS, name) for name in names})


def define_number(name, default, text, lower_bound=None, upper_bound=None):
    """A float flag that takes neither nan nor inf."""
    flag = flags.DEFINE_float(name, default, text, lower_bound, upper_bound)
    flags.register_validator(
        flag,
        lambda value: value is None or math.isfinite(value),
        "must be a finite number",
    )
    return flag


def sentences(flag) -> list[str]:
    """The values of a flag, which the shell gives as bytes: UTF-8."""
    for line in flag.value:
        try:
            line.encode("utf-8")
        except UnicodeEncodeError as error:
            raise errors.UserError(
                f"--{flag.name} is not UTF-8: {line[:80]!a}. Convert it, e.g. "
                "with iconv."
            ) from error
    return flag.value


def run_script():
    """Entry point of the scripts t2t-NAME: python -m t2t_repro.NAME."""
    script = pathlib.Path(sys.argv[0]).stem.removeprefix("t2t-")
    # As a module that is run, so that --help finds its flags.
    runpy.run_module(
        f"t2t_repro.{script.replace('-', '_')}", None, "__main__", True
    )


def run(main):
    """Runs a command: loads definitions, calls main(), explains UserErrors."""

    def start(argv):
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # TensorFlow says much
        # Text is UTF-8 whatever the locale; names of files may be no text.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
        try:
            if len(argv) > 1:
                raise errors.UserError(f"Unexpected arguments: {argv[1:]}.")
            registry.load_definitions(_USR_DIR.value)
            if _REGISTRY_HELP.value:
                print(registry.describe(), flush=True)
                return 0
            code = main()
            sys.stdout.flush()  # here a full disk is still explained
            return code
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

    app.run(start)


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
