"""Imports between modules, compared with the table in CONTRIBUTING.md."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def read_rows(text):
    """Read the table of layers in CONTRIBUTING.md.

    Returns:
        Rows from the bottom up, each a list of cells, which are lists of
        modules: "training.loss", or "text" for a whole package.
    """
    table = text.partition("## The layers")[2].split("```")[1]
    table = re.sub(r"\n\s+", " ", table)  # one line for each row
    rows = []
    for line in reversed(table.strip().splitlines()):
        _, cells = re.split(r"\s{2,}", line, maxsplit=1)
        cells = re.sub(
            r"(\w+)/{(.*?)}",
            lambda group: " ".join(f"{group[1]}.{n}" for n in group[2].split()),
            cells,
        )
        rows.append(
            [
                cell.replace("/ ", " ").strip(" /").replace("/", ".").split()
                for cell in cells.split("|")
            ]
        )
    return rows


ROWS = read_rows((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
ROW_0 = ROWS[0][0]
DEFINITIONS = ("problems", "hparams")
MAY_DEFINITIONS_IMPORT = (
    *ROW_0,
    "registry",
    "hparam",
    "text",
    "metrics",
    "problem",
)
COMMANDS = [module for cell in ROWS[-1] for module in cell]
# Cells of the highest row that every command may import.
FOR_COMMANDS = ("command_line", "common_flags", "flag_types")
# These run without TensorFlow: installing it is not needed to read them.
WITHOUT_TENSORFLOW = (
    "arguments",
    "errors",
    "fields",
    "files",
    "progress",
    "registry",
    "registry_kinds",
    "hparam",
    "text",
    "metrics",
)
# The implementation of SentencePiece's vocabularies, and that in a graph.
SENTENCE_PIECE = {
    "text.sentence_piece",
    "text.mapped_sentence_piece",
    "serving.sentence_piece_graph",
}


def module_name(path):
    """Return data.batch_plan for t2t_repro/data/batch_plan.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "t2t_repro" else parts
    return ".".join(part for part in parts if part != "__init__")


def modules():
    """Return the path of every module by name; the package itself is ""."""
    paths = [
        path
        for folder in ("t2t_repro", *DEFINITIONS)
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    return {module_name(path): path for path in paths}


MODULES = modules()


def imports(source):
    """Return the modules of the project that a source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("t2t_repro."):
                found.add(_known(name.removeprefix("t2t_repro.")))
    return found - {""}


def _known(name):
    """Return the module of a name: text.vocabulary for text.vocabulary.EOS."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name


def find_cell(name):
    """Return (row, cell) of a module, or of its package; None if absent."""
    cells = {
        module: (r, c)
        for r, row in enumerate(ROWS)
        for c, cell in enumerate(row)
        for module in cell
    }
    for known in (name, name.partition(".")[0]):
        if known in cells:
            return cells[known]
    return None


def violation(name, imported):
    """Describe why an import is forbidden; return None if it is allowed."""
    if name.partition(".")[0] in DEFINITIONS:
        same = imported.partition(".")[0] == name.partition(".")[0]
        head = imported.partition(".")[0]
        if same or head in MAY_DEFINITIONS_IMPORT:
            return None
        return f"{name} is a definition and imports {imported}"
    if name == "":  # the package imports its interface when it is first used
        if imported in (*ROW_0, "api"):
            return None
        return f"the package itself imports {imported}"
    (row, cell), (below, other) = find_cell(name), find_cell(imported)
    if imported in FOR_COMMANDS and name in COMMANDS:
        return None
    if imported.partition(".")[0] in DEFINITIONS:
        return f"{name} imports {imported}: only the registry loads it"
    if below < row or (below, other) == (row, cell):
        return None
    return f"{name} (row {row}) imports {imported} (row {below})"


def test_every_module_is_in_the_table_of_layers():
    packages = {
        "",
        "training",
        "decoding",
        "serving",
    }  # their __init__ imports nothing
    absent = [n for n in MODULES if n not in packages and not find_cell(n)]
    assert not absent


def test_table_of_layers_names_only_existing_modules():
    packages = {name.partition(".")[0] for name in MODULES}
    listed = {n for row in ROWS for cell in row for n in cell}
    listed -= set("folders of --usr_dir".split())
    assert listed <= MODULES.keys() | packages


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_down(name):
    source = MODULES[name].read_text("utf-8")
    wrong = [violation(name, imported) for imported in imports(source)]
    assert not [text for text in wrong if text]


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        (
            "layers.attention",
            "from t2t_repro.training import loss",
            "layers.attention (row 2) imports training.loss (row 4)",
        ),
        (
            "decoding.beam_search",
            "from t2t_repro.models import transformer",
            "decoding.beam_search (row 3) imports models.transformer (row 3)",
        ),
        (
            "problems.multi30k",
            "from t2t_repro.data import batch_plan",
            "problems.multi30k is a definition and imports data.batch_plan",
        ),
        (
            "runs",
            "import t2t_repro.problems.multi30k",
            "runs imports problems.multi30k: only the registry loads it",
        ),
        (
            "trainer",
            "from t2t_repro import decoder",
            "trainer (row 8) imports decoder (row 8)",
        ),
        (
            "",
            "from t2t_repro import runs",
            "the package itself imports runs",
        ),
    ],
)
def test_forbidden_import_is_reported(name, source, complaint):
    assert [violation(name, i) for i in imports(source)] == [complaint]


def test_only_commands_read_flags():
    readers = [
        name
        for name, path in MODULES.items()
        if "absl" in path.read_text("utf-8") and name not in COMMANDS
    ]
    assert not readers


@pytest.mark.parametrize("name", sorted(MODULES))
def test_modules_without_tensorflow_do_not_import_it(name):
    source = MODULES[name].read_text("utf-8")
    if name.startswith(("layers", "models")):
        assert "tensorflow" not in source.replace("tensorflow/", "")
    if name.startswith(WITHOUT_TENSORFLOW) and name != "text.tfds":
        assert "import tensorflow" not in source


def test_only_its_implementation_uses_sentencepiece():
    asking = {
        name
        for name, path in MODULES.items()
        if re.search(
            "import sentencepiece|SentencePieceProcessor|SentencepieceTokenizer"
            "|[^_]sentence_piece( import|\\.[A-Z])",
            path.read_text("utf-8"),
        )
    }
    # The registry names its classes, and imports none of them.
    assert asking == SENTENCE_PIECE | {"registry"}


def test_only_registry_names_the_definitions():
    spelled = [
        name
        for name, path in MODULES.items()
        if "t2t_repro.problems" in path.read_text("utf-8")
        and name.partition(".")[0] not in DEFINITIONS
    ]
    assert not spelled
