"""Files with both sides of a text: what each reader yields and refuses."""

import gzip
import subprocess
import sys

import pytest

from t2t_repro import errors
from t2t_repro.text import pair_files

TMX = """<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><body>
<tu><tuv xml:lang="EN-us"><seg>A <ph>{\\b <sub>x</sub>}</ph>red
  <hi>d&amp;og</hi>.</seg></tuv><tuv xml:lang="fr"><seg>x</seg></tuv>
<tuv xml:lang="de"><seg>Ein&#160;Hund.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu>
<tu><tuv lang="de_AT"><seg/></tuv><tuv lang="en"><seg>b</seg></tuv></tu>
</body></tmx>"""
ENTITIES = "".join(
    f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12)
)
ATTACK = f'<!DOCTYPE tmx [<!ENTITY a0 "0123456789">{ENTITIES}]><tmx>&a11;</tmx>'


def read(tmp_path, name, text, columns=()):
    path = tmp_path / name
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    file = pair_files.PairFile(str(path), ("en", "de"), "", ":".join(columns))
    return list(file.read())


@pytest.mark.parametrize(
    ("name", "text", "columns", "expected"),
    [
        (
            "a.tsv",
            'a "b\tc d\tx\n\n\te\n',
            (),
            [('a "b', "c d"), ("",) * 2, ("", "e")],
        ),
        ("a.tsv.gz", "id\tde\ten\r\n1\tb\ta\r\n", (), [("a", "b")]),
        ("a.tsv", "src\ttgt\nb\ta\n", ("tgt", "src"), [("a", "b")]),
        ("a.tsv", "1\tb\ta\n", ("3", "2"), [("a", "b")]),
        ("a.jsonl", '{"en": "a\\nb", "de": null}\n\n', (), [("a b", "")]),
        (
            "a.jsonl",
            '{"id": 1, "translation": {"en": "a", "de": "b"}}',
            (),
            [("a", "b")],
        ),
        (
            "a.tmx",
            TMX,
            (),
            [("A red d&og.", "Ein\xa0Hund."), ("b", "")],
        ),
        (
            "a.tmx.gz",
            TMX.encode("utf-16"),
            ("en-US", "fr"),
            [("A red d&og.", "x")],
        ),
    ],
)
def test_pairs_of_each_format(tmp_path, name, text, columns, expected):
    assert read(tmp_path, name, text, columns) == expected


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", "a\tb\nc\n", (), "line 2, has 1 columns; column 2 is.*'c'"),
        (
            "a.tsv",
            "a\tb\n",
            ("en", "x"),
            "line 1, must have the columns en and",
        ),
        ("a.tsv", b"a\tb\n\xff\tb\n", (), "line 2, is not UTF-8"),
        ("a.jsonl", '{"en": "a"}', (), "line 1, must be an object with text"),
        ("a.jsonl", '{"en": "a", "de": 0}', (), "line 1, must be an object"),
        ("a.jsonl", '\n{"en"', (), "line 2, is not JSON"),
        ("a.jsonl", "[" * 100_000, (), "line 1, is not JSON"),
        (
            "a.tmx",
            "<tmx>\n<tu></tmx>",
            (),
            "is not XML: mismatched tag: line 2",
        ),
        (
            "a.tmx",
            TMX,
            ("en", "it"),
            "no unit.*its languages are de, de-at, en, en-us, fr\\.",
        ),
        (
            "a.tmx",
            "<tu><tuv><seg>" + "<hi>" * 9_999,
            (),
            "is not XML: no element",
        ),
        ("a.tmx", ATTACK, (), "amplification factor"),
        ("a.txt", "", (), "format of .*a.txt must be tsv, jsonl.*got 'txt'"),
    ],
)
def test_wrong_line_is_named(tmp_path, name, text, columns, message):
    with pytest.raises(errors.UserError, match=message):
        read(tmp_path, name, text, columns)


def test_standard_input_is_tsv():
    program = (
        "from t2t_repro.text import pair_files as p;"
        "print(*p.PairFile(p.STDIN, ('en', 'de')).read())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, input="a\tb\n", text=True, capture_output=True
    )
    assert done.stdout == "('a', 'b')\n"
