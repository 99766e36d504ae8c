"""Start of a command: --help, definitions, and errors explained."""

import dataclasses
import errno
import logging as stdlib_logging
import os
import pathlib
import re
import shlex
import signal
import sys
import textwrap
import typing
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NoReturn

from absl import app, flags, logging

from t2t_repro import errors, hparam, registry
from t2t_repro.cli import config_file
from t2t_repro.io import fields, progress
from t2t_repro.problem import Problem
from t2t_repro.runtime import tensorflow_import

_USR_DIR = flags.DEFINE_multi_string(
    "usr_dir",
    None,
    "Folder of Python modules with your own definitions; several are "
    "comma-separated, or each has the flag.",
)
flags.DEFINE_alias("t2t_usr_dir", "usr_dir")
_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "File of flags, .yaml or .json; or the run.json of a run, to repeat it.",
)
_REGISTRY_HELP = flags.DEFINE_bool(
    "registry_help",
    False,
    "List problems, hparams sets, models, metrics and other names, and exit.",
)


def run(
    main: Callable[..., int | None],
    groups: Mapping[str, Iterable[str]] | None = None,
    read_inputs: Callable[[], Any] | None = None,
) -> NoReturn:
    """Run a command: load definitions, call main(), explain UserErrors.

    Modules that need TensorFlow are imported within main(), so that --help
    and mistakes in flags and inputs answer at once.

    Args:
        main: the command; returns an exit status, or None for 0.
        groups: {title: names of flags} that --help shows first, the required
            ones at the top.
        read_inputs: function that reads and checks all that needs no
            TensorFlow, which is imported after it. Its result is the argument
            of main().
    """
    module = sys.modules[main.__module__]
    closed = progress.open_closed_streams()
    interrupts = _note_interrupts()
    printable = progress.Printable(sys.stderr)
    sys.stderr = progress.Screen(printable)  # type: ignore

    def start(arguments):
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # TensorFlow logs much
            # Its warnings are advice about functions that no user wrote.
            stdlib_logging.getLogger("tensorflow").setLevel("ERROR")
        # Text is UTF-8 in any locale; names of files may be other bytes.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
        sys.stdout = progress.Printable(sys.stdout)  # type: ignore
        try:
            if _print_help(arguments, module.__doc__ or "", groups or {}):
                return 0
            inputs = [] if read_inputs is None else [read_inputs()]
            code = main(*inputs)
            # Here, so that the error of a full disk is explained.
            sys.stdout.flush()
            return code
        except (Exception, KeyboardInterrupt) as error:
            code = _report(error, closed, interrupts)
            if code is None:
                raise
            return code

    tensorflow_import.prepare()
    # gRPC's library would write a line for each handshake of TLS that fails.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    app.run(start, flags_parser=parse)


def _note_interrupts():
    """Return a list to which each Ctrl-C adds its signal."""
    noted = []

    def interrupt(number, frame):
        noted.append(number)
        signal.default_int_handler(number, frame)

    # It is ignored in the background of a shell, which stays.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    return noted


def _report(error, closed, interrupts):
    """Explain an error, and return the exit status; None: it is a bug.

    `closed` are names of the standard streams that the caller has closed, and
    `interrupts` those of _note_interrupts(): an import of an extension, or a
    conversion of a graph, that is interrupted raises an error of its own.
    """
    try:
        sys.stdout.flush()
    except OSError:  # of which Python would print a traceback at the end
        progress.discard(sys.stdout)
    if isinstance(error, BrokenPipeError) and error.filename is None:
        # The reader of standard output has ended, as `| head` does.
        return 128 + signal.SIGPIPE
    if interrupts or isinstance(error, KeyboardInterrupt):
        print("Interrupted.", file=sys.stderr)
        return 128 + signal.SIGINT
    if isinstance(error, errors.UserError):
        explained = f"{error}{error.page}"
    elif closed and getattr(error, "errno", None) == errno.EBADF:
        explained = (
            f"this command uses {' and '.join(closed)}, which the caller has "
            "closed. Redirect it to a file, or name one with a flag."
        )
    else:
        explained = registry.explain_import_error(error)
        explained = explained or errors.explain(error)
    if explained is None:
        return None
    print(f"Error: {explained}", file=sys.stderr)
    return 1


