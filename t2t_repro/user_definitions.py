"""Definitions of users: folders of --usr_dir, and installed packages.

The modules of a folder are read once: what is imported is what was summed. A
run stores its folder with the checksums, and later commands load it again. But
who gives a run away also writes its run.json. Therefore a run may name only
what a training on this computer has used, of which remember() keeps a list.
"""

import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import pkgutil
import sys
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.io import files, json_files

PACKAGE = "t2t_usr_dir"
SHAPE = {"folder": str, "sha256": {str: str}}  # of "usr_dir" in run.json
# Group of the entry points of installed packages; each is a module.
ENTRY_POINTS = "t2t_repro.definitions"
_HELP = "my-problem-or-hparams-set-is-not-found"


class Definitions(NamedTuple):
    """Modules of a folder, as they were read."""

    folder: pathlib.Path  # absolute
    sources: Mapping[str, bytes]  # by path in the folder: parts/__init__.py

    @property
    def checksums(self) -> dict[str, str]:
        """{module: sha256}."""
        return {
            name: hashlib.sha256(source).hexdigest()
            for name, source in self.sources.items()
        }

    @property
    def stored(self) -> dict[str, Any]:
        """The folder with its checksums, for run.json."""
        return {"folder": str(self.folder), "sha256": self.checksums}


_imported: Definitions | None = None  # the last ones
_is_named = False  # whether a user has named them; else they are of a run


def read(folder: pathlib.Path) -> Definitions:
    """Read the modules of a folder, and of the packages in it.

    Raises:
        UserError: it is no folder.
    """
    if not folder.is_dir():
        raise errors.UserError(
            f"--usr_dir must be a folder with Python modules; got {folder},"
            " which is not a folder."
        )
    folder = folder.absolute()
    paths = sorted(_module_files(folder))
    return Definitions(
        folder,
        {str(path.relative_to(folder)): path.read_bytes() for path in paths},
    )


def load(definitions: Definitions | None) -> None:
    """Import installed packages, and the definitions that a user names.

    Raises:
        ImportError: from a module of the folder, unchanged.
        UserError: a package cannot be imported.
    """
    global _is_named
    _is_named = False
    _load_installed()
    if definitions and definitions != _imported:
        _import(definitions)
    _is_named = definitions is not None


def imported() -> Definitions | None:
    """Return the last definitions that were imported, by a user or a run."""
    return _imported


def stored() -> dict[str, Any] | None:
    """Return the named definitions for run.json; None: there are none."""
    return _imported.stored if _imported and _is_named else None


def checksums() -> dict[str, str]:
    """Return {module: sha256} of the named definitions; {}: none."""
    return _imported.checksums if _imported and _is_named else {}


