"""Definitions that a run remembers, and those of installed packages."""

import hashlib
import importlib.metadata
import os
import pathlib
import py_compile
import re
import shutil
import sys
import types
from unittest import mock

import pytest
from absl import flags
from processes import run_python
from stored_run import RUN

from t2t_repro import errors, registry
from t2t_repro.cli import config_file
from t2t_repro.io import files
from t2t_repro.runs.run import Run

MODULE = "from t2t_repro import registry\nLOADED = {}\n"


@pytest.fixture
def usr_dir(tmp_path):
    folder = tmp_path / "definitions"
    (folder / "parts").mkdir(parents=True)
    (folder / "mine.py").write_text(MODULE.format(1))
    (folder / "parts" / "__init__.py").write_text("")
    (folder / "notes.txt").write_text("not code")
    yield folder
    forget_imports()


def forget_imports():
    """Return to a process that has loaded no definitions of a user."""
    registry.load_definitions()
    registry._imported = ()
    for name in list(sys.modules):
        if name.partition(".")[0] == registry.PACKAGE:
            del sys.modules[name]


@pytest.fixture
def known(usr_dir):
    """Return what a run of this computer stores; a new command begins."""
    registry.load_definitions(usr_dir)
    registry.remember()
    known = registry.stored_definitions()
    forget_imports()
    return known


def loaded(module="mine"):
    return sys.modules[f"{registry.PACKAGE}.{module}"].LOADED


def is_loaded():
    return registry.PACKAGE in sys.modules


def test_stored_folder_is_loaded_again_and_printed(known, usr_dir, capsys):
    assert known["folder"] == str(usr_dir)
    assert sorted(known["sha256"]) == ["mine.py", "parts/__init__.py"]
    registry.load_stored_definitions(known, usr_dir.parent / "run")
    assert loaded() == 1
    assert capsys.readouterr().err == f"Definitions: {usr_dir}.\n"
    assert registry.stored_definitions() is None  # a user has not named it


def test_named_folder_is_imported_again_only_if_it_has_changed(usr_dir):
    name = f"{registry.PACKAGE}.mine"
    registry.load_definitions(usr_dir)
    first = sys.modules[name]
    registry.load_definitions(usr_dir)
    assert sys.modules[name] is first
    (usr_dir / "mine.py").write_text(MODULE.format(2))
    registry.load_definitions(usr_dir)
    assert loaded() == 2


@pytest.mark.parametrize("name", ["mine.py", "parts/__init__.py", "new.py"])
def test_changed_folder_is_refused_by_name(known, usr_dir, name):
    (usr_dir / name).write_text("LOADED = 2\n")
    with pytest.raises(errors.UserError, match=f"have changed: {name}.*name"):
        registry.load_stored_definitions(known, usr_dir.parent / "run")
    assert not is_loaded()


def test_missing_folder_is_refused(known, usr_dir):
    usr_dir.rename(usr_dir.parent / "moved")
    with pytest.raises(errors.UserError, match="missing.*--usr_dir"):
        registry.load_stored_definitions(known, usr_dir.parent / "run")


@pytest.fixture(params=["stored_run", "config"])
def open_run(request):
    """Return a function that opens a run: to use it, or to repeat it."""

    def repeat(run):
        return config_file.apply(run / "run.json", flags_of_command())

    return Run.open if request.param == "stored_run" else repeat


def flags_of_command(*arguments):
    known = flags.FlagValues()
    flags.DEFINE_multi_string("usr_dir", None, "", flag_values=known)
    known(["command", *arguments])
    return known


@pytest.fixture
def archive(usr_dir, tmp_path, monkeypatch):
    """Return a run from elsewhere, in the current folder, with its code."""
    run = tmp_path / "archive" / "run"
    shutil.copytree(RUN, run)
    for folder in (run.parent / "code", run / "code"):
        shutil.copytree(usr_dir, folder)
    (run.parent / "link").symlink_to("code")
    monkeypatch.chdir(run.parent)
    return run


def edit(run, **changes):
    """Change a run.json, and make its checksum right again, as a giver does."""
    path = run / "run.json"
    files.write_json(path, files.read_json(path) | changes, with_checksum=True)


@pytest.mark.parametrize(
    "folder",
    ["code", "./run/../code", "link", "/proc/self/cwd/code", "run/code", "{}"],
)
def test_definitions_of_others_are_not_loaded(known, archive, open_run, folder):
    """Not even if this computer has used the same modules elsewhere."""
    folder = folder.format(archive.parent / "code")
    edit(archive, usr_dir=known | {"folder": folder})
    message = "no training on this computer .*--usr_dir"
    with pytest.raises(errors.UserError, match=message):
        open_run(archive)
    assert not is_loaded()


