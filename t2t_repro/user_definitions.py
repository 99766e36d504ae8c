"""Definitions of users: folders of --usr_dir, and installed packages.

A run stores the folder that its training used, with the checksums of its
modules. Later commands load the same modules again.
"""

import importlib
import importlib.util
import pathlib
import pkgutil
import sys
import traceback
import types
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

from t2t_repro import errors, files

PACKAGE = "t2t_usr_dir"
# Group of the entry points of installed packages; each is a module.
ENTRY_POINTS = "t2t_repro.definitions"
_HELP = "my-problem-or-hparams-set-is-not-found"

_named: pathlib.Path | None = None  # the folder that a user has named
_imported: Mapping[str, Any] | None = None  # the last one, as stored()


def load(folder: pathlib.Path | None) -> None:
    """Import installed packages, and the folder that a user names.

    Raises:
        ImportError: from a module of the folder, unchanged.
        UserError: the folder is none, or a package cannot be imported.
    """
    global _named
    _named = folder
    _load_installed()
    if folder:
        if not folder.is_dir():
            raise errors.UserError(
                f"--usr_dir must be a folder with Python modules; got {folder},"
                " which is not a folder."
            )
        if (known := stored()) != _imported:
            _import_folder(folder, known)


def named_folder() -> pathlib.Path | None:
    """Return the absolute path of the named folder; None: no folder."""
    return _named.absolute() if _named else None


def stored() -> dict[str, Any] | None:
    """Return the named folder with checksums, for run.json; None: no folder."""
    folder = named_folder()
    if not folder:
        return None
    return {"folder": str(folder), "sha256": _checksums(folder)}


def checksums() -> dict[str, str]:
    """Return {module: sha256} of the named folder; {}: no folder."""
    return _checksums(folder) if (folder := named_folder()) else {}


def checksums_of_class(definition: type) -> dict[str, str]:
    """Return {module: sha256} of a class and its bases in the named folder."""
    paths = {
        getattr(sys.modules.get(base.__module__), "__file__", None)
        for base in definition.__mro__
    }
    folder = named_folder()
    return {
        name: checksum
        for name, checksum in checksums().items()
        if folder and str(folder / name) in paths
    }


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the modules that were changed, added or removed.

    Args:
        before: result of checksums() at another time.
        now: result of checksums().
    """
    names = sorted(before.keys() | now.keys())
    return [name for name in names if before.get(name) != now.get(name)]


def load_stored(known: Mapping[str, Any], run: pathlib.Path) -> None:
    """Load the folder of a run again, unless the user has named one.

    Args:
        known: result of stored() when the run was trained.
        run: folder of the run. Definitions inside are not loaded: opening a
            run of someone else would execute their code.

    Raises:
        UserError: the folder is missing, has changed or lies in the run.
    """
    if _named or known == _imported:
        return
    folder = pathlib.Path(known["folder"])
    reason = ""
    if folder.resolve().is_relative_to(run.resolve()):
        reason = "it lies inside the run"
    elif not folder.is_dir():
        reason = "it is missing"
    else:
        changed = changes(known["sha256"], _checksums(folder))
        if changed:
            reason = f"these files have changed: {', '.join(changed)}"
    if reason:
        raise errors.UserError(
            f"The definitions of {run} are not loaded from {folder}: {reason}. "
            "To use them as they are now, name their folder with --usr_dir.",
            see=_HELP,
        )
    print(f"Definitions: {folder}.", file=sys.stderr)
    _import_folder(folder, known)


def explain(error: Exception) -> str | None:
    """Return the lines of a user's modules that raised an error at import.

    Returns:
        None: the import of a folder did not raise the error.
    """
    folder = next(
        (
            frame.f_locals["folder"]
            for frame, _ in traceback.walk_tb(error.__traceback__)
            if frame.f_code is _import_folder.__code__
        ),
        None,
    )
    if folder is None:
        return None
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if pathlib.Path(line.filename)
        .absolute()
        .is_relative_to(folder.absolute())
    ]
    shown = traceback.format_list(lines)
    shown += traceback.format_exception_only(error)
    return (
        f"the definitions in {folder} cannot be imported. Correct them:\n"
        f"{''.join(shown).rstrip()}"
    )


def import_modules(package: types.ModuleType) -> None:
    """Import every module of a package."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def _load_installed():
    for point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # of the package
            package = point.dist.name if point.dist else point.name
            raise errors.UserError(
                f"The installed package {package} cannot be used: "
                f"{point.value}: {error}. Repair or uninstall it.",
                see=_HELP,
            ) from error


def _import_folder(folder, known):
    """Import a folder as the package t2t_usr_dir; __init__.py is optional.

    Callers compare `known`, as stored(), with the last one: the classes of a
    second import would be others than those of the first.
    """
    global _imported
    _imported = None
    for name in list(sys.modules):  # modules of an earlier folder
        if name.startswith(f"{PACKAGE}."):
            del sys.modules[name]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    init = folder / "__init__.py"
    if init.exists():
        spec = importlib.util.spec_from_file_location(
            PACKAGE, init, submodule_search_locations=[str(folder)]
        )
        package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    if init.exists():
        package.__spec__.loader.exec_module(package)
    import_modules(package)
    _imported = known


def _checksums(folder):
    return {
        str(path.relative_to(folder)): files.sha256(path)
        for path in sorted(_module_files(folder))
    }


def _module_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the modules of a package and of the packages in it."""
    for path in folder.iterdir():
        if path.suffix == ".py" and path.is_file():
            yield path
        elif (path / "__init__.py").is_file():
            yield from _module_files(path)
