"""Exports of separate vocabularies, and of a vocabulary of the user's own."""

import dataclasses
import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors, hparam, registry
from t2t_repro.data.vocabulary_pair import Vocabularies
from t2t_repro.decoding import attention_trace, translate
from t2t_repro.models import building
from t2t_repro.serving import (
    graph_vocabulary,
    saved_model,
    served_model,
    warm_up,
)
from t2t_repro.text.sentence_piece import Bpe, Unigram
from t2t_repro.text.vocabulary import Vocabulary

TOYS = pathlib.Path(__file__).parents[1] / "toys"
LINES = ["two birds sing", "the cat sat on the mat", ""]
TARGETS = ["ZWEI VÖGEL", "DIE KATZE SAẞ", "QUAKT"]
SEARCH = hparam.DecodeHParams(beam_size=3, extra_length=3)


@pytest.fixture(scope="module")
def toys():
    """The vocabularies of tests/toys, registered for this module."""
    with pytest.MonkeyPatch.context() as patch:
        for known in (registry.models, registry.hparams_sets):
            patch.setattr(known, "_entries", dict(known._entries))
        classes = dict(registry.models._hparams_classes)
        patch.setattr(registry.models, "_hparams_classes", classes)
        entries = dict(registry.vocabularies._entries)
        patch.setattr(registry.vocabularies, "_entries", entries)
        registry.load_definitions(TOYS)
        yield registry.vocabularies


@pytest.fixture(scope="module", params=["characters", "sentence_piece"])
def vocabularies(request, toys):
    """Of source and target, of different sizes."""
    if request.param == "sentence_piece":
        source = Bpe.learn(LINES * 5, 285)
        target = Unigram.learn(TARGETS * 5, 277)
    else:
        characters = toys["characters"].value
        source, target = (
            characters.learn(LINES, 90),
            characters.learn(TARGETS, 90),
        )
    assert source.size != target.size
    return Vocabularies(source, target)


@pytest.fixture(scope="module")
def model(tiny_hparams, vocabularies, randomize):
    hparams = dataclasses.replace(
        tiny_hparams,
        num_hidden_layers=1,
        shared_embedding_and_softmax_weights=False,
    )
    keras.utils.set_random_seed(1)
    built = building.build(hparams, **vocabularies.sizes)
    randomize(built)
    return built


@pytest.fixture(scope="module")
def version(model, vocabularies, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    return saved_model.export([model], vocabularies, SEARCH, folder, {})


@pytest.fixture(scope="module")
def signatures(version):
    loaded = tf.saved_model.load(str(version))
    return loaded.signatures


def test_an_export_translates_as_the_decoder(model, vocabularies, signatures):
    translator = translate.Translator([model], vocabularies, SEARCH)
    expected = list(translator.translate(LINES))
    found = signatures["serving_default"](inputs=tf.constant(LINES))
    texts = [text.decode() for text in found["outputs"].numpy()]
    assert texts == [one.texts[0] for one in expected]
    scores = [one.scores[0] for one in expected]
    np.testing.assert_allclose(found["scores"], scores, atol=1e-5)


def test_an_export_scores_as_the_decoder(model, vocabularies, signatures):
    translator = translate.Translator([model], vocabularies, SEARCH)
    pairs = list(zip(LINES, TARGETS, strict=True))
    expected = list(translator.score(pairs))
    found = signatures["score"](
        inputs=tf.constant(LINES), targets=tf.constant(TARGETS)
    )
    totals = [one.total for one in expected]
    np.testing.assert_allclose(found["scores"], totals, rtol=1e-4)
    lengths = list(map(len, vocabularies.target.encode(TARGETS)))
    assert found["lengths"].numpy().tolist() == lengths
    rows = vocabularies.target.encode(TARGETS)
    pieces = list(map(vocabularies.target.pieces, rows))
    assert [one.pieces for one in expected] == pieces


def test_attention_has_the_pieces_of_each_side(model, vocabularies, signatures):
    tracer = attention_trace.AttentionTracer(model, vocabularies, SEARCH)
    trace = tracer.trace(LINES[0])
    (row,) = vocabularies.source.encode(LINES[:1])
    assert trace.source == vocabularies.source.pieces(row)
    found = signatures["attention"](inputs=tf.constant(LINES[:1]))
    for side, expected in (("source", trace.source), ("target", trace.target)):
        pieces = found[f"{side}_pieces"].numpy()[0]
        assert [piece.decode() for piece in pieces] == expected
    assert found["outputs"].numpy()[0].decode() == trace.outputs


def test_warm_up_requests_are_of_each_sides_text(version, vocabularies):
    (request,) = (
        one
        for one in warm_up.read(version)
        if one.model_spec.signature_name == "score"
    )
    for key, vocabulary in (
        ("inputs", vocabularies.source),
        ("targets", vocabularies.target),
    ):
        texts = tf.make_ndarray(request.inputs[key])
        ids = range(2, vocabulary.size)
        rows = [ids[-4:], ids[-32:]]
        assert [t.decode() for t in texts] == vocabulary.decode(rows)


def test_a_shared_vocabulary_is_in_the_graph_once(vocabulary):
    shared = Vocabularies.shared(vocabulary)
    source, target = graph_vocabulary.build(shared)
    assert source is target
    apart = Vocabularies(vocabulary, Bpe(vocabulary.model))
    source, target = graph_vocabulary.build(apart)
    assert source is not target


def test_a_vocabulary_without_a_graph_is_refused_by_name(toys, tmp_path):
    words = toys["words"].value.learn(LINES, 90)
    message = "The vocabulary Words has no graph_class.* Translate with decoder"
    with pytest.raises(errors.UserError, match=message):
        saved_model.export(
            [], Vocabularies.shared(words), SEARCH, tmp_path / "export", {}
        )
    assert not (tmp_path / "export").exists()


class Elsewhere(Vocabulary):
    """One whose graph_class is no GraphVocabulary."""

    graph_class = "pathlib.Path"


def test_a_graph_class_of_another_kind_is_refused():
    vocabularies = Vocabularies.shared(Elsewhere(b""))
    message = "graph_class of the vocabulary Elsewhere.*got 'pathlib.Path'"
    with pytest.raises(errors.UserError, match=message):
        served_model.ServedModel([], vocabularies, SEARCH, "float32")


@pytest.mark.parametrize("name", ["encode", "decode", "pieces"])
def test_what_a_graph_vocabulary_owes_is_named(name):
    bare = graph_vocabulary.GraphVocabulary(None)
    with pytest.raises(errors.UserError, match=f"has no {name}: serving/"):
        getattr(bare, name)(None)


def test_the_card_names_no_operation_of_sentencepiece(version, vocabularies):
    card = json.loads((version / saved_model.MODEL_CARD).read_text())
    asked = any("Sentencepiece" in name for name in card["operations"])
    assert asked == isinstance(vocabularies.source, Bpe)