def _print_help(arguments, description, groups):
    rest, help_requests = arguments
    definitions = config_file.apply(_CONFIG.value) if _CONFIG.value else None
    registry.load_definitions(definitions or _USR_DIR.value)
    if help_requests:
        print(page(description, groups, sys.argv[0]), flush=True)
        if {*help_requests} & {*_HELPFULL_FLAGS}:
            modules = ("absl.app", "absl.logging")
            print("", *map(flags.FLAGS.module_help, modules), sep="\n\n")
    elif rest:
        raise errors.UserError(
            f"Unexpected arguments: {rest}. Write flags as --NAME=VALUE, or as "
            "--NAME and --noNAME for true and false; --help lists them."
        )
    elif _REGISTRY_HELP.value:
        print(registry.summary(), flush=True)
    return bool(help_requests or _REGISTRY_HELP.value)


# Help pages of commands: flags in groups, then the settings they take.

# Commands that list the settings a flag takes. In others, the flag is compared
# with the run's settings, and its help names one of these commands.
_LISTED_BY = {
    "problem_args": ("datagen", "trainer"),
    "hparams": ("importer", "show", "trainer"),
}
_WIDTH, _INDENT = 80, 28
_GENERAL = ("config", "usr_dir", "registry_help")
_UNBOUNDED = 2**31 - 1  # upper bound of integers of 32 bits
_HELP_FLAGS = ("--help", "-help", "-h", "-?", "--helpshort")
_HELPFULL_FLAGS = ("--helpfull", "-helpfull")
_HELP = (
    "Print this help. --helpfull adds absl's flags for logging and profiling."
)
_REPEAT = re.compile(r";\s+repeat this option.*", re.DOTALL)  # absl's
_PLACEHOLDERS = {
    "config": "FILE",
    "problem": "NAME",
    "hparams_set": "NAME",
    **dict.fromkeys(config_file.SETTINGS, "NAME=VALUE,…"),
}
_TYPE_NAMES = {bool: "true or false", int: "integer", float: "number"}


def parse(argv: list[str]) -> tuple[list[str], list[str]]:
    """Parse flags; return the arguments that are left, and requests of help.

    absl's own --help ends with status 1.
    """
    requests = [
        item for item in argv[1:] if item in (*_HELP_FLAGS, *_HELPFULL_FLAGS)
    ]
    try:
        rest = flags.FLAGS([item for item in argv if item not in requests])
    except flags.Error as error:
        print(f"Error: {_explain(error, argv)}", file=sys.stderr)
        sys.exit(1)
    return rest[1:], requests


def _explain(error, argv):
    """Return what is wrong with a command line, and what to do."""
    hint = ""
    if isinstance(error, flags.UnrecognizedFlagError):
        command = _program(argv[0]).rpartition(" ")[2].removeprefix("t2t-")
        if text := explain_tensor2tensor(command, argv[1:], {*flags.FLAGS}):
            return f"{text}\nSee {errors.page('tensor2tensor.md')}."
        hint = _hint_of_setting(error.flagname)
    text = config_file.message_of(error)
    message = text if text.endswith(("?", ".")) else f"{text}."
    return f"{message}{hint} {_program(argv[0])} --help lists the flags."


def _hint_of_setting(name):
    """Return the flag that takes a setting which was written as a flag."""
    registry.load_definitions()
    for flag, _, cls, _ in _settings({*flags.FLAGS}):
        if name in _names(cls):
            return f" It is a setting: write --{flag}={name}=…."
    return ""


def _program(path):
    """Return how a user calls this command."""
    name = pathlib.Path(path)
    commands = pathlib.Path(__file__).parents[1]
    return f"t2t {name.stem}" if name.parent == commands else name.name


