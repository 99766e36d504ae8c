"""Tests of imported models without the subwords that a text does not use."""

import numpy as np
import pytest
import tensorflow as tf
from imported_models import GOLDEN, encode, logits

from t2t_repro import errors
from t2t_repro.importing import huggingface, imported
from t2t_repro.serving import graph_vocabularies
from t2t_repro.text import sentence_piece
from t2t_repro.text.sentence_piece import Unigram
from t2t_repro.text.vocabulary import WhitespaceTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

LINES = [
    "Two dogs play in the snow.",
    "Zwei Hunde spielen im Schnee.",
    "Две собаки играют",
    "unknown: Ω€ and ☃",
]
OTHERS = [
    "A man in a blue shirt is standing",
    "standing and blue in a shirt",
    "на улице",
    "0 1 2",
]


@pytest.fixture(scope="module")
def multilingual():
    return huggingface.read(GOLDEN / "m2m_100")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_text_has_its_pieces_and_other_text_is_spelled(kind, multilingual):
    vocabulary = multilingual.vocabularies.pair.source
    if kind == "unigram":
        lines = [*LINES, *OTHERS[:2], OTHERS[3]] * 20
        vocabulary = Unigram.learn(lines, 317, normalization="identity")
    ids = sentence_piece.indispensable_ids(vocabulary)
    ids.update(*vocabulary.encode(LINES))
    kept = sentence_piece.keep_pieces(vocabulary, sorted(ids))
    assert kept.size == len(ids) < vocabulary.size
    found = kept.encode(LINES)
    assert [[sorted(ids)[i] for i in row] for row in found] == (
        vocabulary.encode(LINES)
    )
    others = kept.encode(OTHERS)
    assert others != vocabulary.encode(OTHERS)
    assert [row.count(kept.unknown) for row in others] == [
        row.count(vocabulary.unknown) for row in vocabulary.encode(OTHERS)
    ]
    assert kept.decode(others) == vocabulary.decode(vocabulary.encode(OTHERS))
    graph, _ = graph_vocabularies.build(Vocabularies.shared(kept))
    in_graph = graph.encode(tf.constant(OTHERS)).to_list()
    assert in_graph == [row[:-1] for row in others]


@pytest.mark.parametrize(
    "name", ["m2m_100", pytest.param("huggingface", marks=pytest.mark.slow)]
)
def test_model_has_the_same_logits(name, tmp_path):
    """Of one vocabulary, and of two whose ids are the same subwords."""
    found = huggingface.read(GOLDEN / name)
    text = tmp_path / "text"
    text.write_text("\n".join(LINES), "utf-8")
    trimmed = imported.trim(found, [text])
    before, after = found.vocabularies.pair, trimmed.vocabularies.pair
    assert after.source.size == after.target.size < before.target.size
    assert after.have_same_ids
    assert after.source.tags == before.source.tags != set()
    names = before.target.pieces(range(before.target.size))
    pieces = after.target.pieces(range(after.target.size))
    kept = [names.index(piece) for piece in pieces]
    order = found.vocabularies.orders[1]
    assert trimmed.vocabularies.orders[1] == [order[i] for i in kept]
    ids, fewer = encode(found, *LINES[:2]), encode(trimmed, *LINES[:2])
    assert [[kept[i] for i in row] for row in fewer] == ids
    np.testing.assert_allclose(
        logits(trimmed, *fewer), logits(found, *ids)[:, kept], atol=1e-5
    )


def test_vocabulary_of_words_is_refused(multilingual):
    words = WhitespaceTokens.__new__(WhitespaceTokens)
    other = multilingual.vocabularies._replace(pair=Vocabularies.shared(words))
    with pytest.raises(errors.UserError, match="SentencePiece; got Whitespace"):
        imported.trim(multilingual._replace(vocabularies=other), [])
