"""Edited text files: each is read, or named by an error, with the line."""

import gzip
import itertools

import pyarrow as pa
import pytest
from file_strategies import edited_bytes, read_or_refuse
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from t2t_repro import errors
from t2t_repro.metrics import scores
from t2t_repro.problem import build_problem
from t2t_repro.text import pair_files, parallel_files, trees

TEXT = (
    b"\xef\xbb\xbfa b\r\n\nc\xc2\x85d \xe2\x80\xa8 e\n\0\t\n"
    + "עברית \u200f👩\u200d🚀\n".encode()
    + b"x" * 3_000
)
TREES = b"""( (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)) )
( (S
   (NP-SBJ-1 (NNP Rex))
   (VP (VBZ wants) (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB play)))))
   (. .)))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def read_all(path):
    return list(parallel_files.read_lines(path))


@given(edited_bytes(TEXT))
def test_lines_end_at_line_feeds_and_the_first_bad_one_is_named(
    folder, content
):
    path, lines = folder / "text", []
    path.write_bytes(content)
    try:
        for line in parallel_files.read_lines(path):
            lines.append(line)
    except errors.UserError as error:
        assert f"{path}, line {len(lines) + 1}," in str(error)
        with pytest.raises(UnicodeDecodeError):
            content.split(b"\n")[len(lines)].decode()
        return
    text = content.decode("utf-8-sig")
    expected = text.removesuffix("\n").split("\n") if content else []
    assert lines == [line.removesuffix("\r") for line in expected]


@given(edited_bytes(gzip.compress(TEXT), gzip.compress(b"a\n") * 2))
@example(gzip.compress(TEXT)[:-4])
@example(gzip.compress(TEXT) + b"\0" * 9)
def test_edited_gz_is_read_or_named(folder, content):
    lines = read_or_refuse(read_all, folder / "text.gz", content)
    if lines is not None and content:
        text = gzip.decompress(content).decode("utf-8-sig")
        text = text.replace("\r\n", "\n")
        assert "\n".join(lines) + "\n" in (text, text + "\n", "\n")


ZST = pa.compress(TEXT, codec="zstd", asbytes=True)


@given(edited_bytes(ZST, ZST * 2))
def test_edited_zst_is_read_or_named(folder, content):
    read_or_refuse(read_all, folder / "text.zst", content)


def make_parquet():
    sink = pa.BufferOutputStream()
    columns = {"en": ["a", "é"], "de": ["b", None]}
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


ONE_FILE = {
    "parquet": make_parquet(),
    "tsv": b"en\tde\na b\tc\n\n\xc3\xa9\t\t\nx\ty\tz\r\n",
    "jsonl": b'{"en": "a", "de": "\\u00e9"}\n{"x": {"de": "\\n", "en": null}}',
    "tmx": b"<?xml version='1.0' encoding='utf-8'?><!DOCTYPE tmx>\n<tmx><tu>"
    b"<tuv xml:lang='en'><seg>a<ph>x</ph>&amp;</seg></tuv>"
    b"<tuv lang='de-AT'><seg>\xc3\xa9\n</seg></tuv></tu></tmx>",
}


@pytest.mark.parametrize("kind", ONE_FILE)
@given(data=st.data())
def test_edited_file_of_pairs_is_read_or_named(folder, kind, data):
    def read(path):
        return list(pair_files.PairFile(str(path), ("en", "de")).read())

    content = data.draw(edited_bytes(ONE_FILE[kind]))
    pairs = read_or_refuse(read, folder / f"pairs.{kind}", content)
    for line in itertools.chain(*pairs or ()):
        assert parallel_files.is_text(line) and "\n" not in line


@given(edited_bytes(TEXT), edited_bytes(TEXT))
def test_pairs_are_of_all_lines_or_refused(folder, inputs, targets):
    (folder / "inputs").write_bytes(inputs)
    paths = folder / "inputs", folder / "targets"
    pairs = (
        read_or_refuse(
            lambda _: list(parallel_files.read_pairs(*paths)), paths[1], targets
        )
        if _decodes(inputs)
        else None
    )
    if pairs is not None:
        assert [list(side) for side in zip(*pairs, strict=True)] in (
            [read_all(path) for path in paths],
            [],
        )


def _decodes(content):
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def assert_is_tree(tree):
    assert len(tree.words) == len(tree.tags)
    for label, first, end in tree.spans:
        assert not set(label) & set("() \n")
        assert 0 <= first < end <= len(tree.words)
    for outer, inner in zip(tree.spans, tree.spans[1:], strict=False):
        assert outer.first <= inner.first  # outer before inner
        assert inner.end <= outer.end or outer.end <= inner.first


@given(edited_bytes(TREES, TREES.replace(b"\n   ", b" ")))
def test_edited_file_of_trees_is_read_or_named_by_line(folder, content):
    path = folder / "trees.mrg"
    found = read_or_refuse(
        lambda path: list(trees.read(read_all(path), path)), path, content
    )
    for tree in found or ():
        assert_is_tree(tree)


@given(edited_bytes(TREES))
def test_treebank_pairs_score_as_their_own_parses(folder, content):
    """Each parse that datagen accepts is its own perfect parse."""
    wsj = build_problem("wsj_parsing")
    pairs = read_or_refuse(
        lambda path: list(wsj.pairs("train", folder, None)),
        folder / "train.mrg",
        content,
    )
    for sentence, line in pairs or ():
        reading = trees.read_line(line, sentence.split())
        assert reading.is_well_formed and trees.write_line(reading.tree) == line
        assert trees.normalize(reading.tree) == reading.tree
        assert_is_tree(reading.tree)
    if pairs:
        sides = [list(side) for side in zip(*pairs, strict=True)]
        found = scores.score(wsj.suite, sides[1], [sides[1]], sides[0])
        assert found["unbalanced_trees"].value == 0
        assert found["miscounted_trees"].value == 0
        # 0: nothing to score in any.
        assert found["bracketing_exact_match"].value in (0, 100)


WORDS = st.text(alphabet="aB.,-*'$é", min_size=1, max_size=4)
TAGS = st.sampled_from(["NN", ",", ".", "``", "-LRB-", "XX"])
NODES = st.recursive(
    st.tuples(TAGS, WORDS),
    lambda parts: st.tuples(
        st.sampled_from(["S", "NP", "VP-X", "", "TOP"]),
        st.lists(parts, min_size=1, max_size=3),
    ),
    max_leaves=8,
).filter(lambda node: isinstance(node[1], list))


def bracketed(node, space):
    """Return a node as text, with white space between any two tokens."""
    label, content = node
    if isinstance(content, str):  # always on one line
        blank = space.strip("\n")
        return f"({blank}{label} {blank}{content}{blank})"
    inner = f"{space} ".join(bracketed(part, space) for part in content)
    return f"({label}{space} {inner}{space})"


def built(node, builder):
    label, content = node
    if isinstance(content, str):
        builder.add(label, content)
        return
    builder.open(label)
    for part in content:
        built(part, builder)
    builder.close()


@given(st.lists(NODES, max_size=3), st.sampled_from(["", "  ", "\n  ", "\t"]))
def test_brackets_in_any_layout_give_the_same_tree(nodes, space):
    text = "\n".join(bracketed(node, space) for node in nodes)
    expected = []
    for node in nodes:
        builder = trees.Builder()
        built(node, builder)
        expected.append(builder.tree())
    found = list(trees.read(text.split("\n"), "here"))
    assert found == expected
    for tree in found:
        normal = trees.normalize(tree)
        assert trees.normalize(normal) == normal
        assert (
            trees.read_line(trees.write_line(normal), normal.words).tree
            == normal
        )
