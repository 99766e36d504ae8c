"""Installations of the project: checkout, editable install, wheel."""

import ast
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from packaging import requirements

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = ("t2t_repro", "problems", "hparams")
WHERE = (
    "import t2t_repro, t2t_repro.problems, t2t_repro.hparams; "
    "print(t2t_repro.__file__, *t2t_repro.problems.__path__, "
    "*t2t_repro.hparams.__path__)"
)
PACKAGED = (".py", ".j2", ".html", ".css", ".js", ".json", ".typed")
# Packages that are imported by another name than theirs, or not by us.
MODULES = {
    "pyyaml": "yaml",
    "grpcio-health-checking": "grpc_health",
    "absl-py": "absl",
    "tensorflow-serving-api": "tensorflow_serving",
    "tensorboard": None,  # tf.summary imports it
    "importlib-resources": None,  # TFDS imports it
}


def imported():
    """Return the top-level names of imported packages."""
    names = set()
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    names.add(node.module)
    return {name.partition(".")[0] for name in names}


def python(*arguments, cwd, **env):
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | env,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a folder with the sources of the wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout):
    python("-m", "build", "--wheel", "--no-isolation", ".", cwd=checkout)
    (path,) = (checkout / "dist").glob("*.whl")
    return path


def test_wheel_holds_every_source_and_nothing_else(checkout, wheel):
    names = [
        name
        for name in zipfile.ZipFile(wheel).namelist()
        if ".dist-info/" not in name
    ]
    expected = set()
    for top in SOURCES:
        for path in (checkout / top).rglob("*"):
            if path.suffix in PACKAGED:
                inside = path.relative_to(checkout)
                if top != "t2t_repro":
                    inside = "t2t_repro" / inside
                expected.add(inside.as_posix())
    assert set(names) == expected
    assert len(expected) > 40


def test_wheel_requires_what_is_used_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        lines = archive.read(name).decode("utf-8").splitlines()
    required = {"t2t_repro"}
    for line in lines:
        kind, _, value = line.partition(": ")
        if kind == "Requires-Dist":
            one = requirements.Requirement(value)
            extra = str(one.marker or "").partition("== ")[2].strip('"')
            if extra not in ("dev", "gpu"):
                name = one.name.lower().replace("_", "-")
                module = MODULES.get(name, name.replace("-", "_"))
                required |= {module and module.lower()}
    used = {name.lower() for name in imported()} - set(sys.stdlib_module_names)
    # Parts of TensorFlow Serving's API, of TensorFlow and of Jinja2.
    assert used - required <= {"grpc", "google", "markupsafe"}
    assert required - used <= {None}


def test_wheel_has_a_script_for_every_command(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith("entry_points.txt")]
    text = archive.read(name).decode()
    for command in ("t2t", "t2t-trainer", "t2t-avg-checkpoints", "t2t-query"):
        assert f"{command} = t2t_repro.__main__:main\n" in text


def test_wheel_runs_in_another_folder(wheel, tmp_path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # A user's own module of that name must not get in the way.
    (elsewhere / "hparams.py").write_text("raise ImportError\n")
    where = python("-c", WHERE, cwd=elsewhere, PYTHONPATH=str(site))
    assert all(path.startswith(str(site)) for path in where.split())
    text = python(
        "-m",
        "t2t_repro.datagen",
        "--registry_help",
        cwd=elsewhere,
        PYTHONPATH=str(site),
    )
    assert str(site / "t2t_repro" / "problems" / "multi30k.py") in text


def test_checkout_runs_without_installation(checkout):
    where = python("-c", WHERE, cwd=checkout)
    assert all(path.startswith(str(checkout)) for path in where.split())
    text = python("-m", "t2t_repro.datagen", "--registry_help", cwd=checkout)
    assert str(checkout / "problems" / "multi30k.py") in text


def test_checkout_bridges_nothing_else(checkout):
    code = (
        "import importlib.util as u, t2t_repro; "
        "print(u.find_spec('t2t_repro.setup'), u.find_spec('t2t_repro.tests'))"
    )
    assert python("-c", code, cwd=checkout).split() == ["None", "None"]


def test_this_environment_has_the_command(tmp_path):
    script = pathlib.Path(sys.executable).parent / "t2t"
    if not script.exists():
        pytest.fail("Install the checkout first: pip install -e '.[dev]'.")
    result = subprocess.run(
        [script, "avg_checkpoints", "--help"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert "--num_last_checkpoints" in result.stdout