def test_options_of_a_run_name_no_definitions(archive, usr_dir):
    edit(archive, options={"usr_dir": str(usr_dir)})
    with pytest.raises(errors.UserError, match="no training has: usr_dir"):
        config_file.apply(archive / "run.json", flags.FlagValues())


def test_repeated_run_has_its_definitions(known, archive, usr_dir):
    edit(archive, usr_dir=known)
    path = archive / "run.json"
    registry.load_definitions(config_file.apply(path, flags_of_command()))
    assert loaded() == 1
    assert registry.stored_definitions() == known  # as if the user had named it
    given = flags_of_command(f"--usr_dir={usr_dir}")
    (folder,) = config_file.apply(path, given)
    assert folder.stored == known


def test_only_what_was_summed_is_imported(usr_dir):
    """Compiled files and folders without __init__.py have no checksum."""
    other = usr_dir / "other.py"
    other.write_text("LOADED = 'source'\n")
    compiled = py_compile.compile(str(other), doraise=True)
    other.write_text("LOADED = 'SOURCE'\n")  # of the same size
    os.utime(other, (1, 1))
    content = bytearray(pathlib.Path(compiled).read_bytes())
    content[8:12] = (1).to_bytes(4, "little")  # its note of that time
    pathlib.Path(compiled).write_bytes(content)
    shutil.copy(compiled, usr_dir / "alone.pyc")
    (usr_dir / "plain").mkdir()
    (usr_dir / "plain" / "module.py").write_text("LOADED = 1\n")
    registry.load_definitions(usr_dir)
    assert loaded("other") == "SOURCE"
    for name in ("alone", "plain", "plain.module"):
        with pytest.raises(ModuleNotFoundError, match="has no module"):
            importlib.import_module(f"{registry.PACKAGE}.{name}")


def test_what_was_read_is_what_is_imported(usr_dir):
    definitions = registry.read(usr_dir)
    (usr_dir / "mine.py").write_text(MODULE.format(2))
    registry.load_definitions(definitions)
    assert loaded() == 1
    sha256 = hashlib.sha256(MODULE.format(1).encode()).hexdigest()
    assert registry.definition_checksums()["mine.py"] == sha256


@pytest.mark.parametrize("home", ["", "/proc/none", "relative"])
def test_unwritable_list_is_a_note(usr_dir, monkeypatch, capsys, home):
    """A relative folder would be one of whoever chose the current one."""
    monkeypatch.chdir(usr_dir)
    monkeypatch.setenv("XDG_DATA_HOME", "relative" if home else "/proc/none")
    monkeypatch.setenv("HOME", home or "/")
    registry.load_definitions(usr_dir)
    registry.remember()
    assert "will need --usr_dir, since" in capsys.readouterr().err
    known = registry.stored_definitions()
    forget_imports()
    with pytest.raises(errors.UserError, match="no training on this computer"):
        registry.load_stored_definitions(known, usr_dir.parent / "run")


@pytest.fixture
def other_dir(tmp_path):
    """Return a second folder, which uses a module of the first."""
    folder = tmp_path / "others"
    folder.mkdir()
    (folder / "__init__.py").write_text("from .mine import LOADED as FIRST\n")
    (folder / "theirs.py").write_text("from . import mine\nLOADED = 3\n")
    return folder


def test_two_folders_are_one_package(usr_dir, other_dir):
    (usr_dir / "__init__.py").write_text("BOTH = 1\n")
    registry.load_definitions(f"{usr_dir},{other_dir}")
    assert (loaded(), loaded("theirs")) == (1, 3)
    package = sys.modules[registry.PACKAGE]
    assert (package.BOTH, package.FIRST) == (1, 1)
    stored = registry.stored_definitions()
    assert [each["folder"] for each in stored] == [str(usr_dir), str(other_dir)]
    before = registry.definition_checksums()
    assert sorted(before) == [
        "__init__.py",
        "mine.py",
        "parts/__init__.py",
        "theirs.py",
    ]
    (other_dir / "__init__.py").write_text("FIRST = 4\n")
    registry.load_definitions([usr_dir, other_dir])
    assert package is not sys.modules[registry.PACKAGE]
    now = registry.definition_checksums()
    assert registry.changed_definitions(before, now) == ["__init__.py"]


