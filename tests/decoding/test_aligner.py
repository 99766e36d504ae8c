"""Tests of the Aligner, with models that are tables of weights."""

import types

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors, hparam
from t2t_repro.decoding import score, translate
from t2t_repro.models.seq2seq import AttentionWeights
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary_pair import Vocabularies

PAIRS = [
    ("two birds sing", "a dog sat in the park"),
    ("the cat sat on the mat", "birds"),
    ("birds", "the cat ran"),
]
LAYERS, HEADS = 3, 2


def weight(ids, layer, head, seed, sin=np.sin):
    """Return the weights of a target id to a source id, in [0, 1]."""
    target, source = ids
    return 0.5 + 0.5 * sin(
        37.0 * target + 11.0 * source + 5.0 * layer + 3.0 * head + seed
    )


class Table:
    """Model whose attention is a function of two ids."""

    attention_kinds = ("cross",)

    def __init__(self, seed, loss="cross_entropy"):
        self.seed = seed
        self.hparams = types.SimpleNamespace(loss=loss)

    def attention_weights(self, batch):
        """Return weights [layers, B, H, T, L]; EOS has the greatest."""
        source = batch["inputs"][:, None]  # [B, 1, L]
        target = batch["targets"][..., None]  # [B, T, 1]
        ids = [tf.cast(side, tf.float64) for side in (target, source)]
        table = [
            [
                weight(ids, layer, head, self.seed, tf.sin)
                for head in range(HEADS)
            ]
            for layer in range(LAYERS)
        ]
        cross = tf.cast(tf.stack([tf.stack(x, 1) for x in table]), tf.float32)
        return AttentionWeights(tf.where(source[:, None] < 2, 9.0, cross))


def expected_links(vocabulary, source, target, layer, seeds):
    """Align one pair by loops; SentencePiece marks the beginning of a word."""
    ids, words = [], []
    for text in (source, target):
        (row,) = vocabulary.encode([text])
        ids.append(row[:-1])
        begins = [piece[0] == "▁" for piece in vocabulary.pieces(row[:-1])]
        words.append(np.cumsum(begins) - 1)
    links = set()
    for j, target_id in enumerate(ids[1]):
        sums = [
            sum(
                weight((target_id, source_id), layer, head, seed)
                for head in range(HEADS)
                for seed in seeds
            )
            for source_id in ids[0]
        ]
        links.add((words[0][np.argmax(sums)], words[1][j]))
    return links


@pytest.mark.parametrize(("layer", "index"), [(None, 1), (1, 0), (3, 2)])
@pytest.mark.parametrize("seeds", [[0], [1, 2]])
def test_alignment_equals_loops(vocabulary, vocabularies, seeds, layer, index):
    rows = [
        score.pad_rows(vocabulary.encode(side))
        for side in zip(*PAIRS, strict=True)
    ]
    models = list(map(Table, seeds))
    found = translate.Aligner(models, vocabularies, layer).align(*rows)
    assert [alignment.links for alignment in found] == [
        expected_links(vocabulary, *pair, index, seeds) for pair in PAIRS
    ]
    assert [each.source_words for each in found] == [3, 6, 1]
    assert [each.target_words for each in found] == [6, 1, 3]


def test_translator_aligns_split_lines_by_part(echo, vocabulary, vocabularies):
    hparams = hparam.DecodeHParams(
        beam_size=2, return_beams=True, max_input_length=9
    )
    echo()  # translations are the sources
    translator = translate.BatchTranslator(
        [], vocabularies, hparams, translate.Aligner([Table(0)], vocabularies)
    )
    parts = ["two birds sing.", "the cat sat."]
    lines = [" ".join(parts), "", *parts]
    assert len(vocabulary.encode(lines[:1])[0]) > 9
    found = translator.translate(lines)
    whole, blank, *alone = (each.alignment for each in found)
    expected = [
        expected_links(vocabulary, part, part, 1, [0]) for part in parts
    ]
    assert [alignment.links for alignment in alone] == expected
    assert whole.links == expected[0] | {(i + 3, j + 3) for i, j in expected[1]}
    assert blank.pharaoh() == ""


def test_model_without_attention_is_refused(vocabularies):
    model = types.SimpleNamespace(
        attention_kinds=(), hparams=types.SimpleNamespace(model="blind")
    )
    with pytest.raises(errors.UserError, match="'blind' has no attention"):
        translate.Aligner([model], vocabularies)


def test_tag_is_no_word_of_an_alignment():
    tagged = Bpe.learn(
        [line for pair in PAIRS for line in pair] * 9, 300, tags=["<2de>"]
    )
    table = translate.Aligner([Table(0)], Vocabularies.shared(tagged))

    def align(sources, tag=""):
        targets = [tag + target for _, target in PAIRS]
        rows = [score.pad_rows(tagged.encode(x)) for x in (sources, targets)]
        return table.align(*rows)

    sources = [source for source, _ in PAIRS]
    expected = align(sources)
    assert align([f"<2de> {source}" for source in sources]) == expected
    assert align(sources, "<2de> ") == expected


@pytest.mark.parametrize(("layer", "is_guided"), [(None, True), (3, False)])
def test_trained_head_aligns_if_no_layer_is_set(vocabularies, layer, is_guided):
    loss = "cross_entropy+guided_alignment:layer=3:head=2"
    rows = tf.constant([[9, 8, 7, 6, 1]]), tf.constant([[5, 4, 3, 1]])

    def best(heads, layer=2):
        ids = np.ix_(*(side[0, :-1].numpy() for side in rows[::-1]))
        sums = sum(weight(ids, layer, head, 0) for head in heads)
        return sums.argmax(1)

    heads = (1,) if is_guided else (0, 1)
    assert (best((1,)) != best((0, 1))).any()
    aligner = translate.Aligner([Table(0, loss)], vocabularies, layer)
    found = aligner._best_sources(*rows).numpy()[0, :3]
    assert found.tolist() == best(heads).tolist()


def test_given_targets_begin_with_the_language_as_outputs_do(
    vocabulary, vocabularies, monkeypatch
):
    class Rows:
        def align(self, inputs, outputs):
            self.outputs = outputs.numpy().tolist()
            return [None]

    monkeypatch.setattr(type(vocabulary), "leads_outputs", True)
    translator = translate.BatchTranslator(
        [], vocabularies, hparam.DecodeHParams(), rows := Rows()
    )
    monkeypatch.setattr(
        translator, "_score", lambda _, ids: tf.zeros(ids.shape)
    )
    assert len(list(translator.score([("birds", "a dog")]))) == 1
    (source,), (target,) = map(vocabulary.encode, (["birds"], ["a dog"]))
    assert rows.outputs == [[source[0], *target]]


def test_first_id_of_an_output_is_not_linked(vocabulary):
    (source,), (target,) = map(vocabulary.encode, (["birds"], ["a dog"]))
    first = vocabulary.encode(["a"])[0][:-1]
    leading = type(vocabulary)(vocabulary.model)
    vars(leading).update(leads_outputs=True, tag_ids=frozenset(first))
    pair = Vocabularies(leading, vocabulary)
    rows = map(score.pad_rows, ([first + source], [first + target]))
    (found,) = translate.Aligner([Table(0)], pair).align(*rows)
    links = expected_links(vocabulary, "birds", "a dog", 1, [0])
    assert found.links == {(i, j + 1) for i, j in links}
