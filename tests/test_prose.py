"""Checks of plain technical English that a program can make.

The docstring of a function begins with a verb in the imperative, that of a
module or class with a noun phrase. No two modules share a name. Retired names
and words do not occur again.
"""

import ast
import collections
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = "t2t_repro problems hparams scripts tests".split()
PATHS = sorted(
    path.relative_to(ROOT)
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
)
WORDS = pathlib.Path(__file__).parent / "words"
VERBS = set((WORDS / "verbs.txt").read_text("utf-8").split())
RETIRED = [
    line
    for line in (WORDS / "retired.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
# Words that cannot begin a noun phrase.
NEVER_BEGIN_NOUN_PHRASE = set(
    "And As But For How In Of Or That Those What Where Whether".split()
)


@functools.cache
def docstrings():
    """Return "path:line", the node and the first line of each docstring."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    return [
        (f"{path}:{getattr(node, 'lineno', 1)}", node, text.splitlines()[0])
        for path in PATHS
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
    ]


def has_decorator(node, *names):
    """Return whether a definition has a decorator with one of the names."""
    decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
    return any(name in one for one in decorators for name in names)


def has_own_style(node):
    """Return whether the docstring need not begin with a verb.

    The docstring of a test says what is tested, that of a property names its
    value, that of a fixture may do so, and that of a registered function
    describes what is registered, since `show` prints it.
    """
    return node.name.startswith("test_") or has_decorator(
        node, "register", "property", "fixture"
    )


def test_docstrings_of_functions_begin_with_verbs():
    functions = ast.FunctionDef, ast.AsyncFunctionDef
    wrong = [
        f"{place}: {line}"
        for place, node, line in docstrings()
        if isinstance(node, functions)
        and not has_own_style(node)
        and line.split()[0].strip(".,:") not in VERBS
    ]
    assert not wrong, "\n".join(
        ["Begin with a verb of words/verbs.txt:", *wrong]
    )


def test_docstrings_of_properties_name_their_values():
    wrong = [
        f"{place}: {line}"
        for place, node, line in docstrings()
        if has_decorator(node, "property") and line.startswith("Return")
    ]
    assert not wrong, "\n".join(["Begin with a noun phrase:", *wrong])


def test_other_docstrings_begin_with_noun_phrases():
    wrong = [
        f"{place}: {line}"
        for place, _, line in docstrings()
        if line.split()[0].strip(".,:") in NEVER_BEGIN_NOUN_PHRASE
    ]
    assert not wrong, "\n".join(wrong)


@functools.cache
def texts():
    """Return the path and the text of code, pages and scripts.

    The changelog is excluded: it may name what a version has removed.
    """
    names = "README.md CONTRIBUTING.md Makefile pyproject.toml setup.py".split()
    pages = [ROOT / name for name in names]
    pages += sorted((ROOT / "docs").glob("*.md"))
    pages += sorted((ROOT / "scripts").glob("*.md"))
    scripts = sorted((ROOT / "scripts").rglob("*.sh"))
    paths = [ROOT / path for path in PATHS] + pages + scripts
    return [(path.relative_to(ROOT), path.read_text("utf-8")) for path in paths]


@pytest.mark.parametrize("word", RETIRED)
def test_retired_word_does_not_occur(word):
    # Without its \b first: `re` looks for letters 25 times as fast.
    letters = re.compile(word.replace(r"\b", ""))
    uses = [
        f"{path}:{text.count(chr(10), 0, use.start()) + 1}: {use[0]}"
        for path, text in texts()
        if letters.search(text)
        for use in re.finditer(word, text)
    ]
    assert not uses, "\n".join(uses)


def test_no_two_modules_share_a_name():
    names = collections.Counter(
        path.stem
        for path in PATHS
        if path.parts[0] != "tests" and path.stem != "__init__"
    )
    assert [name for name, count in names.items() if count > 1] == []
