"""Start of a command: --help, definitions, and errors explained."""

import errno
import logging as stdlib_logging
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from absl import app, flags, logging

from t2t_repro import errors, registry, user_definitions
from t2t_repro.cli import command_help, config_file
from t2t_repro.io import progress
from t2t_repro.runtime import tensorflow_import

_USR_DIR = flags.DEFINE_string(
    "usr_dir", None, "Folder of Python modules with your own definitions."
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
        except errors.UserError as error:
            print(f"Error: {error}{error.page}", file=sys.stderr)
            return 1
        except Exception as error:
            if isinstance(error, BrokenPipeError) and error.filename is None:
                # The reader of standard output has ended, as `| head` does.
                progress.discard(sys.stdout)
                return 128 + signal.SIGPIPE
            if closed and getattr(error, "errno", None) == errno.EBADF:
                progress.discard(sys.stdout)
                print(
                    f"Error: this command uses {' and '.join(closed)}, which "
                    "the caller has closed. Redirect it to a file, or name one "
                    "with a flag.",
                    file=sys.stderr,
                )
                return 1
            if isinstance(error.__cause__, KeyboardInterrupt):
                # The import of an extension was interrupted: an ImportError.
                return _report_interrupt()
            explained = user_definitions.explain(error) or errors.explain(error)
            if explained is None:
                raise
            print(f"Error: {explained}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return _report_interrupt()

    tensorflow_import.prepare_command()
    app.run(start, flags_parser=command_help.parse)


def _report_interrupt():
    print("Interrupted.", file=sys.stderr)
    return 128 + signal.SIGINT


def _print_help(arguments, description, groups):
    """Print the help that is asked for; return whether there was any."""
    rest, help_requests = arguments
    definitions = config_file.apply(_CONFIG.value) if _CONFIG.value else None
    registry.load_definitions(_USR_DIR.value or definitions)
    if help_requests:
        command_help.show(help_requests, description, groups)
    elif rest:
        raise errors.UserError(f"Unexpected arguments: {rest}.")
    elif _REGISTRY_HELP.value:
        print(registry.summary(), flush=True)
    return bool(help_requests or _REGISTRY_HELP.value)
