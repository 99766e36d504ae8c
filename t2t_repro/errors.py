"""Errors that a user can cause, and what their messages say of packages."""

import contextlib
import difflib
import errno
import os
import pathlib
import re
import reprlib
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES)
_EXTRA = re.compile(r"""\bextra == ["']([\w-]+)["']""")  # in a marker
_MAX_CHARACTERS = 10_000  # of a message, which may have a part of a file
_repr = reprlib.Repr()
_repr.maxlevel, _repr.maxlist, _repr.maxdict, _repr.maxtuple = 3, 8, 8, 8
_repr.maxstring = _repr.maxother = _repr.maxlong = 200


class UserError(Exception):
    """Error that a user can correct.

    The message tells what was wrong, what was received, and what to do.
    Commands print it without a traceback and exit with status 1.
    """

    def __init__(self, message: str, see: str | None = None):
        """Create an error.

        Args:
            message: whole sentences.
            see: section of docs/troubleshooting.md that explains more.
        """
        if len(message) > _MAX_CHARACTERS:  # the end says what to do
            half = _MAX_CHARACTERS // 2
            message = f"{message[:half]} … {message[-half:]}"
        super().__init__(message)
        self.see = see

    @property
    def page(self) -> str:
        """Sentence that names the section; "" if there is none."""
        path = page("troubleshooting.md")
        return f" See {path}#{self.see}." if self.see else ""


class UnavailableError(UserError):
    """Text that cannot be fetched, with the reason for other messages."""

    def __init__(self, reason: str, remedy: str):
        """Take what cannot be fetched and why, and what to do."""
        super().__init__(f"{reason}. {remedy}", see="no-download")
        self.reason = reason


def page(name: str) -> pathlib.Path:
    """Return the path of a page of docs/: in a wheel, it is in the package."""
    package = pathlib.Path(__file__).parent
    inside, beside = package / "docs", package.parent / "docs"
    return (inside if inside.is_dir() else beside) / name


def shown(value: Any) -> str:
    """Return the beginning of a value's repr(), for a message.

    A few lines of YAML, or a pickle, can be a value whose repr() has gigabytes.
    """
    try:
        return f"{_repr.repr(value):.500}"
    except ValueError:  # an integer of thousands of digits
        return f"{type(value).__name__} of thousands of digits"


# Installed packages: this one, and those of extras


def version() -> str:
    """Return the version of t2t_repro, "unknown" if it is not installed."""
    try:
        return metadata.version("t2t_repro")
    except metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
        return "unknown"


@contextlib.contextmanager
def needed(extra: str, purpose: str) -> Iterator[None]:
    """Explain a package of an extra that is missing where this imports it.

    `purpose` is the subject of the message, such as "The server".

    Raises:
        UserError: the package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).startswith("t2t_repro"):
            raise
        raise UserError(
            f"{purpose} needs {error.name}, which is not installed. Install "
            f"the extra {extra}: {install_command(extra)}"
        ) from error


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    It names the packages, since `t2t_repro[extra]` is found only by those who
    have an index of packages with t2t_repro.
    """
    packages = requirements("t2t_repro", extra)
    if packages:
        return shlex.join(["pip", "install", *packages])
    # A checkout that is not installed, or was before it had this extra.
    return f"pip install -e '.[{extra}]' in the root of the repository"


def requirements(package: str, extra: str = "") -> list[str]:
    """Return what a package or one of its extras needs: "name[extra]>=1".

    The result is empty for a package that is not installed.
    """
    try:
        lines = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        needed_by = _EXTRA.search(marker)
        if (needed_by[1] if needed_by else "") == extra:
            found.append(requirement.strip())
    return found


