"""Packages of extras, which the base installation lacks."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from importlib import metadata

from t2t_repro import errors


@contextlib.contextmanager
def needed(extra: str, purpose: str) -> Iterator[None]:
    """Explain a package that is missing where this context imports it.

    Args:
        extra: name of the extra that has the package.
        purpose: subject of the message, such as "The server".

    Raises:
        UserError: the package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if str(error.name).startswith("t2t_repro"):
            raise
        raise errors.UserError(
            f"{purpose} needs {error.name}, which is not installed. Install "
            f"the extra {extra}: {install_command(extra)}"
        ) from error


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    It names the packages, since `t2t_repro[extra]` is found only by those who
    have an index of packages with t2t_repro.
    """
    try:
        requirements = metadata.requires("t2t_repro") or []
    except metadata.PackageNotFoundError:
        requirements = []
    marked = re.compile(rf"(.+?)\s*;.*\bextra == [\"']{extra}[\"']")
    packages = [found[1] for found in map(marked.match, requirements) if found]
    if packages:
        return shlex.join(["pip", "install", *packages])
    # A checkout that is not installed, or was before it had this extra.
    return f"pip install -e '.[{extra}]' in the root of the repository"
