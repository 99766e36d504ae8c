"""Vocabularies in an exported graph, one of the user's own among them."""

import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors, hparam, registry
from t2t_repro.decoding import translate
from t2t_repro.models import building
from t2t_repro.serving import graph_vocabularies, saved_model, served_model
from t2t_repro.text.vocabulary import Vocabulary, WhitespaceTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

TOYS = pathlib.Path(__file__).parents[1] / "toys"
LINES = ["two birds sing", "the cat sat on the mat", ""]
TARGETS = ["ZWEI VÖGEL", "DIE KATZE SAẞ", "QUAKT"]
SEARCH = hparam.DecodeHParams(beam_size=3, extra_length=3)


@pytest.fixture(scope="module")
def toys():
    """Yield the vocabularies of tests/toys, registered for this module."""
    with pytest.MonkeyPatch.context() as patch:
        for known in (registry.models, registry.hparams_sets):
            patch.setattr(known, "_entries", dict(known._entries))
        entries = dict(registry.vocabularies._entries)
        patch.setattr(registry.vocabularies, "_entries", entries)
        registry.load_definitions(TOYS)
        yield registry.vocabularies


@pytest.fixture(scope="module")
def characters(toys):
    """Return vocabularies of a user's own class, of different sizes."""
    learn = toys["characters"].value.learn
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
    texts = LINES[:2], TARGETS[:2]
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


@pytest.mark.slow
def test_export_with_own_vocabulary_equals_decoder(
    tiny_hparams, characters, randomize, tmp_path
):
    """Translations, scores, attention and the model card."""
    hparams = dataclasses.replace(
        tiny_hparams,
        num_hidden_layers=1,
        shared_embedding_and_softmax_weights=False,
    )
    keras.utils.set_random_seed(1)
    model = building.build(hparams, **characters.sizes)
    randomize(model)
    folder = saved_model.export([model], characters, SEARCH, tmp_path, {})
    signatures = tf.saved_model.load(str(folder)).signatures
    inputs, targets = tf.constant(LINES), tf.constant(TARGETS)

    translator = translate.BatchTranslator([model], characters, SEARCH)
    expected = list(translator.translate(LINES))
    outputs = signatures["serving_default"](inputs=inputs)
    texts = [text.decode() for text in outputs["outputs"].numpy()]
    assert texts == [translation.texts[0] for translation in expected]
    scores = [translation.scores[0] for translation in expected]
    np.testing.assert_allclose(outputs["scores"], scores, atol=1e-5)

    expected = list(translator.score(zip(LINES, TARGETS, strict=True)))
    outputs = signatures["score"](inputs=inputs, targets=targets)
    totals = [score.total for score in expected]
    np.testing.assert_allclose(outputs["scores"], totals, rtol=1e-4)

    trace = translator.attention(LINES[0])
    outputs = signatures["attention"](inputs=inputs[:1])
    for side, expected in (("source", trace.source), ("target", trace.target)):
        pieces = outputs[f"{side}_pieces"].numpy()[0]
        assert [piece.decode() for piece in pieces] == expected
    assert outputs["outputs"].numpy()[0].decode() == trace.outputs

    card = json.loads((folder / saved_model.MODEL_CARD).read_text())
    assert not any("Sentencepiece" in name for name in card["operations"])


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
        served_model.ServedModel([], vocabularies, SEARCH, "float32")


@pytest.mark.parametrize("name", ["encode", "decode", "pieces"])
def test_missing_method_of_graph_vocabulary_is_named(name):
    bare = graph_vocabularies.GraphVocabulary(None)
    with pytest.raises(errors.UserError, match=f"has no {name}: serving/"):
        getattr(bare, name)(None)