# Names of tensor2tensor that have another one here.
T2T_COMMANDS = {
    "avg_all": "avg_checkpoints",
    "bleu": "evaluate --language=LANGUAGE",
    "eval": "evaluate",
    "query_server": "query",
    "translate_all": "evaluate --all_checkpoints",
}
# Schedules of Keras instead of factors of the learning rate.
T2T_FACTORS = {
    "exp_decay": "exponential_decay",
    "legacy": "noam",
    "linear_decay": "polynomial_decay",
    "multi_cycle_cos_decay": "cosine_decay_restarts",
    "single_cycle_cos_decay": "cosine_decay",
}
T2T_NAMES = {
    "batch_size": "batch_tokens",
    "eval_freq": "eval_every",
    "inputs_once": "inputs",
    "learning_rate": "learning_rate_constant",
    "learning_rate_decay_scheme": "learning_rate_schedule",
    "local_eval_frequency": "eval_every",
    "num_concurrent_processes": "num_workers",
    "parsing_english_ptb16k": "wsj_parsing",
    "parsing_english_ptb8k": "wsj_parsing",
    "reference": "references",
    "source": "sources",
    "translation": "translations",
}
T2T_UNITS = {  # names whose values differ, too
    "batch_size": "batch_tokens counts the tokens of a whole batch, not of a "
    "GPU, nor sentences",
    "learning_rate": "for noam, learning_rate_constant is 10 times "
    "tensor2tensor's learning_rate",
}
T2T_WMT14 = re.compile(
    r"translate_(ende|enfr)_wmt(?:8k|32k|_bpe32k|_clean32k|_characters)"
    r"(?:_packed)?(_rev)?"
)


def names_here(name: str) -> tuple[str, ...]:
    """Return the names here of what has this name in tensor2tensor."""
    if match := T2T_WMT14.fullmatch(name):
        return (f"wmt14_{match[1]}{match[2] or ''}",)
    if name.startswith("translate_"):  # other text
        return "tfds_translate", "parallel_text"
    known = T2T_COMMANDS | T2T_FACTORS | T2T_NAMES
    return tuple(known.get(name, "").split()[:1])


def hint(
    name: str, known: Iterable[str], form: Callable[[str], str] = str
) -> str:
    """Return " Did you mean a or b?" with names near `name`; "" for none.

    A name of tensor2tensor has another one here, and its value may differ.
    `form` formats a name, such as repr.
    """
    known = list(known)
    near = [
        new
        for new in names_here(name)
        if new.removesuffix("_rev") in known  # each problem X has an X_rev
    ]
    unit = f" Note: {T2T_UNITS[name]}." if near and name in T2T_UNITS else ""
    near = near or difflib.get_close_matches(name, known, n=3)
    meant = f" Did you mean {' or '.join(map(form, near))}?" if near else ""
    return meant + unit


def explain(error: Exception) -> str | None:
    """Explain what is wrong with a file or its disk; None for other errors.

    Args:
        error: an error of Python, or of TensorFlow, which has no type for it.
    """
    if disk_code(error) in FULL:
        return f"the disk is full: {error}. {remedy(error)}."
    if is_closed(error):
        return f"there is no access: {error}. {remedy(error)}."
    if isinstance(error, OSError) and error.filename is not None:
        return (
            f"{error.strerror}: {error.filename}. Name another "
            "path, or correct this one."
        )
    if isinstance(error, FileNotFoundError):
        try:
            os.getcwd()
        except FileNotFoundError:
            return "the working directory was removed. Change to another one."
    return None


def remedy(error: Exception) -> str:
    """Return what to do about a file that could not be written."""
    if is_closed(error):
        return "Give this user access to it, or name another folder"
    return f"Make room on the disk and start again{_disk(error)}"


def is_closed(error: Exception) -> bool:
    """Return whether a file could not be written for lack of permission."""
    return disk_code(error) in _CLOSED


def disk_code(error: Exception) -> int | None:
    """Return the errno of a full or closed disk; None for other errors."""
    if isinstance(error, OSError) and error.errno:
        return error.errno if error.errno in FULL + _CLOSED else None
    # TensorFlow has only the text.
    codes = (c for c in FULL + _CLOSED if os.strerror(c) in str(error))
    return next(codes, None)


def _disk(error):
    """Describe the disk of the file that an error names.

    Its free space is now that of the unfinished file, too, which is removed.
    """
    named = getattr(error, "filename", None) or _path_in(str(error))
    if not named:
        return ""
    path = pathlib.Path(named).resolve()
    disk = next(each for each in (path, *path.parents) if each.is_mount())
    total = shutil.disk_usage(disk).total
    return f" (of {disk}, {total:,} bytes in all)"


def _path_in(text):
    """Return the longest path in a text, absolute or relative; "" if none.

    TensorFlow's texts have other names with a slash, too: a/device:CPU:0.
    """
    words = re.findall(r"[^\s;:'\"{}]*/[^\s;:'\"{}]+", text)
    paths = [
        w for w in words if pathlib.Path(pathlib.Path(w).parts[0]).exists()
    ]
    return max(paths, key=len, default="")
