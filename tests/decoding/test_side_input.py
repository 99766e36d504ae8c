"""Tests of side inputs, which search rules read beside each sentence."""

import pytest
import tensorflow as tf

from t2t_repro import errors, registry
from t2t_repro.decoding import rules

LINES = ["two birds sing", "", "the cat sat on the mat", "birds", "a dog sat"]
SIDE = ["a dog\tthe cat", "the", "a\ton", "birds\tsing\t", "\tdog"]


class BeginWith(rules.Rule):
    """First or second phrase of the side input, with which outputs begin."""

    needs_side = True

    def __init__(self, vocabulary, field=0):
        self._field = field

    def forced(self, step, state):
        phrases = step.sentences.side.phrases  # [B, M, S]
        ids = tf.pad(phrases, ((0, 0), (0, 2), (0, 1)))[:, self._field]
        index = tf.minimum(step.position, tf.shape(ids)[1] - 1)
        return tf.gather(ids, index, axis=1)[:, None]


@pytest.fixture
def begin_with(monkeypatch):
    entries = dict(registry.search_rules._entries)
    monkeypatch.setattr(registry.search_rules, "_entries", entries)
    registry.search_rules.register("begin_with")(BeginWith)


def test_phrases_stay_beside_their_sentences(begin_with, translator_of):
    """The second one of a line, if it has one; in batches by length."""
    translator = translator_of(
        rules="begin_with:field=1",
        return_beams=True,
        batch_tokens=60,
        max_input_length=40,
    )
    lines, side = [*LINES, "birds " * 40], [*SIDE, "birds\tbirds"]
    *found, long = translator.translate(lines, side=side)
    for each, text in zip(found, SIDE, strict=True):
        prefix = f"{text}\t".split("\t")[1]
        assert len(each.texts) == 2
        assert all(output.startswith(prefix) for output in each.texts)
    assert long.text == "" and long.too_long > 40


def test_side_inputs_are_given_if_and_only_if_a_rule_reads_them(
    begin_with, translator_of
):
    reading = translator_of(rules="begin_with")
    with pytest.raises(errors.UserError, match="none: BeginWith. Give --deco"):
        reading.translate(LINES)
    with pytest.raises(errors.UserError, match="need a side input"):
        reading.attention("birds")
    with pytest.raises(errors.UserError, match="no search rule reads them"):
        translator_of().translate(LINES, side=SIDE)
