"""Vocabularies in an exported graph, one of the user's own among them."""

import pathlib

import pytest
import tensorflow as tf
import vocabulary_graphs

from t2t_repro import errors, hparam
from t2t_repro.serving import graph_vocabularies, served_model
from t2t_repro.text.vocabulary import Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies

TOYS = pathlib.Path(__file__).parents[1] / "toys"
LINES = ["two birds sing", "the cat sat on the mat"]
TARGETS = ["ZWEI VÖGEL", "DIE KATZE SAẞ"]


@pytest.mark.parametrize("kind", ["characters", "whitespace_tokens"])
def test_saved_graph_encodes_and_decodes_alike(registries, kind, tmp_path):
    """Those of a user's own class are among them."""
    registries.load_definitions(TOYS)
    learn, texts = registries.vocabularies[kind].value.learn, (LINES, TARGETS)
    vocabularies = Vocabularies(*(learn(lines, 90) for lines in texts))
    assert len(set(vocabularies.sizes.values())) == 2
    module = tf.Module()
    module.sides = graph_vocabularies.build(vocabularies)
    for parts in zip(vocabularies, module.sides, texts, strict=True):
        vocabulary_graphs.assert_same_ids(*parts)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)] * 2)
    def round_trip(*texts):
        return [
            side.decode(side.encode(text))
            for side, text in zip(module.sides, texts, strict=True)
        ]

    module.round_trip = round_trip
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    found = loaded.round_trip(*map(tf.constant, texts))
    for side, lines in zip(found, texts, strict=True):
        assert [text.decode() for text in side.numpy()] == lines


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "Mine has no graph_class.* with decoder"),
        ({"graph_class": "pathlib.Path"}, "vocabulary Mine.*'pathlib.Path'"),
    ],
)
def test_vocabulary_without_graph_class_is_refused_by_name(attributes, message):
    mine = type("Mine", (Vocabulary,), attributes)
    vocabularies = Vocabularies.shared(mine(b""))
    with pytest.raises(errors.UserError, match=message):
        served_model.ServedModel(
            [], vocabularies, hparam.DecodeHParams(), "float32"
        )


@pytest.mark.parametrize("name", ["encode", "decode", "pieces"])
def test_missing_method_of_graph_vocabulary_is_named(name):
    bare = graph_vocabularies.GraphVocabulary(None)
    with pytest.raises(errors.UserError, match=f"has no {name}: serving/"):
        getattr(bare, name)(None)
