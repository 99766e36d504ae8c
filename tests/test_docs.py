"""What the pages name exists, and what they tell to run runs."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from scripts.release import page_commands
from t2t_repro import errors, fields, hparam, registry

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = ROOT, ROOT / "docs", ROOT / "scripts"
PAGES = sorted(path for folder in FOLDERS for path in folder.glob("*.md"))
PACKAGE = ROOT / "t2t_repro"
WITH_COMMANDS = [page for page in PAGES if "\n```sh\n" in page.read_text()]
SECONDS = 1_800  # of a page's commands; they take some minutes
pages = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


def anchors(page):
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


@pages
def test_files_that_are_named_exist(page):
    text = page.read_text("utf-8")
    folders = "t2t_repro|problems|hparams|tests|scripts|docs"
    for path in re.findall(rf"`((?:{folders})/[\w./]+\.\w+)`", text):
        assert (ROOT / path).exists(), path
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", text.replace("\n", ""))
    for link in links:
        path, _, anchor = link.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), link
        assert not anchor or anchor in anchors(linked), link


@pages
def test_commands_and_definitions_that_are_named_exist(page):
    text = page.read_text("utf-8").replace("\\\n", " ")
    for name in re.findall(r"python -m t2t_repro\.(\w+)", text):
        assert (PACKAGE / f"{name}.py").exists(), name
    for name in re.findall(r"python -m (scripts\.[a-z\d_.]+\w)", text):
        assert (ROOT / f"{name.replace('.', '/')}.py").exists(), name
    registry.load_definitions()
    own = set(re.findall(r'\.register\("(\w+)"', text))
    for name in {*re.findall(r"--hparams_set=(\w+)", text)} - own:
        registry.hparams_sets[name]
    for name in {*re.findall(r"--problem=(\w+)", text)} - own:
        registry.problems[name.removesuffix("_rev")]


def settings_named(page, flag):
    """Return the values that a page gives to a flag of settings."""
    values = re.findall(rf"--{flag}=([\w=.,*:]+)", page.read_text("utf-8"))
    return [
        value
        for value in values
        if "=" in value and not value.startswith("key=")
    ]


def parses(cls, settings):
    """Return whether a settings dataclass has all of "a=1,b=2"."""
    try:
        return bool(fields.parse(cls, settings))
    except errors.UserError:
        return False


@pages
def test_hparams_that_are_named_exist_in_one_model(page):
    registry.load_definitions()
    classes = {
        registry.models.hparams_class(model.name) for model in registry.models
    }
    for settings in settings_named(page, "hparams"):
        assert any(parses(cls, settings) for cls in classes), settings


@pages
def test_decode_hparams_that_are_named_exist(page):
    for settings in settings_named(page, "decode_hparams"):
        assert fields.parse(hparam.DecodeHParams, settings)


def test_errors_name_sections_of_troubleshooting():
    named = {
        anchor
        for path in PACKAGE.rglob("*.py")
        for anchor in re.findall(r'see="([\w-]+)"', path.read_text("utf-8"))
    }
    assert named
    assert named <= anchors(ROOT / "docs" / "troubleshooting.md")


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", WITH_COMMANDS, ids=lambda path: path.name.removesuffix(".md")
)
def test_commands_run(page, tmp_path):
    text = page.read_text("utf-8")
    page_commands.write_files(text, tmp_path)
    script = page_commands.script(page_commands.shell_commands(text))
    binaries = pathlib.Path(sys.executable).parent
    result = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ
        | {
            "HOME": str(tmp_path),
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    if page.stem == "tutorial":
        # decoder, the export, the server by gRPC and by REST
        assert result.stdout.count("Freitag, der 12. Juni 2054") == 4


def test_there_are_pages():
    assert {"README.md", "paper.md"} <= {page.name for page in PAGES}
    assert "tutorial" in {page.stem for page in WITH_COMMANDS}
