"""What a user, not a programmer, is meant to read."""

import difflib
import errno
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES)


class UserError(Exception):
    """What was wrong, what was received, and what to do about it.

    Commands print it without a traceback and exit with status 1.
    """

    # Raised while a graph is traced, it stays as it is: TensorFlow would make
    # another error of it, with a traceback for its text.
    ag_pass_through = True

    def __init__(self, message: str, see: str | None = None):
        """A message to read.

        Args:
            message: whole sentences.
            see: a section of docs/troubleshooting.md that tells more.
        """
        super().__init__(message)
        self.see = see

    @property
    def page(self) -> str:
        """The sentence that names the section; "" where there is none."""
        return f" See docs/troubleshooting.md#{self.see}." if self.see else ""


def hint(
    name: str, known: Iterable[str], form: Callable[[str], str] = str
) -> str:
    """Return " Did you mean a or b?" of names near to `name`; "" for none.

    Args:
        name: that is not known.
        known: names.
        form: function that writes a name, as repr.
    """
    near = difflib.get_close_matches(name, list(known), n=3)
    return f" Did you mean {' or '.join(map(form, near))}?" if near else ""


def explain(error: Exception) -> str | None:
    """What is wrong with a file or its disk; None: it is something else.

    Args:
        error: of Python, or of TensorFlow, which has no type for it.
    """
    if _is(error, _FULL):
        return f"the disk is full: {error}. {remedy(error)}."
    if _is(error, _CLOSED):
        return f"there is no access: {error}. {remedy(error)}."
    if isinstance(error, OSError) and error.filename is not None:
        return (
            f"{error.strerror}: {error.filename}. Name another path, or see to "
            "what is there."
        )
    return None


def remedy(error: Exception) -> str:
    """What to do about a file that could not be written."""
    if _is(error, _CLOSED):
        return "Give this user access to it, or name another folder"
    return f"Make room on the disk and start again{_disk(error)}"


def _is(error, codes):
    if isinstance(error, OSError) and error.errno in codes:
        return True
    return any(os.strerror(code) in str(error) for code in codes)


def _disk(error):
    """The disk of the file that an error names, and what is free on it."""
    named = getattr(error, "filename", None)
    if not named:  # TensorFlow's text may have its devices, too: /device:CPU:0
        found = re.findall(r"/[^\s;:'\"]+", str(error))
        named = max(found, key=len, default="")
    path = pathlib.Path(named).absolute()
    while not path.exists():
        path = path.parent
    usage = shutil.disk_usage(path)
    while not path.is_mount():
        path = path.parent
    return f" (of {path}, {usage.free:,} of {usage.total:,} bytes are free)"
