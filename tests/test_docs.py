"""What the pages name exists: files, commands, flags, sets, problems."""

import pathlib
import re

import pytest

from t2t_repro import registry

ROOT = pathlib.Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PACKAGE = ROOT / "t2t_repro"
pages = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


@pages
def test_files_that_are_named_exist(page):
    text = page.read_text("utf-8")
    folders = "t2t_repro|problems|hparams|tests|scripts|docs"
    named = re.findall(rf"`((?:{folders})/[\w./]+\.\w+)`", text)
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)\)", text)
    for path in named:
        assert (ROOT / path).exists(), path
    for path in linked:
        assert (page.parent / path).exists(), path


@pages
def test_commands_and_definitions_that_are_named_exist(page):
    text = page.read_text("utf-8").replace("\\\n", " ")
    for name in re.findall(r"python -m t2t_repro\.(\w+)", text):
        assert (PACKAGE / f"{name}.py").exists(), name
    registry.load_definitions()
    for name in re.findall(r"--hparams_set=(\w+)", text):
        registry.hparams_sets[name]
    for name in re.findall(r"--problem=(\w+)", text):
        registry.problems[name.removesuffix("_rev")]


def test_there_are_pages():
    assert {"README.md", "paper.md"} <= {page.name for page in PAGES}
