"""Tests of diverse search and of Hugging Face's, against lists."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from search_tables import (
    START,
    V,
    extend_hash,
    log_prob,
    model_of,
    outputs,
    random_table,
)

from t2t_repro import errors
from t2t_repro.decoding import beam_search, rules, search
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS, PAD


def check(found, sentence, expected):
    """Check that the best outputs are those of [(score, ids)]."""
    ids, scores = zip(*outputs(found, sentence)[: len(expected)], strict=True)
    assert list(ids) == [ids for _, ids in expected]
    np.testing.assert_allclose(scores, [x for x, _ in expected], rtol=1e-4)


def of_lists(table, limit, width, groups, strength):
    """Return the finished (log-probability, ids), of each group."""
    live = [[(0.0, (), START)] for _ in range(groups)]
    finished = [[] for _ in range(groups)]
    for length in range(1, limit + 1):
        counts = np.zeros(V)
        for group in range(groups):
            found = []
            for total, ids, prefix in live[group]:
                words = [EOS] if length == limit else range(1, V)
                for word in words:
                    score = total + table[prefix][word]
                    penalized = score - strength * counts[word]
                    found.append((penalized, score, (*ids, word), prefix))
            # A greedy group has one candidate, EOS or not.
            count = 2 * width if width > 1 else 1
            found = sorted(found, reverse=True)[:count]
            ended = [(x[1], x[2]) for x in found if x[2][-1] == EOS]
            finished[group] = sorted(finished[group] + ended)[::-1][:width]
            live[group] = [
                (score, ids, extend_hash(prefix, ids[-1]))
                for _, score, ids, prefix in found
                if ids[-1] != EOS
            ][:width]
            for _, ids, _ in live[group]:
                counts[ids[-1]] += 1
    return sorted(sum(finished, []), reverse=True)


@hypothesis.settings(max_examples=8, deadline=None)
@hypothesis.given(
    seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=3),
    limit=st.integers(1, 6),
    groups=st.sampled_from([(1, 2), (2, 1), (2, 2), (3, 2)]),
    strength=st.sampled_from([0.0, 0.5, 3.0]),
    block=st.sampled_from([None, 2]),
)
# Hypotheses whose mass is on subwords of an earlier group.
@hypothesis.example([17, 38, 50], 4, (2, 2), 3.0, None)
@hypothesis.example([54, 57], 6, (2, 2), 0.5, 2)
def test_outputs_of_groups_equal_lists(seeds, limit, groups, strength, block):
    groups, width = groups
    tables = [random_table(seed) for seed in seeds]
    found = beam_search.diverse_beam_search(
        model_of(np.stack(tables), groups * width, len(seeds), block),
        rules.sentences(tf.fill((len(seeds),), limit)),
        rules.LengthLimit(),
        limit,
        DecodeHParams(groups * width, 0.0, return_beams=True),
        groups,
        strength,
    )
    for sentence, table in enumerate(tables):
        expected = of_lists(table, limit, width, groups, strength)
        check(found, sentence, expected)


def test_the_given_language_costs_nothing_in_any_group():
    table, steps = random_table(3), [rules.LengthLimit(), rules.Prefix()]
    found = beam_search.diverse_beam_search(
        model_of(table, 4),
        rules.sentences(tf.constant([5]), tf.constant([[3]])),
        rules.CombinedRule(steps, leads_outputs=True),
        5,
        DecodeHParams(4, 0.0, return_beams=True),
    )
    for ids, score in outputs(found):
        own = log_prob(table, ids) - log_prob(table, ids[:1])
        assert score == pytest.approx(own, rel=1e-4)


def find(models, setting, **settings):
    hparams = DecodeHParams(
        beam_search=setting, extra_length=4, return_beams=True, **settings
    )
    inputs = tf.constant([[5, 9, 4, 7, 1], [8, 3, 1, 0, 0]])
    prefixes = tf.constant([[7, 8], [0, 0]])
    return search.search(models, inputs, hparams, rules.Given(prefixes))


def test_one_group_is_beam_search_and_groups_differ(models):
    rule = {"coverage_penalty": 0.2}
    plain = find(models[:1], "tensor2tensor", **rule)
    same = find(models[:1], "diverse:groups=1", **rule)
    for values, expected in zip(same, plain, strict=True):
        np.testing.assert_array_equal(values, expected)
    found = find(models[:1], "diverse:groups=4:strength=5", **rule)
    assert (found.ids[0, :, :2].numpy() == [7, 8]).all()
    # Greedy groups that differ begin with different subwords, or end.
    first = found.ids[1, :, 0].numpy()
    first = first[first != EOS].tolist()
    assert len(set(first)) == len(first) > 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("diverse:groups=3", "multiple of its groups.* beam_size=4, groups=3"),
        ("diverse:strength=-1", "strength of at least 0; .*strength=-1"),
        ("divers", "Unknown beam search 'divers'. Did you mean 'diverse'"),
    ],
)
def test_wrong_searches_are_refused(models, setting, message):
    with pytest.raises(errors.UserError, match=message):
        find(models[:1], setting)


def generate(table, limit, width, alpha):
    """Return the finished (score, ids) of generate(), best first."""
    live, finished = [(0.0, (), START)], []
    for length in range(1, limit + 1):
        candidates = []
        for total, ids, prefix in live:
            log_probs = table[prefix].copy()
            if length == limit:  # forced_eos_token_id
                log_probs[:] = -np.inf
                log_probs[EOS] = 0.0
            candidates += [
                (total + log_probs[word], (*ids, word), prefix)
                for word in range(len(log_probs))
                if word != PAD
            ]
        candidates = sorted(candidates, reverse=True)[: 2 * width]
        finished += [
            (total / length**alpha, ids)
            for total, ids, _ in candidates[:width]
            if ids[-1] == EOS and total > -np.inf
        ]
        finished = sorted(finished, reverse=True)[:width]
        live = [
            (total, ids, extend_hash(prefix, ids[-1]))
            for total, ids, prefix in candidates
            if ids[-1] != EOS and total > -np.inf
        ][:width]
        if not live:
            break
        best = live[0][0] / length**alpha
        if len(finished) == width and best <= finished[-1][0]:
            break
    return finished


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    seeds=st.lists(st.integers(0, 2**32), min_size=2, max_size=3),
    limit=st.integers(2, 9),
    block=st.sampled_from([None, 2]),
    width=st.integers(2, 4),
    alpha=st.sampled_from([0.0, 1.0, 2.0]),
)
def test_outputs_of_huggingface_equal_lists(seeds, limit, block, width, alpha):
    """A sentence that has ended is not changed by the others of its batch."""
    tables = [random_table(seed) for seed in seeds]
    found = beam_search.huggingface(
        model_of(np.stack(tables), width, len(seeds), block),
        rules.sentences(tf.fill((len(seeds),), limit)),
        rules.LengthLimit(),
        limit,
        DecodeHParams(width, alpha, 0, return_beams=True),
    )
    for sentence, table in enumerate(tables):
        check(found, sentence, generate(table, limit, width, alpha))
