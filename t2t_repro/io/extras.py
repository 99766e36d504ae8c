"""Installed packages: this one, and those of extras."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from importlib import metadata

from t2t_repro import errors

_EXTRA = re.compile(r"""\bextra == ["']([\w-]+)["']""")  # in a marker


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
        raise errors.UserError(
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
