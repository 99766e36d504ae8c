"""Tests of the pages: names in them exist, and their commands run."""

import ast
import contextlib
import os
import pathlib
import re
import subprocess
import sys

import pytest
from processes import ROOT, run_program

import t2t_repro
from scripts.release import cold_start
from t2t_repro import errors, hparam, registry
from t2t_repro.__main__ import WORDS
from t2t_repro.io import fields

FOLDERS = ROOT, ROOT / "docs", ROOT / "scripts"
PAGES = sorted(path for folder in FOLDERS for path in folder.glob("*.md"))
PACKAGE = ROOT / "t2t_repro"
WITH_COMMANDS = [page for page in PAGES if "\n```sh\n" in page.read_text()]
# The entry point of pyproject.toml, for environments that lack it.
ENTRY_POINT = f"""#!{sys.executable}
import sys
from t2t_repro.__main__ import main
sys.exit(main())
"""
pages = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


def anchors(page):
    """Return the anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


@pages
def test_paths_and_links_exist(page):
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
def test_commands_exist(page):
    """tests/commands/test_help.py compares their flags."""
    text = page.read_text("utf-8")
    # At the start of a line, after a pipe, or quoted.
    ours = r"(?:^|[|`] ?)(?:t2t |python -m t2t_repro\.)([a-z_]+)"
    for name in re.findall(ours, text, re.M):
        assert name in WORDS or (PACKAGE / f"{name}.py").exists(), name
    for name in re.findall(r"python -m (scripts\.[a-z]+\.\w+)", text):
        assert (ROOT / f"{name.replace('.', '/')}.py").exists(), name


@pages
def test_problems_and_hparams_sets_exist(page):
    text = page.read_text("utf-8")
    defined_here = set(re.findall(r'\.register\("(\w+)"', text))
    for name in {*re.findall(r"--hparams_set=(\w+)", text)} - defined_here:
        registry.hparams_sets[name]
    for name in {*re.findall(r"--problem=(\w+)", text)} - defined_here:
        registry.problems[name.removesuffix("_rev")]


def settings_in(page, flag):
    """Return the settings "a=1,b=2" that a page gives to a flag."""
    values = re.findall(rf"--{flag}=([\w=.,*:]+)", page.read_text("utf-8"))
    return [v for v in values if "=" in v and not v.startswith("key=")]


def is_valid(cls, settings):
    """Return whether a settings dataclass accepts "a=1,b=2"."""
    try:
        return bool(fields.parse(cls, settings))
    except errors.UserError:
        return False


@pages
def test_settings_in_flags_are_valid(page):
    classes = {model.hparams for model in registry.models}
    for settings in settings_in(page, "hparams"):
        assert any(is_valid(cls, settings) for cls in classes), settings
    for settings in settings_in(page, "decode_hparams"):
        assert is_valid(hparam.DecodeHParams, settings), settings


def defines(module, name):
    """Return whether a module file defines a name, or a class's method."""
    body = ast.parse(module.read_text("utf-8")).body
    for part in name.split("."):
        found = [
            node
            for node in body
            if getattr(node, "name", None) == part
            or isinstance(node, ast.Assign)
            and part in [getattr(target, "id", "") for target in node.targets]
        ]
        body = found[0].body if found and hasattr(found[0], "body") else []
    return bool(found)


def test_definitions_of_the_paper_page_exist():
    text = (ROOT / "docs/paper.md").read_text("utf-8")
    named = re.findall(r"`([a-z_]+)\.([A-Za-z_.]+)`", text)
    assert len(named) > 4
    for module, name in named:
        files = PACKAGE.rglob(f"{module}.py")
        assert any(defines(file, name) for file in files), (module, name)


def test_stops_of_each_journey_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("## Four journeys")[2].partition("\n## ")[0]
    journeys = re.split(r"^1\. ", section, flags=re.M)[1:]
    assert len(journeys) == 4
    stop = re.compile(
        r"^(?:\d+\. )?`([a-z_.]+)\.((?:_?[A-Z]\w*\.)?\w+)`: ", re.M
    )
    for journey in journeys:
        stops = stop.findall(journey)
        assert 5 < len(stops) <= 10
        for module, name in stops:
            file = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
            assert defines(file, name), f"{module}.{name}"


def test_api_page_lists_what_the_package_exports():
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    rows = re.findall(r"^\| (`t2t_repro`) \| ([^|]*) \|$", text, re.M)
    ((_, names),) = rows
    listed = re.findall(r"`(\w+)`", names)
    assert listed == [*t2t_repro.__all__, "__version__"]


def test_names_in_api_page_exist():
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    rows = re.findall(r"^\| (`t2t_repro\.[^|]*) \| ([^|]*) \|$", text, re.M)
    assert len(rows) > 10
    for modules, names in rows:
        paths = [
            PACKAGE / name.replace(".", "/")
            for name in re.findall(r"`t2t_repro\.([\w.]+)`", modules)
        ]
        (path, *_) = paths
        first, _, _ = names.partition(":")
        for name in re.findall(r"`([\w.]+)`", first):
            *folders, last = name.split(".")
            file = path.joinpath(*folders).with_suffix(".py")
            if len(paths) > 1:
                assert any(defines(p.with_suffix(".py"), name) for p in paths)
            elif file.exists():
                assert defines(file, last), f"{modules} {name}"
            else:
                assert (path / f"{last}.py").exists(), f"{modules} {name}"


