"""Explanations of errors of files and disks, and extras that are missing."""

import errno
import os
import pathlib
import shutil
from importlib import metadata

import pytest

from t2t_repro import errors


def test_page_is_a_file_and_a_section():
    path, _, section = errors.UserError("", see="a").page.partition("#")
    path = pathlib.Path(path.removeprefix(" See "))
    assert path.is_absolute() and "## Out of memory\n" in path.read_text()
    assert section == "a."
    assert errors.UserError("").page == ""


def test_message_is_short():
    """Values of files are in messages, and may be of any size."""
    message = f"start {'x' * 10**6} end."
    shortened = str(errors.UserError(message))
    assert shortened.startswith("start x") and shortened.endswith("x end.")
    assert len(shortened) < 10_100


def test_shown_value_is_its_beginning():
    value = ["xxxxxxxx"]
    for _ in range(30):
        value = [value] * 9  # 9^30 letters, written out
    assert len(errors.shown(value)) < 501
    assert errors.shown(10**5_000) == "int of thousands of digits"
    assert errors.shown("y" * 10**6).endswith("y'")
    assert errors.shown({"a": [1, 2.5, None]}) == "{'a': [1, 2.5, None]}"


@pytest.mark.parametrize("of_python", [True, False])
def test_full_disk_is_explained(tmp_path, of_python):
    path, reason = tmp_path / "new" / "a", os.strerror(errno.ENOSPC)
    # A message of TensorFlow.
    error = RuntimeError(f"{{{{node a/device:CPU:0}}}} {path}; {reason} [Op:A]")
    if of_python:
        error = OSError(errno.ENOSPC, reason, str(path))
    text = errors.explain(error)
    assert text.startswith("the disk is full: ") and str(path) in text
    disk = next(folder for folder in path.parents if os.path.ismount(folder))
    total = shutil.disk_usage(disk).total
    # Not the free space: the unfinished file is removed by now.
    assert text.endswith(f"start again (of {disk}, {total:,} bytes in all).")


def test_denied_access_is_explained(tmp_path):
    for number in (errno.EROFS, errno.EACCES):
        text = errors.explain(OSError(number, os.strerror(number), "/a/b"))
        assert "'/a/b'. Give this user access to it, or name another" in text
    text = errors.explain(OSError(errno.EISDIR, "Is a directory", "/a"))
    assert text.startswith("Is a directory: /a. Name another path")
    assert errors.explain(OSError("of no file")) is None
    assert errors.explain(ValueError("a")) is None


def test_removed_working_directory_is_explained(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(FileNotFoundError) as raised:
        os.getcwd()
    assert "directory was removed. Change" in errors.explain(raised.value)


REQUIREMENTS = [
    "numpy<3,>=2.1",
    'aiohttp<4,>=3.11; extra == "serve"',
    "six ; extra == 'serve'",
    'tensorflow[and-cuda]<2.22,>=2.21; python_version < "4" and extra == "gpu"',
    'pytest<10,>=8; extra == "serve-tests"',
]


@pytest.fixture
def requirements(monkeypatch):
    """Replace the metadata of the installed package."""
    monkeypatch.setattr(metadata, "requires", {"t2t_repro": REQUIREMENTS}.get)


def test_command_names_the_packages_of_the_extra(requirements):
    command = "pip install 'tensorflow[and-cuda]<2.22,>=2.21'"
    assert errors.install_command("gpu") == command


def test_missing_package_is_named_with_purpose_and_command(requirements):
    with pytest.raises(errors.UserError) as raised:
        with errors.needed("serve", "The server"):
            import no_such_package.part  # noqa: F401
    assert str(raised.value) == (
        "The server needs no_such_package, which is not installed. Install the "
        "extra serve: pip install 'aiohttp<4,>=3.11' six"
    )


def test_missing_module_of_our_own_is_not_explained():
    with pytest.raises(ModuleNotFoundError, match="t2t_repro.absent"):
        with errors.needed("serve", "The server"):
            import t2t_repro.absent  # noqa: F401
