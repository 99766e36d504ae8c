"""Definitions that a run remembers, and those of installed packages."""

import importlib.metadata
import re
import subprocess
import sys
import types

import pytest

from t2t_repro import errors, registry, user_definitions

MODULE = "from t2t_repro import registry\nLOADED = {}\n"


@pytest.fixture
def usr_dir(tmp_path):
    folder = tmp_path / "definitions"
    (folder / "parts").mkdir(parents=True)
    (folder / "mine.py").write_text(MODULE.format(1))
    (folder / "parts" / "__init__.py").write_text("")
    (folder / "notes.txt").write_text("not code")
    yield folder
    registry.load_definitions()
    for name in list(sys.modules):
        if name.partition(".")[0] == user_definitions.PACKAGE:
            del sys.modules[name]


@pytest.fixture
def known(usr_dir):
    """Return what a run stores; then a new command has loaded nothing."""
    registry.load_definitions(usr_dir)
    known = user_definitions.stored()
    registry.load_definitions()
    user_definitions._imported = None
    return known


def loaded():
    return sys.modules[f"{user_definitions.PACKAGE}.mine"].LOADED


def test_folder_is_stored_with_its_modules(known, usr_dir):
    assert known["folder"] == str(usr_dir)
    assert sorted(known["sha256"]) == ["mine.py", "parts/__init__.py"]


def test_stored_folder_is_loaded_again_and_printed(known, usr_dir, capsys):
    sys.modules.pop(f"{user_definitions.PACKAGE}.mine")
    user_definitions.load_stored(known, usr_dir.parent / "run")
    assert loaded() == 1
    assert capsys.readouterr().err == f"Definitions: {usr_dir}.\n"
    assert user_definitions.stored() is None  # a user has not named it


def test_named_folder_is_imported_again_only_if_it_has_changed(usr_dir):
    name = f"{user_definitions.PACKAGE}.mine"
    registry.load_definitions(usr_dir)
    first = sys.modules[name]
    registry.load_definitions(usr_dir)
    assert sys.modules[name] is first
    (usr_dir / "mine.py").write_text(MODULE.format(2))
    registry.load_definitions(usr_dir)
    assert loaded() == 2


def test_folder_of_several_runs_is_imported_once(known, usr_dir):
    user_definitions.load_stored(known, usr_dir.parent / "run")
    first = sys.modules[f"{user_definitions.PACKAGE}.mine"]
    registry.load_definitions()
    user_definitions.load_stored(known, usr_dir.parent / "other")
    assert sys.modules[f"{user_definitions.PACKAGE}.mine"] is first


@pytest.mark.parametrize("name", ["mine.py", "parts/__init__.py", "new.py"])
def test_changed_folder_is_refused_by_name(known, usr_dir, name):
    (usr_dir / name).write_text("LOADED = 2\n")
    with pytest.raises(errors.UserError, match=f"have changed: {name}.*name"):
        user_definitions.load_stored(known, usr_dir.parent / "run")


def test_missing_folder_is_refused(known, usr_dir):
    usr_dir.rename(usr_dir.parent / "moved")
    with pytest.raises(errors.UserError, match="missing.*--usr_dir"):
        user_definitions.load_stored(known, usr_dir.parent / "run")


def test_folder_in_the_run_is_never_loaded(known, usr_dir):
    """Also through a link: the run may come from someone else."""
    link = usr_dir.parent / "elsewhere"
    link.symlink_to(usr_dir)
    for folder in (usr_dir, link):
        with pytest.raises(errors.UserError, match="lies inside the run"):
            user_definitions.load_stored(
                known | {"folder": str(folder)}, usr_dir.parent
            )


def test_named_folder_replaces_the_stored_one(known, usr_dir):
    (usr_dir / "mine.py").write_text(MODULE.format(2))
    registry.load_definitions(usr_dir)
    user_definitions.load_stored(known, usr_dir.parent / "run")
    assert loaded() == 2


def test_installed_packages_are_loaded(monkeypatch):
    called = []
    point = types.SimpleNamespace(
        name="mine",
        value="mine_package.definitions",
        dist=types.SimpleNamespace(name="mine-package"),
        load=lambda: called.append("mine"),
    )

    def entry_points(group):
        assert group == "t2t_repro.definitions"
        return [point]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    registry.load_definitions()
    assert called == ["mine"]

    def fail():
        raise ImportError("no module of mine")

    point.load = fail
    with pytest.raises(
        errors.UserError, match="mine-package .*no module of mine"
    ):
        registry.load_definitions()


def test_error_at_import_is_explained_by_the_users_frames(usr_dir):
    (usr_dir / "mine.py").write_text("import re\nfrom . import other\n")
    (usr_dir / "other.py").write_text("import re\nre.compile('(')\n")
    with pytest.raises(re.error) as raised:
        registry.load_definitions(usr_dir)
    *lines, last = user_definitions.explain(raised.value).splitlines()
    assert lines == [
        f"the definitions in {usr_dir} cannot be imported. Correct them:",
        f'  File "{usr_dir / "mine.py"}", line 2, in <module>',
        "    from . import other",
        f'  File "{usr_dir / "other.py"}", line 2, in <module>',
        "    re.compile('(')",
    ]
    assert "missing )" in last


def test_other_errors_are_not_explained_as_those_of_definitions():
    with pytest.raises(ZeroDivisionError) as raised:
        1 / 0  # noqa: B018
    assert user_definitions.explain(raised.value) is None


def test_command_shows_no_frames_of_importlib(usr_dir):
    (usr_dir / "mine.py").write_text("x = (\n")
    result = subprocess.run(
        [sys.executable, "-m", "t2t_repro.show", f"--usr_dir={usr_dir}"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"Error: the definitions in {usr_dir} ")
    assert f'  File "{usr_dir / "mine.py"}", line 1\n' in result.stderr
    assert "SyntaxError: " in result.stderr
    assert "importlib" not in result.stderr and "Traceback" not in result.stderr