def checksums_of_class(definition: type) -> dict[str, str]:
    """Return {module: sha256} of a class and its bases in the named folder."""
    paths = {
        getattr(sys.modules.get(base.__module__), "__file__", None)
        for base in definition.__mro__
    }
    return {
        name: checksum
        for name, checksum in checksums().items()
        if _imported and str(_imported.folder / name) in paths
    }


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the modules that were changed, added or removed.

    Args:
        before: result of checksums() at another time.
        now: result of checksums().
    """
    names = sorted(before.keys() | now.keys())
    return [name for name in names if before.get(name) != now.get(name)]


def remember() -> None:
    """Add the named definitions to the list of this computer.

    Runs that name them need no flag here. Without a home folder, or if it
    cannot be written, a note says so.
    """
    if not (known := stored()):
        return
    try:
        path = _entry(known)
        path.parent.mkdir(parents=True, exist_ok=True)
        json_files.write(path, known)
    except (OSError, errors.UserError) as error:
        print(
            f"Note: commands that open this run will need --usr_dir, since the "
            f"list of definitions cannot be written: {error}",
            file=sys.stderr,
        )


def load_stored(known: Mapping[str, Any], run: pathlib.Path) -> None:
    """Load the definitions of a run again, unless the user has named some.

    Args:
        known: what stored() was when the run was trained.
        run: folder of the run, for errors.

    Raises:
        UserError: see of_run().
    """
    if not _is_named and not (_imported and _imported.stored == known):
        _import(of_run(known, run))


def of_run(known: Mapping[str, Any], run: pathlib.Path) -> Definitions:
    """Read the definitions that a run names, and print their folder.

    Nothing is read that is not in the list of this computer.

    Args:
        known: what stored() was when the run was trained; of SHAPE.
        run: folder of the run, for errors.

    Raises:
        UserError: the list lacks them, or the folder is missing or has changed.
    """
    folder = pathlib.Path(known["folder"])
    if not _is_remembered(known):
        reason = "no training on this computer has used them"
    elif not folder.is_dir():
        reason = "the folder is missing"
    else:
        definitions = read(folder)
        changed = changes(known["sha256"], definitions.checksums)
        if not changed:
            print(f"Definitions: {folder}.", file=sys.stderr)
            return definitions
        reason = f"these files have changed: {', '.join(changed)}"
    raise errors.UserError(
        f"The definitions of {run} are not loaded from "
        f"{known['folder']!r:.200}: {reason}. To use them as they are now, "
        "name their folder with --usr_dir. Their Python code then runs with "
        "your rights: read it first if it comes from others.",
        see=_HELP,
    )


def _is_remembered(known):
    try:
        return os.path.exists(_entry(known))
    except errors.UserError:  # no home folder
        return False


def _entry(known):
    """Return the path at which the list has definitions.

    Each entry is a file of its own, so that processes need no lock.
    """
    home = os.environ.get("XDG_DATA_HOME", "")
    folder = files.expand_path(
        home if os.path.isabs(home) else "~/.local/share"
    )
    if not folder.is_absolute():  # it would be one of whoever chose the folder
        raise errors.UserError(f"The home folder {folder} is not absolute.")
    name = f"{json_files.checksum(known)}.json"
    return folder / "t2t_repro" / "definitions" / name


def explain(error: Exception) -> str | None:
    """Return the lines of a user's modules that raised an error at import.

    Returns:
        None: the import of a folder did not raise the error.
    """
    folder = next(
        (
            frame.f_locals["definitions"].folder
            for frame, _ in traceback.walk_tb(error.__traceback__)
            if frame.f_code is _import.__code__
        ),
        None,
    )
    if folder is None:
        return None
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if pathlib.Path(line.filename).is_relative_to(folder)
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


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder and loader of the modules of a folder, from what was read.

    Python's own would take other files for them: compiled ones, and folders
    without __init__.py.
    """

    def __init__(self, definitions: Definitions):
        self._definitions = definitions

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module of PACKAGE is; None: another module."""
        package, *parts = fullname.split(".")
        if package != PACKAGE:
            return None
        folder, sources = self._definitions
        init = "/".join([*parts, "__init__.py"])
        if not parts or init in sources:
            return importlib.util.spec_from_file_location(
                fullname,
                folder / init,
                loader=self,
                submodule_search_locations=[str(folder.joinpath(*parts))],
            )
        if (name := "/".join(parts) + ".py") in sources:
            return importlib.util.spec_from_file_location(
                fullname, folder / name, loader=self
            )
        raise ModuleNotFoundError(
            f"{folder} has no module {name}, nor a package of this name with "
            "an __init__.py.",
            name=fullname,
        )

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the source of a module; __init__.py is optional."""
        path = str(module.__file__)
        name = str(pathlib.Path(path).relative_to(self._definitions.folder))
        source = self._definitions.sources.get(name, b"")
        exec(compile(source, path, "exec", dont_inherit=True), vars(module))


def _import(definitions):
    """Import all modules of a folder as the package t2t_usr_dir.

    Callers compare the definitions with the last ones: the classes of a second
    import would be others than those of the first.
    """
    global _imported
    _imported = None
    for name in list(sys.modules):  # modules of an earlier folder
        if name.partition(".")[0] == PACKAGE:
            del sys.modules[name]
    sys.meta_path[:] = [
        _Finder(definitions),
        *(each for each in sys.meta_path if not isinstance(each, _Finder)),
    ]
    importlib.import_module(PACKAGE)
    for name in definitions.sources:
        module = name.removesuffix("/__init__.py").removesuffix(".py")
        if module != "__init__" and not {*"/."} & {*module}:
            importlib.import_module(f"{PACKAGE}.{module}")
    _imported = definitions


def _module_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the modules of a package and of the packages in it."""
    for path in folder.iterdir():
        if path.suffix == ".py" and path.is_file():
            yield path
        elif (path / "__init__.py").is_file():
            yield from _module_files(path)