def page(
    description: str, groups: Mapping[str, Iterable[str]], program: str
) -> str:
    """Return the help of a command, whose module has the `description`.

    The flags of `groups` come first, as of run(); absl has those of `program`.
    """
    shown = [name for names in groups.values() for name in names]
    rest = [
        flag.name
        for flag in flags.FLAGS.get_key_flags_for_module(program)
        if flag.name not in (*shown, *_GENERAL)
        and not flag.help.startswith("Alias for --")
    ]
    sections = [description.strip()]
    for title, names in {**groups, "Options": rest}.items():
        sections.append(_section(title, map(_flag_entry, names)))
    general = [*map(_flag_entry, _GENERAL), _entry("--help", _HELP)]
    sections.append(_section("General", general))
    command = pathlib.Path(program).stem
    listed = {
        name
        for name in (*shown, *rest)
        if command in _LISTED_BY.get(name, (command,))
    }
    for flag, title, cls, inherited in _settings(listed):
        entries = [
            _setting_entry(cls, field)
            for field in dataclasses.fields(cls)
            if field.name not in inherited
        ]
        sections.append(_section(f"Names that --{flag} takes{title}", entries))
    return "\n\n".join(filter(None, sections))


def _settings(names: set[str]) -> Iterator[tuple[str, str, type, set[str]]]:
    """Yield the settings classes of flags: flag, title, class, known names."""
    if "decode_hparams" in names:
        yield "decode_hparams", "", hparam.DecodeHParams, set()
    if "problem_args" in names:
        yield "problem_args", "", Problem, set()
        known = _names(Problem)
        for entry in registry.problems:
            if _names(entry.value) - known:
                title = f" for {entry.name}"
                yield "problem_args", title, entry.value, known
    if "hparams" in names:
        title = "; the default is the hparams set's value"
        yield "hparams", title, hparam.HParams, set()
        known = _names(hparam.HParams)
        for model in registry.models:
            title = f" for the model {model.name}"
            yield "hparams", title, model.hparams, known


def _names(cls):
    return {field.name for field in dataclasses.fields(cls)}


def _section(title, entries):
    lines = [line for entry in entries for line in entry]
    return "\n".join([f"{title}:", *lines]) if lines else ""


def _flag_entry(name):
    flag = flags.FLAGS[name]
    kind, notes = flag.flag_type(), []
    text = _REPEAT.sub("", flag.help)
    if kind == "bool":
        label = f"--[no]{name}"
    elif choices := getattr(flag.parser, "enum_values", None):
        label = f"--{name}=NAME"
        notes.append(_join(choices))
        text = text.removeprefix(f"<{'|'.join(choices)}>: ")
    else:
        label = f"--{name}={_placeholder(name, kind)}"
    low = getattr(flag.parser, "lower_bound", None)
    high = getattr(flag.parser, "upper_bound", None)
    if high is not None and high < _UNBOUNDED:
        notes.append(f"{low:,} to {high:,}")
    elif low is not None:
        notes.append(f"at least {low}")
    if flag.default not in (None, "", [], False):
        notes.append(f"default: {flag.default}")
    return _entry(label, text, notes)


def _placeholder(name, kind):
    if kind in ("int", "float"):
        return "N"
    if name.endswith("_dir"):
        return "FOLDER"
    default = "FILE" if name.endswith("_file") else "TEXT"
    return _PLACEHOLDERS.get(name, default)


def _setting_entry(cls, field):
    kind = typing.get_type_hints(cls)[field.name]
    constraints = fields.constraints_of(field)
    notes = [_TYPE_NAMES[kind]] if kind in _TYPE_NAMES else []
    notes += [
        _join(constraint.choices) if constraint.choices else constraint.text
        for constraint in constraints
    ]
    if field.default not in (dataclasses.MISSING, ""):
        default = str(field.default)
        notes.append(f"default: {default.lower() if kind is bool else default}")
    return _entry(field.name, field.metadata.get(fields.HELP, ""), notes)


def _join(choices):
    *most, last = map(str, choices)
    return f"{', '.join(most)} or {last}" if most else last


