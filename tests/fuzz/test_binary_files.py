"""Edited vocabularies and shards: each is read, or named by an error."""

import contextlib
import pathlib
import tempfile

import pytest
from file_strategies import edited_bytes, read_or_refuse
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.data import corpus
from t2t_repro.text import parallel_files
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import EOS

TRAINING_LINES = ["two birds sing", "the cat sat on the mat", "a dog ran"]
TEXTS = {"train.en": b"one\n" * 9, "train.de": b"eins\n" * 9}
IDS = {"inputs": [[5, 1], [6, 7, 1]], "targets": [[8, 1], [1]]}


@pytest.fixture(scope="module")
def vocabulary():
    return Bpe.learn(TRAINING_LINES * 9, 290)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


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
        for line in (*TRAINING_LINES, "日本", ""):
            (ids,) = found.encode([line])
            assert ids[-1] == EOS and max(ids) < found.size
            assert len(found.decode([ids])) == 1


def _shard(folder, texts):
    path = folder / "whole.arrow"
    corpus.write_shard(path, IDS, texts, 300, {"read": 2})
    return path.read_bytes()


@given(data=st.data())
def test_edited_shard_has_pairs_or_is_named(folder, data):
    text = {"inputs": ["a", "b"], "targets": ["A", ""]}
    content = data.draw(edited_bytes(_shard(folder, text)))
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
