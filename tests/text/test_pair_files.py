"""Files with both sides of a text: formats, and division into splits."""

import gzip
import random

import pyarrow as pa
import pytest
from processes import run_python
from pyarrow import parquet

from t2t_repro import errors
from t2t_repro.text import pair_files, parallel_files

LANGUAGES = ("en", "de")

TMX = """<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><body>
<tu><tuv xml:lang="EN-us"><seg>A <ph>{\\b <sub>x</sub>}</ph>red
  <hi>d&amp;og</hi>.</seg></tuv><tuv xml:lang="fr"><seg>x</seg></tuv>
<tuv xml:lang="de"><seg>Ein&#160;Hund.</seg></tuv>
<tuv xml:lang="en-GB"><seg>Another</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu>
<tu><tuv lang="de_AT"><seg/></tuv><tuv lang="en"><seg>b</seg></tuv></tu>
</body></tmx>"""
FOUND = "de, de-at, en, en-gb, en-us, fr"
ENTITIES = "".join(
    f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12)
)
ATTACK = f'<!DOCTYPE tmx [<!ENTITY a0 "0123456789">{ENTITIES}]><tmx>&a11;</tmx>'


def read(tmp_path, name, text, columns=()):
    path = tmp_path / name
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    file = pair_files.PairFile(str(path), LANGUAGES, "", ":".join(columns))
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
        ("a.tsv.gz", "id\tDE\ten\r\n1\tb\ta\r\n", (), [("a", "b")]),
        ("a.tsv", "src\ttgt\nb\ta\n", ("tgt", "src"), [("a", "b")]),
        ("a.tsv", "2\t3\ta\n", ("3", "2"), [("a", "3")]),
        ("a.jsonl", '{"en": "a\\nb", "de": null}\n\n', (), [("a b", "")]),
        ("a.jsonl", '{"x": {"en": "a", "de": "b"}, "y": 1}', (), [("a", "b")]),
        ("a.tmx", TMX, (), [("A red d&og.", "Ein\xa0Hund."), ("b", "")]),
        (
            "a.tmx.gz",
            TMX.replace("tmx v", 'tmx xmlns="x:tmx" v').encode("utf-16"),
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
        ("a.tsv", "a\tb\n", ("en", "x"), "line 1, must have the columns en"),
        ("a.tsv", "id\ten_US\tde\n", (), "has the column de of .*'id, en_US"),
        ("a.tsv", b"a\tb\n\xff\tb\n", (), "line 2, is not UTF-8"),
        ("a.jsonl", '{"en": "a"}', (), "line 1, must be an object with text"),
        ("a.jsonl", '{"en": "a", "de": 0}', (), "line 1, must be an object"),
        ("a.jsonl", '\n{"en"', (), "line 2, is not JSON"),
        ("a.jsonl", "[" * 100_000, (), "line 1, is not JSON"),
        ("a.tmx", "<tmx>\n<tu></tmx>", (), "is not XML: mismatched .* line 2"),
        ("a.tmx", TMX, ("en", "it"), f"no unit.*{FOUND}\\."),
        ("a.tmx", "<tu><seg>" + "<hi>" * 9_999, (), "not XML: no element"),
        ("a.tmx", ATTACK, (), "amplification factor"),
        ("a.tsv.bz2", "", (), "a.tsv.bz2 must be plain text, .gz or .*Extract"),
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
    done = run_python("-c", program, input="a\tb\n")
    assert done.stdout == "('a', 'b')\n"


# Sentence i // 2 translates to i // 3: each has several translations.
PAIRS = sorted({(f"source {i // 2}", f"target {i // 3}") for i in range(120)})


def divide(folder, pairs, held_out=0):
    """Return {split: pairs}, and the counts."""
    folder.mkdir()
    file = pair_files.PairFile(pair_files.STDIN, LANGUAGES)
    counts = pair_files.Division(file, held_out).divide(pairs, folder)
    assert len(list(folder.iterdir())) == 6
    splits = {}
    for split in ("train", "validation", "test"):
        paths = (folder / f"{split}.{name}.zst" for name in LANGUAGES)
        splits[split] = list(parallel_files.read_pairs(*paths))
        assert counts[split] == len(splits[split])
    return splits, counts


def test_splits_share_no_sentence_and_each_pair_is_counted(tmp_path):
    variants = [(f"  {s.upper()}", t) for s, t in PAIRS[::2]]
    dirty = [*PAIRS, *PAIRS[:9], *variants, ("a", "\u200b "), ("", "b")]
    splits, counts = divide(tmp_path / "a", dirty, held_out=7)
    assert len(splits["validation"]) == len(splits["test"]) == 7
    for side in range(2):
        sentences = [
            {p[side].strip().lower() for p in split}
            for split in splits.values()
        ]
        assert len(set.union(*sentences)) == sum(map(len, sentences))
    assert (counts["empty_side"], counts["repeated"]) == (2, 9)
    assert counts["read"] == len(dirty) == sum(counts.values()) - counts["read"]
    mixed = random.Random(1).sample(dirty, len(dirty))
    again, _ = divide(tmp_path / "b", mixed, 7)
    assert {key: set(part) for key, part in again.items()} == {
        key: set(part) for key, part in splits.items()
    }


def test_every_pair_without_a_held_out_sentence_is_kept(tmp_path):
    pairs = [(f"source {i}", f"target {i}") for i in range(60)]
    splits, _ = divide(tmp_path / "a", pairs)
    assert [len(split) for split in splits.values()] == [54, 3, 3]
    assert splits["train"] == [p for p in pairs if p in splits["train"]]
    assert sorted(sum(splits.values(), [])) == sorted(pairs)


@pytest.mark.parametrize(
    ("pairs", "held_out", "message"),
    [
        (PAIRS, 60, "80 different pairs.*too few to hold out 60"),
        (PAIRS[:9], 0, "9 different .* hold out 1 .*, or set held_out=1"),
        ([("a", str(i)) for i in range(50)], 1, "too few to hold out 1 "),
    ],
)
def test_text_that_is_too_small_is_refused(tmp_path, pairs, held_out, message):
    with pytest.raises(errors.UserError, match=message):
        divide(tmp_path / "a", pairs, held_out)


def test_text_is_divided_again_if_its_file_changes(tmp_path):
    path = tmp_path / "pairs.tsv"
    text = "".join(f"{i}\t{i}\n" for i in range(40))
    file = pair_files.PairFile(str(path), LANGUAGES)

    def count(held_out=0):
        division = pair_files.Division(file, held_out)
        folder = division.folder(tmp_path / "a" / "b")
        return len(list(parallel_files.read_lines(folder / "train.de.zst")))

    path.write_text(text)
    assert count() == count() == 36
    path.write_text(f"{text}new\tnew\n")
    assert count() == 37
    path.unlink()  # as standard input, which is read once
    assert count() == 37
    killed = tmp_path / "a" / f"b.{'0' * 16}.t2t.tmp"
    killed.mkdir()
    with pytest.raises(errors.UserError, match="pairs.tsv: it does not exist"):
        count(held_out=3)
    assert not killed.exists()
    assert count() == 37  # which would be lost if it was piped


def test_empty_sources_are_kept_where_the_problem_allows_them(tmp_path):
    pairs = [("", str(i)) for i in range(40)]
    file = pair_files.PairFile(pair_files.STDIN, LANGUAGES)
    counts = pair_files.Division(file, 2, True).divide(pairs, tmp_path)
    assert (counts["train"], counts["test"], counts["shared"]) == (36, 2, 0)


@pytest.mark.parametrize(
    "columns",
    [
        {
            "en": pa.array(["a", "b"]).dictionary_encode(),
            "de": pa.array(["-a", "-b"], pa.string_view()),
        },
        {
            "id": [1, 2],
            "translation": [{"de": "-a", "en": "a"}, {"de": "-b", "en": "b"}],
        },
    ],
)
def test_text_of_parquet_may_have_other_types(tmp_path, columns):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table(columns), path)
    pairs = list(pair_files.read_parquet(path, LANGUAGES))
    assert pairs == [("a", "-a"), ("b", "-b")]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"en": ["a"]}, r"en \(string\)"),
        ({"en": [1], "de": [2]}, r"en \(int64\), de \(int64\)"),
        ({"both": [{"en": "a"}]}, r"both \(struct<en: string>\)"),
        (pa.table([["a"]] * 3, ["en", "de", "en"]), "en .*, de .*, en"),
    ],
)
def test_parquet_without_columns_of_text_is_an_error(tmp_path, columns, found):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table(columns), path)
    message = f"text named en and de, or a column .*; got {found}"
    with pytest.raises(errors.UserError, match=message):
        list(pair_files.read_parquet(path, LANGUAGES))