def first_columns(name, heading=""):
    """Yield the first two cells of the table rows below a heading of a page."""
    text = (ROOT / "docs" / name).read_text("utf-8")
    section = text[text.index(heading) :].partition("\n## ")[0]
    for names, second in re.findall(r"^\| (`.*?) \|(.*?)\|", section, re.M):
        yield names, second.strip()


def parsed(text):
    """Return a cell's value in Python: "1,500" -> 1500."""
    with contextlib.suppress(ValueError):
        return float(text.replace(",", ""))
    return {"true": True, "false": False}.get(text, text)


def test_search_page_has_all_options_with_defaults():
    assert {
        name.strip("`"): parsed(default)
        for name, default in first_columns("searching.md")
    } == vars(hparam.DecodeHParams())


def test_values_in_hparams_page_equal_those_of_base():
    base = vars(registry.build_hparams("base"))
    rows = list(first_columns("hparams.md", "## Single values"))
    assert len(rows) > 5
    for names, values in rows:
        texts = values.replace(" (off)", "").split(", ")
        for name, text in zip(re.findall(r"\w+", names), texts, strict=False):
            assert parsed(text) == base[name], name


@pytest.mark.parametrize(
    "page, heading, modules",
    [
        ("models.md", "## Required members", ["models/seq2seq.py"]),
        ("models.md", "## Optional members", ["models/seq2seq.py"]),
        ("searching.md", "A search calls", ["decoding/rules.py"]),
        (
            "searching.md",
            "## Rules",
            [
                "decoding/rules.py",
                "decoding/forbidden.py",
                "decoding/constraints.py",
            ],
        ),
        (
            "problems.md",
            "## Arguments",
            ["data/settings.py", "text/vocabulary_pair.py"],
        ),
    ],
)
def test_members_of_interfaces_exist(page, heading, modules):
    source = "".join((PACKAGE / name).read_text("utf-8") for name in modules)
    rows = list(first_columns(page, heading))
    assert len(rows) > 4
    for names, _ in rows:
        for name in re.findall(r"`(?:\w+\.)?(\w+)", names):
            assert re.search(rf"\b{name}\b", source), name


def test_errors_refer_to_sections_of_troubleshooting():
    sections = {
        anchor
        for path in PACKAGE.rglob("*.py")
        for anchor in re.findall(r'see="([\w-]+)"', path.read_text("utf-8"))
    }
    assert sections
    assert sections <= anchors(ROOT / "docs" / "troubleshooting.md")


def messages_of_code():
    """Yield the texts of the package, with … for each inserted value."""
    for path in [*PACKAGE.rglob("*.py"), *ROOT.glob("problems/*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    part.value if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                )
            elif isinstance(node, ast.Constant):
                yield str(node.value)


def test_messages_quoted_in_troubleshooting_are_those_of_the_code():
    text = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    quoted = [" ".join(q.split()) for q in re.findall(r'"([^"]+)"', text)]
    assert len(quoted) > 8
    messages = list(messages_of_code())
    for quote in quoted:
        parts = map(re.escape, quote.removesuffix("…").split("…"))
        pattern = re.compile("….*?".join(parts))
        assert any(map(pattern.search, messages)), quote


def test_readme_of_scripts_lists_every_program_in_its_folder():
    text = (ROOT / "scripts" / "README.md").read_text("utf-8")
    parts = dict(re.findall(r"^## (\w+):(.*?)(?=^## |\Z)", text, re.M | re.S))
    for folder in "benchmarks paper release reproduce serving".split():
        listed = set(re.findall(r"`([\w.]+)`", parts[folder]))
        files = {
            path.name.removesuffix(".py")
            for path in (ROOT / "scripts" / folder).iterdir()
            if path.is_file() and path.stem not in ("__init__", "translate")
        }
        assert files <= listed, folder


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """Return the folder of data that all pages share."""
    return tmp_path_factory.mktemp("data")


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", WITH_COMMANDS, ids=lambda path: path.name.removesuffix(".md")
)
def test_shell_commands_of_page_exit_with_status_0(page, tmp_path, data_folder):
    text = page.read_text("utf-8")
    (tmp_path / "data").symlink_to(data_folder)
    cold_start.write_files(text, tmp_path)
    script = cold_start.script(cold_start.shell_commands(text))
    entry_point = tmp_path / "bin" / "t2t"
    entry_point.parent.mkdir()
    entry_point.write_text(ENTRY_POINT)
    entry_point.chmod(0o755)
    binaries = pathlib.Path(sys.executable).parent
    env = {
        "HOME": str(tmp_path),
        "PATH": f"{entry_point.parent}:{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    result = run_program(
        *("bash", "-c", script), cwd=tmp_path, env=env, stdin=subprocess.DEVNULL
    )
    assert result.returncode == 0, result.stderr[-3000:]
    if page.stem == "tutorial":
        # Of decoder, export, the server by gRPC and REST, and from Python.
        assert result.stdout.count("Freitag, der 12. Juni 2054") == 5
