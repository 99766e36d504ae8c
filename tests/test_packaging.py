"""The wheel of the project: its files, its metadata, its programs."""

import ast
import email.policy
import pathlib
import re
import shutil
import sys
import zipfile

import pytest
from forked import ok
from packaging import requirements
from processes import ROOT, run_python

from t2t_repro import errors
from t2t_repro.__main__ import COMMANDS

SOURCES = ("t2t_repro", "problems", "hparams")
PAGE = (
    "from t2t_repro import errors; "
    "print(errors.UserError('', see='no-download').page)"
)
WHERE = (
    "import t2t_repro, t2t_repro.problems, t2t_repro.hparams; "
    "print(t2t_repro.__file__, *t2t_repro.problems.__path__, "
    "*t2t_repro.hparams.__path__)"
)
PACKAGED = ".py .j2 .html .css .js .json .typed .bash .md .ipynb".split()
# Packages that are imported by another name than theirs, or not by us.
MODULES = {
    "mlflow-skinny": "mlflow",
    "pyyaml": "yaml",
    "grpcio-health-checking": "grpc_health",
    "absl-py": "absl",
    "tensorflow-serving-api": "tensorflow_serving",
    "importlib-resources": None,  # TFDS imports them
    "tensorflow-metadata": None,
    "protobuf": None,  # SentencePiece imports it
    "s3fs": None,  # io.storage imports them by names in a table
    "gcsfs": None,
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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a folder with the sources of the wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*SOURCES, "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout):
    build = "-m", "build", "--wheel", "--no-isolation", "."
    ok(run_python(*build, cwd=checkout))
    (path,) = (checkout / "dist").glob("*.whl")
    return path


def metadata(wheel):
    """Return the METADATA of the wheel, whose body is the long description."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        return email.message_from_bytes(
            archive.read(name), policy=email.policy.default
        )


def test_wheel_holds_every_source_and_nothing_else(checkout, wheel):
    names = [
        name
        for name in zipfile.ZipFile(wheel).namelist()
        if ".dist-info/" not in name
    ]
    expected = set()
    for top in (*SOURCES, "docs"):
        for path in (checkout / top).rglob("*"):
            if path.suffix in PACKAGED:
                inside = path.relative_to(checkout)
                if top != "t2t_repro":
                    inside = "t2t_repro" / inside
                expected.add(inside.as_posix())
    assert set(names) == expected
    assert len(expected) > 40


def test_wheel_requires_what_is_used_and_nothing_else(wheel):
    required = {"t2t_repro"}
    for value in metadata(wheel).get_all("Requires-Dist"):
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


def test_page_lists_every_package_and_extra(wheel):
    text = (ROOT / "docs" / "packages.md").read_text("utf-8")
    base, extras = (
        re.findall(r"^\| `(.+?)` \|", part, re.M)
        for part in text.split("## Extras")
    )
    data = metadata(wheel)
    required = map(requirements.Requirement, data.get_all("Requires-Dist"))
    names = [one.name for one in required if "extra" not in str(one.marker)]
    assert base == [*dict.fromkeys(names)]  # those of a Python, too
    assert sorted(extras) == sorted(data.get_all("Provides-Extra"))


def test_wheel_has_a_script_for_every_command(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if n.endswith("entry_points.txt")]
    scripts = re.findall(
        r"(\S+) = t2t_repro.__main__:main\n", archive.read(name).decode()
    )
    names = *COMMANDS, *errors.T2T_COMMANDS
    commands = [f"t2t-{name.replace('_', '-')}" for name in names]
    assert scripts == ["t2t", *sorted(commands)]


def test_long_description_has_only_links_to_other_sites(wheel):
    text = metadata(wheel).get_content()
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets == ["https://arxiv.org/abs/1706.03762"]
    # Text of links remains; pictures and their captions do not.
    assert "The tutorial leads in ten\nminutes" in text
    assert "Attention weights of one head" not in text
    assert (ROOT / "README.md").read_text("utf-8").count("\n## ") == text.count(
        "\n## "
    )


def test_wheel_runs_in_another_folder(wheel, tmp_path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # A user's own module of that name must not get in the way.
    (elsewhere / "hparams.py").write_text("raise ImportError\n")

    def python(*arguments):
        env = {"PYTHONPATH": str(site)}
        return ok(run_python(*arguments, cwd=elsewhere, env=env))

    where = python("-c", WHERE)
    assert all(path.startswith(str(site)) for path in where.split())
    text = python("-m", "t2t_repro.datagen", "--registry_help")
    assert str(site / "t2t_repro" / "problems" / "multi30k.py") in text
    text = python("-c", PAGE)
    page, _, section = text.strip(" .\n").removeprefix("See ").partition("#")
    assert page == str(site / "t2t_repro" / "docs" / "troubleshooting.md")
    assert pathlib.Path(page).is_file() and section == "no-download"
