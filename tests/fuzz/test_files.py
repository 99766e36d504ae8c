"""Edited files of text, vocabularies and shards: each is read, or named."""

import contextlib
import gzip
import itertools
import pathlib
import resource
import tempfile
import types

import pyarrow as pa
import pytest
from file_strategies import LINES, edited_bytes, read_or_refuse
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from t2t_repro import errors
from t2t_repro.cli import decoder_flags
from t2t_repro.data import corpus
from t2t_repro.metrics import scores
from t2t_repro.problem import build_problem
from t2t_repro.text import pair_files, parallel_files, trees
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import EOS

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
def test_lines_end_at_line_feeds_and_first_bad_one_is_named(folder, content):
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


TEXTS = {"train.en": b"one\n" * 9, "train.de": b"eins\n" * 9}
IDS = {"inputs": [[5, 1], [6, 7, 1]], "targets": [[8, 1], [1]]}


@pytest.fixture(scope="module")
def archive(folder):
    (folder / "kit").mkdir()
    for name, content in TEXTS.items():
        (folder / "kit" / name).write_bytes(content)
    parallel_files.pack(folder / "kit", folder / "kit.zip")
    return (folder / "kit.zip").read_bytes()


@given(data=st.data())
def test_edited_vocabulary_works_or_is_named(vocabulary, folder, data):
    content = data.draw(edited_bytes(vocabulary.model))
    found = read_or_refuse(Bpe.load, folder / "vocab", content)
    if found:
        for line in ("two birds sing", "日本", ""):
            (ids,) = found.encode([line])
            assert ids[-1] == EOS and max(ids) < found.size
            assert len(found.decode([ids])) == 1


@pytest.fixture(scope="module")
def shard(folder):
    text = {"inputs": ["a", "b"], "targets": ["A", ""]}
    corpus.write_shard(folder / "whole.arrow", IDS, text, 300, {"read": 2})
    return (folder / "whole.arrow").read_bytes()


@given(data=st.data())
def test_edited_shard_has_pairs_or_is_named(folder, shard, data):
    content = data.draw(edited_bytes(shard))
    path = folder / "shard.arrow"
    found = read_or_refuse(lambda path: corpus.Corpus([path]), path, content)
    if found is None:
        return
    for side in corpus.SIDES:
        assert len(found.lengths[side]) == len(found)
        rows = found.sentences(side)
        assert list(map(len, rows)) == found.lengths[side].tolist()
        with contextlib.suppress(errors.UserError):
            assert {type(line) for line in found.text(side)} <= {str}


@given(data=st.data())
def test_edited_archive_is_whole_or_is_named(folder, archive, data):
    content = data.draw(edited_bytes(archive))
    parent = pathlib.Path(tempfile.mkdtemp(dir=folder))
    found = read_or_refuse(
        lambda path: parallel_files.unpack(path, parent),
        folder / "kit.zip",
        content,
    )
    whole = {p.name: p.read_bytes() for p in found.iterdir()} if found else None
    assert whole in (None, TEXTS)
    assert [path for path in parent.iterdir() if path.is_dir()] == (
        [found] if found else []
    )


PAIRS = "a b\tc d\n\te\r\né \u2028\t\u0085\n".encode()
# A byte order mark that begins a file is not part of its text.
FIELDS = LINES.map(
    lambda line: line.replace("\t", " ").rstrip("\r").lstrip("\ufeff")
)


@pytest.fixture(scope="module")
def path(folder):
    return folder / "pairs.txt"


def read_pairs(path):
    """Return the pairs of a file, as the flag --score_file names it."""
    return decoder_flags.Options(score_file=str(path)).read_pairs()


@given(edited_bytes(PAIRS))
def test_edited_file_of_pairs_is_read_or_named_by_line(path, content):
    path.write_bytes(content)
    pairs = []
    try:
        for pair in read_pairs(path):
            assert len(pair) == 2 and not set("".join(pair)) & set("\t\n")
            pairs.append(pair)
    except errors.UserError as error:
        assert f"{path}, line {len(pairs) + 1}" in str(error)
    else:
        assert len(pairs) == len(content.removesuffix(b"\n").split(b"\n")) or (
            not content and not pairs
        )


@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=5))
def test_pairs_are_read_as_written(path, pairs):
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in pairs).encode())
    assert list(read_pairs(path)) == pairs


@given(edited_bytes(PAIRS), st.integers(0, 4))
def test_prefix_file_has_a_line_per_input_or_is_refused(path, content, total):
    sources = path.with_name("in")
    sources.write_text("a b\n" * total)
    options = decoder_flags.Options(
        decode_from_file=str(sources), decode_prefix_file=str(path)
    )

    def read(_):
        options.count_lines(types.SimpleNamespace(target_languages=()))
        return list(options.read_beside("decode_prefix_file"))

    found = read_or_refuse(read, path, content)
    assert found is None or len(found) == total
    assert decoder_flags.Options().read_beside("decode_prefix_file") is None


@pytest.mark.parametrize("error", [BrokenPipeError, MemoryError, SystemExit])
def test_finished_lines_are_kept_after_any_error(tmp_path, error):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "target")
    options = decoder_flags.Options(decode_to_file=str(tmp_path / "out"))
    with pytest.raises(error), options.open_output() as write:
        write("finished")
        raise error
    (kept,) = (tmp_path / "disk").iterdir()  # of the link, on another disk
    assert (kept.name, kept.read_text()) == ("out.partial", "finished\n")


def test_lines_that_the_disk_has_are_kept_when_it_is_full(tmp_path):
    options = decoder_flags.Options(decode_to_file=str(tmp_path / "out"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError), options.open_output() as write:
            for _ in range(9_999):
                write("finished")
    finally:  # pytest writes files, too
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (kept,) = tmp_path.iterdir()
    assert kept.name == "out.partial" and kept.stat().st_size == 20_000