def _entry(label, text, notes=()):
    """Return lines: a label, and its explanation in a column beside it."""
    if notes:
        text = f"{text} ({'; '.join(notes)})".lstrip()
    lines = textwrap.wrap(text, _WIDTH - _INDENT)
    head = f"  {label}"
    if lines and len(head) < _INDENT - 1:
        head = head.ljust(_INDENT) + lines.pop(0)
    return [head, *(" " * _INDENT + line for line in lines)]


# Command lines of tensor2tensor, and what to type instead
#
# Source: the flags of its last version, 1.15.7: bin/, utils/flags.py,
# utils/learning_rate.py, serving/query.py and serving/export.py.

_RUN_OR_EXPORT = "data_dir hparams_set problem t2t_usr_dir"
_REASONS = {  # why flags are not needed here: their names
    "the hparams set names the model; --registry_help lists both": "model",
    "trainer trains and validates, evaluate scores": "schedule",
    "all visible GPUs are used, CUDA_VISIBLE_DEVICES selects some; the batch, "
    "that of 8 in most sets, is the same": "gpu_order worker_gpu",
    "downloads are in --data_dir; --raw_dir names raw text of yours": "tmp_dir",
    "missing data is always generated": "generate_data",
    "--registry_help lists the problems": "exclude_problems only_list",
    "each split is generated as a whole": ""
    "max_cases num_shards task_id task_id_end task_id_start",
    "run and export are complete": _RUN_OR_EXPORT,
    "each validation reads the validation split": "eval_steps",
    "--eval_every gives the steps between validations": ""
    "eval_throttle_seconds eval_timeout_mins",
    "a validation translates --eval_bleu_sentences": "eval_run_autoregressive",
    "evaluate --split=test scores the test set": "eval_use_test_set",
    "see --early_stopping_evals, which counts validations": ""
    "eval_early_stopping_metric eval_early_stopping_metric_delta "
    "eval_early_stopping_metric_minimize eval_early_stopping_steps",
    "see --keep_best_checkpoints": "keep_checkpoint_every_n_hours",
    "exporter writes a SavedModel": ""
    "as_text export_as_tfhub export_saved_model "
    "export_saved_model_api_version",
    "--xla=on compiles, as is the default on GPUs": "xla_compile xla_jit_level",
    "see --mixed_precision": "gpu_automatic_mixed_precision",
    "see --distribution": "optionally_use_dist_strat",
    "--profile traces steps": "dbgprofile log_device_placement tfdbg",
    "this is no choice here": ""
    "disable_grappler_optimizations enable_graph_rewriter "
    "inter_op_parallelism_threads intra_op_parallelism_threads "
    "log_step_count_steps worker_gpu_memory_fraction",
    "TF_CONFIG describes several machines": ""
    "master ps_gpu ps_job ps_replicas std_server_protocol sync worker_id "
    "worker_job worker_replicas",
    "translations have the time at which they are made": "keep_timestamp",
    "--decode_to_dir divides a large text": "decode_in_memory decode_shards",
    "evaluate --references scores translations": "decode_reference",
    "evaluate prints cased and uncased scores": "bleu_variant",
    "see evaluate --all_checkpoints, which scores the checkpoints of a run": ""
    "decoder_command event_dir report_zero tag_suffix translations_dir",
    "commands do not wait for checkpoints": "min_steps wait_minutes",
    "TPUs are not supported": ""
    "cloud_tpu_name iterations_per_loop tpu_infeed_sleep_secs tpu_job_name "
    "tpu_num_shards use_guarantee_const_getter use_tpu use_tpu_estimator",
    "services of a cloud are not supported": ""
    "autotune_max_trials autotune_maximize autotune_objective "
    "autotune_parallel_trials cloud_mlengine cloud_mlengine_master_type "
    "cloud_mlengine_model_name cloud_mlengine_model_version hparams_range "
    "job-dir",
}
_OMITTED = {
    name: reason for reason, names in _REASONS.items() for name in names.split()
}
# Flags of its own commands that differ: the flag here, or a reason; "" if the
# flag is the same.
_OF_COMMAND = {
    "avg_all": {
        "model_dir": "--output_dir",
        "n": "--num_last_checkpoints",
        "output_dir": "the run stores its average",
    },
    "eval": dict.fromkeys(_RUN_OR_EXPORT.split(), ""),
    "translate_all": {
        "alpha": "--decode_hparams=alpha",
        "beam_size": "--decode_hparams=beam_size",
        "model_dir": "--output_dir",
        "source": "see --split",
    },
}
_HPARAMS = {
    "learning_rate": "see learning_rate_constant; "
    + errors.T2T_UNITS["learning_rate"],
    "learning_rate_decay_scheme": "see learning_rate_schedule",
}


