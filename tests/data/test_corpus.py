"""Corpora: reading shards gives what was written."""

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from small_corpora import write_ids

from t2t_repro import errors
from t2t_repro.data import corpus

SENTENCE = st.lists(st.integers(0, 65_535), min_size=1, max_size=6)
PAIR = st.tuples(SENTENCE, SENTENCE)


def write(folder, shards, texts=None, vocab_size=65_536):
    """Write a shard for each list of pairs of ids; return the paths."""
    return [
        write_ids(
            folder / f"shard-{number}.arrow",
            pairs,
            vocab_size,
            texts[number] if texts else (),
        )
        for number, pairs in enumerate(shards)
    ]


@hypothesis.settings(max_examples=30)
@hypothesis.given(st.lists(st.lists(PAIR, max_size=4), max_size=4), st.data())
@hypothesis.example([], None)
def test_gather_equals_brute_force(tmp_path_factory, shards, data):
    """Some shards are empty: all their pairs may have been dropped."""
    folder = tmp_path_factory.mktemp("corpus")
    pairs = corpus.Corpus(write(folder, shards))
    flat = [pair for shard in shards for pair in shard]
    assert len(pairs) == len(flat)
    indices = st.lists(st.integers(0, len(flat) - 1), max_size=8)
    order = data.draw(indices) if flat else []
    for i, side in enumerate(corpus.SIDES):
        sentences = [pair[i] for pair in flat]
        assert pairs.lengths[side].tolist() == [len(s) for s in sentences]
        gathered = pairs.gather(side, np.array(order, np.int64))
        assert gathered.dtype == np.int32
        expected = [token for i in order for token in sentences[i]]
        assert gathered.tolist() == expected
        assert pairs.sentences(side) == sentences


@pytest.mark.parametrize(
    ("vocab_size", "kind"),
    [(100, "uint16"), (65_536, "uint16"), (65_537, "int32")],
)
def test_ids_have_two_bytes_if_vocabulary_allows(tmp_path, vocab_size, kind):
    largest = vocab_size - 1
    paths = write(tmp_path, [[([largest, 1], [1])]], vocab_size=vocab_size)
    with pa.memory_map(str(paths[0])) as source:
        schema = pa.ipc.open_file(source).schema
    assert str(schema.field("inputs").type.value_type) == kind
    pairs = corpus.Corpus(paths)
    assert pairs.gather("inputs", np.array([0])).tolist() == [largest, 1]


def test_text_has_every_character_of_raw_text(tmp_path):
    lines = ["", " a  b\u2028", "żółw\u0085 \r"]
    shard = [([1], [1])] * 3
    texts = [*zip(lines, lines[::-1], strict=True)]
    paths = write(tmp_path, [shard], [texts])
    pairs = corpus.Corpus(paths)
    assert pairs.text("inputs") == lines
    assert pairs.text("targets") == lines[::-1]
    assert corpus.Corpus([]).text("targets") == []


def test_text_of_training_split_is_user_error(tmp_path):
    pairs = corpus.Corpus(write(tmp_path, [[([1], [1])]]))
    with pytest.raises(errors.UserError, match="text of the training split"):
        pairs.text("inputs")
