"""Tests of GNMT's coverage penalty against its formula."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from search_tables import (
    PREFIXES,
    START,
    extend_hash,
    log_prob,
    model_of,
    outputs,
    random_table,
)

from t2t_repro import hparam
from t2t_repro.decoding import beam_search, rules, sampling, search
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS

INPUTS = np.array([[5, 6, 7, 1], [8, 1, 0, 0]], np.int32)
BETA, ALPHA = 0.7, 0.6

examples = hypothesis.settings(max_examples=6, deadline=None)


def random_attention(seed):
    """Return [PREFIXES, 4] attention after each prefix, padding included."""
    logits = np.random.default_rng(seed).normal(size=(PREFIXES, 4), scale=2.0)
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def coverage_penalty(attention, ids, source_length):
    """Compute equation 14 in a loop."""
    prefix, total = START, 0.0
    sums = np.zeros(source_length)
    for subword in ids:
        for i in range(source_length):
            sums[i] += attention[prefix][i]
        prefix = extend_hash(prefix, subword)
    for coverage in sums:
        total += np.log(min(coverage, 1.0))
    return BETA * total


def score_of(table, attention, ids, source_length):
    penalty = ((5 + len(ids)) / 6) ** ALPHA
    coverage = coverage_penalty(attention, ids, source_length)
    return log_prob(table, ids) / penalty + coverage


def standard_rules():
    return search.build_rules(hparam.DecodeHParams(coverage_penalty=BETA))


def model_and_sentences(table, attention, beams, limits, block):
    model = model_of(
        table, beams, 2, block, attention=tf.cast(attention, tf.float32)
    )
    return model, rules.sentences(tf.constant(limits), inputs=INPUTS)


@examples
@hypothesis.given(seed=st.integers(0, 2**32), block=st.sampled_from([None, 2]))
@pytest.mark.parametrize("raw_scores", [False, True])
@pytest.mark.parametrize("name", ["beam", "greedy", "sample"])
def test_scores_of_every_search_include_penalty(name, raw_scores, seed, block):
    table, attention = random_table(seed), random_attention(seed)
    beams = 1 if name == "greedy" else 3
    model, sentences = model_and_sentences(
        table, attention, beams, [7, 4], block
    )
    hparams = DecodeHParams(
        beams,
        ALPHA,
        return_beams=True,
        raw_scores=raw_scores,
        sampling_temp=1.0,
    )
    find = {
        "beam": beam_search.beam_search,
        "greedy": sampling.greedy_search,
        "sample": sampling.sample,
    }[name]
    found = find(model, sentences, standard_rules(), 7, hparams)
    for sentence, source_length in enumerate((4, 2)):
        every = outputs(found, sentence)
        assert len(every) == beams
        for ids, score_ in every:
            expected = log_prob(table, ids)
            if not raw_scores:
                expected = score_of(table, attention, ids, source_length)
            assert score_ == pytest.approx(expected, rel=1e-4)


def test_subword_without_attention_has_finite_penalty():
    attention = tf.fill((PREFIXES, 1), 1.0) * [[1.0, 0.0]]
    model = model_of(random_table(0), 2, attention=attention)
    sentences = rules.sentences(tf.constant([4]), inputs=tf.constant([[5, 1]]))
    # The output with the huge second penalty is still better than none.
    for beta in (1.0, 1e30):
        found = beam_search.beam_search(
            model,
            sentences,
            rules.CoveragePenalty(beta),
            4,
            DecodeHParams(2, 0.0, return_beams=True),
        )
        assert np.isfinite(found.scores).all()
        assert (found.ids.numpy() == EOS).any(-1).all()