def explain_tensor2tensor(
    command: str, arguments: Sequence[str], known: Collection[str] = ()
) -> str | None:
    """Explain a command line of tensor2tensor, and write the one to type.

    Args:
        command: a name of errors.T2T_COMMANDS or of a command here.
        arguments: flags as they were typed.
        known: names of the flags of a command here; none of those of
            tensor2tensor's commands.

    Returns:
        Several lines; None if no flag is tensor2tensor's.
    """
    given = list(_flags(arguments))
    foreign = {
        name
        for name, _ in given
        if not {name, name.removeprefix("no")} & {*known}
    }
    names = {name: f"--{to}" for name, to in errors.T2T_NAMES.items()}
    table = _OMITTED | names | _OF_COMMAND.get(command, {})
    if command not in errors.T2T_COMMANDS and not foreign & table.keys():
        return None
    gpus = dict(given).get("worker_gpu") or "1"
    notes, line = [], [f"t2t {errors.T2T_COMMANDS.get(command, command)}"]
    for name, value in given:
        typed = _typed(name, value)
        note = table.get(name) or table.get(name.removeprefix("no"))
        if name in foreign and note:
            is_flag = bool(re.fullmatch(r"--\w+(=\w+)?", note))
            notes.append(f"{typed}: {'here ' * is_flag}{note}")
            if is_flag:
                line.append(_typed(note[2:], value))
        elif name in foreign and command not in errors.T2T_COMMANDS:
            notes.append(f"{typed}: there is no such flag")
        else:
            value, more = _value(name, value, gpus)
            notes += more
            if value != "":
                line.append(_typed(name, value))
    lines = ["This is a command line of tensor2tensor.", *notes]
    separator = " " if len(" ".join(line)) < 76 else " \\\n      "
    return "\n  ".join([*lines, "Type instead:", f"  {separator.join(line)}"])


def _typed(name, value):
    """Return a flag for a shell; commands expand a leading ~ themselves."""
    if value is None:
        return f"--{name}"
    home, rest = re.match(r"((?:~/)?)(.*)", value, re.DOTALL).groups()
    return f"--{name}={home}{shlex.quote(rest) if rest else ''}"


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield names and values of --name=value, --name value, and --name."""
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        if equals:
            yield name, value
        elif rest and not rest[0].startswith("-"):
            yield name, rest.pop(0)
        else:
            yield name, None


def _value(name, value, gpus):
    """Return the value of a flag that exists here, too, and notes on it."""
    if name == "problem" and errors.T2T_WMT14.fullmatch(value or ""):
        (problem,) = errors.names_here(value)
        return problem, [f"--problem={value}: here {problem}, the paper's data"]
    if name != "hparams" or not value:
        return value, []
    items, notes = [], []
    for item in re.split(r",\s*(?=\w+=)", value.strip()):
        hparam, _, number = item.partition("=")
        if hparam == "batch_size" and (number + gpus).isdigit():
            tokens = int(number) * int(gpus)
            items += [f"batch_tokens={tokens}", "batch_unit=slots"]
            notes.append(
                f"{item} of --hparams: batch_tokens counts the whole job, "
                f"{gpus} GPU{'s' * (gpus != '1')} here"
            )
        elif hparam in _HPARAMS:
            notes.append(f"{item} of --hparams: {_HPARAMS[hparam]}")
        else:
            items.append(item)
    return ",".join(items), notes
