"""Tests of settings of each sentence: as a search with these settings alone."""

import hypothesis
import numpy as np
import pytest
import search_tables
import tensorflow as tf
from hypothesis import strategies as st
from search_tables import model_of, outputs, random_table

from t2t_repro.decoding import beam_search, rules, sampling, search
from t2t_repro.hparam import DecodeHParams
from t2t_repro.runtime import graph

LIMITS = [6, 8, 4, 7]
SEARCHES = [
    beam_search.beam_search,
    beam_search.huggingface,
    beam_search.huggingface_early_stopping,
]
settings = st.tuples(
    st.integers(1, 4),  # beams
    st.integers(1, 4),  # outputs, or all beams
    st.sampled_from([0.0, 0.6, 1.5]),  # alpha
)


class Banks(rules.LengthLimit):
    """Has more banks than beams, of two words each; one beam has none."""

    def bank(self, step, state, subwords):
        own = step.sentences.settings
        beams = own.beam_sizes if own else tf.shape(step.ids)[1]
        return tf.where(beams[..., None] > 1, subwords // 2, 0)


@hypothesis.settings(max_examples=8, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 2**32),
    rows=st.lists(settings, min_size=4, max_size=4),
    find=st.sampled_from(SEARCHES),
    longer=st.integers(0, 3),
    block=st.sampled_from([None, 1, 3, 16]),
)
def test_outputs_equal_those_of_a_search_with_the_settings(
    seed, rows, find, longer, block
):
    """Some sentences end before others, which go on in blocks of steps."""
    compare(seed, rows, find, longer, block, rules.LengthLimit())


def test_banks_have_only_candidates_of_a_sentences_own_beams(monkeypatch):
    """Of more words than a search of few beams takes."""
    monkeypatch.setattr(search_tables, "V", 20)
    rows = [(2, 2, 0.6), (4, 4, 0.6), (3, 3, 0.0), (1, 1, 0.6)]
    compare(0, rows, beam_search.beam_search, 0, None, Banks())


def compare(seed, rows, find, longer, block, rule):
    """Compare outputs with those of searches with the settings of a row."""
    tables = [random_table(seed + i) for i in range(len(rows))]
    beams, counts, alphas = zip(*rows, strict=True)
    counts = np.minimum(counts, beams)
    given = rules.Settings(*map(tf.constant, (beams, counts, alphas)))
    found = find(
        model_of(np.stack(tables), max(beams), len(rows), block),
        rules.sentences(tf.constant(LIMITS), settings=given),
        rule,
        max(LIMITS) + longer,
        DecodeHParams(4),
    )
    for i, (beam_size, count, alpha) in enumerate(
        zip(beams, counts, alphas, strict=True)
    ):
        alone = (sampling.greedy_search if beam_size == 1 else find)(
            model_of(tables[i], beam_size),
            rules.sentences(tf.constant(LIMITS[i : i + 1])),
            rule,
            LIMITS[i],
            DecodeHParams(beam_size, alpha, return_beams=True),
        )
        (ids, scores), (own_ids, own_scores) = (
            zip(*outputs(each, row)[:count], strict=True)
            for each, row in ((found, i), (alone, 0))
        )
        assert ids == own_ids
        assert scores == pytest.approx(own_scores, rel=1e-4)
        assert (
            (found.scores[i, beam_size:] <= rules.FORBIDDEN / 2).numpy().all()
        )


@pytest.mark.parametrize(
    "temperature", [0.0, pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_models_search_with_the_most_beams_of_a_batch(models, temperature):
    """The number of beams is a tensor, in blocks of steps, and in samples."""
    inputs = tf.constant([[5, 6, 1], [7, 1, 0], [8, 9, 1]])
    hparams = DecodeHParams(
        beam_size=3,
        extra_length=12,
        sampling_temp=temperature,
        return_beams=True,
    )

    @graph.function
    def find(*rows):
        given = rules.Given(settings=rules.Settings(*rows))
        return search.search(models[:1], inputs, hparams, given)

    alphas = tf.fill([3], hparams.alpha)
    ones = tf.ones(3, tf.int32)
    assert find(ones, ones, alphas).scores.shape == (3, 1)
    sizes = tf.constant([3, 1, 2])
    found = find(sizes, sizes, alphas)
    assert found.scores.shape == (3, 3)
    same = tf.fill([3], 3)
    expected = find(same, same, alphas)
    np.testing.assert_array_equal(found.ids[0], expected.ids[0])
    np.testing.assert_allclose(found.scores[0], expected.scores[0], rtol=1e-5)
    empty = (found.scores < rules.FORBIDDEN / 2).numpy().tolist()
    assert empty == [[False] * 3, [False, True, True], [False, False, True]]
