"""Imports between packages, compared with the order in CONTRIBUTING.md."""

import ast
import re

from processes import ROOT

# Neither may be needed by a command that only reads names and settings.
WITHOUT_TENSORFLOW = ("cli.", "io.", "metrics.", "registry", "text.", "hparam")
COMPUTE_ON_ANY_BACKEND = ("layers.", "models.")


def read_rows(page):
    """Return the names of each row of the order, from the bottom up."""
    table = page.partition("## The order of packages")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.M)
    return [re.findall(r"`(\w+)/?`", row) for row in reversed(rows)]


ROWS = read_rows((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
PLACES = {name: row for row, names in enumerate(ROWS) for name in names}
COMMANDS = ROWS[-1]


def modules():
    """Return the path of every module by name, such as "data.batch_plan"."""
    folders = {"": "t2t_repro", "problems": "problems", "hparams": "hparams"}
    return {
        ".".join(filter(None, (package, *path.parts))).removesuffix(".py"): (
            ROOT / folder / path
        )
        for package, folder in folders.items()
        for path in (
            path.relative_to(ROOT / folder)
            for path in sorted((ROOT / folder).rglob("*.py"))
        )
        if path.name != "__init__.py"
    }


MODULES = modules()


def imports(source):
    """Return the packages, and modules of the root, that a source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {x.split(".")[1] for x in names if x.startswith("t2t_repro.")}
    return found


def test_order_names_each_package_and_each_module_of_the_root():
    assert PLACES.keys() == {name.partition(".")[0] for name in MODULES}


def test_imports_point_down():
    wrong = []
    for name, path in MODULES.items():
        own = name.partition(".")[0]
        for other in sorted(imports(path.read_text("utf-8")) - {own}):
            if PLACES[other] >= PLACES[own]:
                rows = f"row {PLACES[own]} and row {PLACES[other]}"
                wrong.append(f"{name} imports {other}: {rows}")
    assert wrong == []


def test_only_commands_read_flags():
    readers = [
        name
        for name, path in MODULES.items()
        if "absl" in path.read_text("utf-8")
        and name.partition(".")[0] not in (*COMMANDS, "cli")
    ]
    assert readers == []


def test_modules_without_tensorflow_do_not_import_it():
    importing = [
        name
        for name, path in MODULES.items()
        if name.startswith(WITHOUT_TENSORFLOW)
        and re.search(r"(import|from) tensorflow\b", path.read_text("utf-8"))
        or name.startswith(COMPUTE_ON_ANY_BACKEND)
        and "tensorflow" in path.read_text("utf-8").replace("tensorflow/", "")
    ]
    assert importing == []


def test_only_its_implementation_uses_sentencepiece():
    asking = {
        name
        for name, path in MODULES.items()
        if re.search(
            "import sentencepiece|SentencePieceProcessor|SentencepieceTok",
            path.read_text("utf-8"),
        )
    }
    of_text = {"text.sentence_piece", "text.byte_pair_encoding"}
    assert asking == of_text | {"serving.graph_vocabularies"}


def test_only_registry_names_the_definitions():
    spelled = [
        name
        for name, path in MODULES.items()
        if "t2t_repro.problems" in path.read_text("utf-8")
        and not name.startswith(("problems", "hparams"))
    ]
    assert spelled == []


def test_functions_have_at_most_60_lines():
    """Ruff counts their parameters and statements."""
    long = [
        f"{name}.{node.name}"
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno - node.lineno >= 60
    ]
    assert long == []
