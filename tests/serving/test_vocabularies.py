"""Vocabularies in an exported graph, one of the user's own among them."""

import pathlib

import pytest
import tensorflow as tf

from t2t_repro import errors, hparam
from t2t_repro.serving import graph_vocabularies, served_model
from t2t_repro.text.vocabulary import Vocabulary, WhitespaceTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

TOYS = pathlib.Path(__file__).parents[1] / "toys"
LINES = ["two birds sing", "the cat sat on the mat"]
TARGETS = ["ZWEI VÖGEL", "DIE KATZE SAẞ"]


@pytest.fixture
def characters(registries):
    """Return vocabularies of a user's own class, of different sizes."""
    registries.load_definitions(TOYS)
    learn = registries.vocabularies["characters"].value.learn
    vocabularies = Vocabularies(learn(LINES, 90), learn(TARGETS, 90))
    assert len(set(vocabularies.sizes.values())) == 2
    return vocabularies


@pytest.fixture
def tokens():
    """Return vocabularies of tokenized text."""
    learn = WhitespaceTokens.learn
    return Vocabularies(learn(LINES, 90), learn(TARGETS, 90))


@pytest.mark.parametrize(
    "kind", ["characters", "separate_vocabularies", "tokens"]
)
def test_saved_graph_encodes_and_decodes_as_vocabularies(
    request, kind, tmp_path
):
    vocabularies = request.getfixturevalue(kind)
    module = tf.Module()
    module.sides = graph_vocabularies.build(vocabularies)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def round_trip(*texts):
        rows = [
            side.encode(text)
            for side, text in zip(module.sides, texts, strict=True)
        ]
        return [
            (ids.to_tensor(), side.decode(ids), side.pieces(ids.to_tensor()))
            for side, ids in zip(module.sides, rows, strict=True)
        ]

    module.round_trip = round_trip
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    texts = LINES, TARGETS
    outputs = loaded.round_trip(*map(tf.constant, texts))
    for vocabulary, lines, (ids, decoded, pieces) in zip(
        vocabularies, texts, outputs, strict=True
    ):
        for line, row, text, spelled in zip(
            lines, ids.numpy(), decoded.numpy(), pieces.numpy(), strict=True
        ):
            (expected,) = vocabulary.encode([line])
            length = len(expected) - 1  # without EOS
            assert row.tolist()[:length] == expected[:-1]
            assert text.decode() == line
            assert [piece.decode() for piece in spelled[:length]] == (
                vocabulary.pieces(expected[:-1])
            )


class NoGraphClass(Vocabulary):
    """Vocabulary that no graph can use."""


class WrongGraphClass(Vocabulary):
    """Vocabulary whose graph_class is not a subclass of GraphVocabulary."""

    graph_class = "pathlib.Path"


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (NoGraphClass, "NoGraphClass has no graph_class.* with decoder"),
        (WrongGraphClass, "of the vocabulary WrongGraphClass.*'pathlib.Path'"),
    ],
)
def test_vocabulary_without_a_graph_class_is_refused_by_name(
    vocabulary, message
):
    vocabularies = Vocabularies.shared(vocabulary(b""))
    with pytest.raises(errors.UserError, match=message):
        served_model.ServedModel(
            [], vocabularies, hparam.DecodeHParams(), "float32"
        )


@pytest.mark.parametrize("name", ["encode", "decode", "pieces"])
def test_missing_method_of_graph_vocabulary_is_named(name):
    bare = graph_vocabularies.GraphVocabulary(None)
    with pytest.raises(errors.UserError, match=f"has no {name}: serving/"):
        getattr(bare, name)(None)