@pytest.mark.parametrize("file", ["mine.py", "mine/__init__.py"])
def test_module_of_two_folders_is_refused(usr_dir, other_dir, file):
    (other_dir / file).parent.mkdir(exist_ok=True)
    (other_dir / file).write_text("")
    both = f"{usr_dir / 'mine.py'} and {other_dir / file}"
    with pytest.raises(errors.UserError, match=f"'mine': {re.escape(both)}"):
        registry.load_definitions([usr_dir, other_dir])


def test_named_and_stored_folders_are_merged(known, usr_dir, other_dir, capsys):
    run = usr_dir.parent / "run"
    (other_dir / "__init__.py").unlink()
    (other_dir / "theirs.py").write_text("LOADED = 3\n")
    registry.load_definitions(other_dir)
    theirs = sys.modules[f"{registry.PACKAGE}.theirs"]
    registry.load_stored_definitions(known, run)
    assert (loaded(), loaded("theirs")) == (1, 3)
    assert sys.modules[f"{registry.PACKAGE}.theirs"] is theirs
    assert registry.stored_definitions()["folder"] == str(other_dir)
    forget_imports()
    registry.load_definitions(other_dir)
    (usr_dir / "mine.py").write_text(MODULE.format(2))
    registry.load_stored_definitions(known, run)
    assert "mine.py. To use them as they are now" in capsys.readouterr().err
    assert f"{registry.PACKAGE}.mine" not in sys.modules


def test_flags_name_several_folders(usr_dir, other_dir):
    for folder in (usr_dir, other_dir):
        name = folder.name
        (folder / f"{name}.py").write_text(
            "from t2t_repro import registry\n"
            f"@registry.hparams_sets.register('set_of_{name}', parent='tiny')\n"
            f"def define(tiny):\n    return tiny\n"
        )
    both = f"--usr_dir={usr_dir}", f"--t2t_usr_dir={other_dir}"
    result = run_python("-m", "t2t_repro.show", "--registry_help", *both)
    for folder in (usr_dir, other_dir):
        assert f"set_of_{folder.name}" in result.stdout, result.stderr


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
    message = "mine-package .*no module of mine"
    with pytest.raises(errors.UserError, match=message):
        registry.load_definitions()


def test_error_at_import_is_explained_by_the_users_frames(usr_dir):
    (usr_dir / "mine.py").write_text("import re\nfrom . import other\n")
    (usr_dir / "other.py").write_text("import re\nre.compile('(')\n")
    with pytest.raises(re.error) as raised:
        registry.load_definitions(usr_dir)
    *lines, last = registry.explain_import_error(raised.value).splitlines()
    # Python 3.13 marks a part of the line.
    assert [line for line in lines if line.strip(" ~^")] == [
        f"the definitions in {usr_dir} cannot be imported. Correct them:",
        f'  File "{usr_dir / "mine.py"}", line 2, in <module>',
        "    from . import other",
        f'  File "{usr_dir / "other.py"}", line 2, in <module>',
        "    re.compile('(')",
    ]
    assert "missing )" in last
    assert registry.explain_import_error(ZeroDivisionError()) is None


def test_definitions_that_end_the_program_are_refused(usr_dir):
    (usr_dir / "mine.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(ImportError, match=f"{usr_dir}/mine.py ends the prog"):
        registry.load_definitions(usr_dir)


def test_definitions_without_eager_execution_are_refused(usr_dir, monkeypatch):
    (usr_dir / "setup.py").write_text("raise ValueError('not a definition')\n")
    tensorflow = mock.Mock()  # after tf.disable_v2_behavior()
    v1 = tensorflow.compat.v1
    v1.executing_eagerly_outside_functions.return_value = False
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    message = f"The definitions in {usr_dir} turn off eager execution"
    with pytest.raises(errors.UserError, match=message):
        registry.load_definitions(usr_dir)


def test_command_shows_no_frames_of_importlib(usr_dir):
    (usr_dir / "mine.py").write_text("x = (\n")
    result = run_python("-m", "t2t_repro.show", f"--usr_dir={usr_dir}")
    assert result.returncode == 1
    assert result.stderr.startswith(f"Error: the definitions in {usr_dir} ")
    assert f'  File "{usr_dir / "mine.py"}", line 1\n' in result.stderr
    assert "SyntaxError: " in result.stderr
    assert "importlib" not in result.stderr and "Traceback" not in result.stderr
