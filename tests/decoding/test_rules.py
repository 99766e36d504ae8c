"""Tests of rules of one's own, and of GNMT's coverage penalty."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from search_tables import (
    PREFIXES,
    START,
    V,
    every_output,
    extend_hash,
    log_prob,
    model_of,
    outputs,
    random_table,
)

from t2t_repro import errors
from t2t_repro.decoding import beam_search, rules, sampling
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS

MAX_LENGTH = 5
ALPHA, BETA = 0.6, 0.7
INPUTS = np.array([[5, 6, 7, 1], [8, 1, 0, 0]], np.int32)

examples = hypothesis.settings(max_examples=4, deadline=None)
SEARCHES = {
    "beam": beam_search.beam_search,
    "greedy": sampling.greedy_search,
    "sample": sampling.sample,
}
every_search = pytest.mark.parametrize("name", SEARCHES)


class Bonus(rules.Rule):
    def __init__(self, bonus):
        self._bonus = bonus

    def score(self, logits, step, state):
        return logits + self._bonus * tf.one_hot(2, V)

    def upper_bound(self, step, state):
        left = step.sentences.limits - step.position
        return max(self._bonus, 0.0) * tf.cast(left, tf.float32)[:, None]


class LengthReward(rules.Rule):
    def __init__(self, reward):
        self._reward = reward

    def final_score(self, step, state):
        return self._reward * tf.cast(step.position + 1, tf.float32)

    def upper_bound(self, step, state):
        return (
            self._reward * tf.cast(step.sentences.limits, tf.float32)[:, None]
        )


class Exclude(rules.Rule):
    def __init__(self, subwords):
        self._subwords = subwords

    def excluded(self, step, state):
        return [tf.constant(subword) for subword in self._subwords]


class NoWordTwice(rules.Rule):
    """Exclusion of repeated subwords; the state is the set of previous ones."""

    def start(self, sentences, num_hypotheses):
        batch = tf.shape(sentences.limits)[0]
        return {"used": tf.zeros((batch, num_hypotheses, V), tf.bool)}

    def advance(self, step, state):
        previous = step.ids[:, :, tf.maximum(step.position - 1, 0)]
        is_previous = (tf.range(V) == previous[..., None]) & (step.position > 0)
        return {"used": state["used"] | is_previous}

    def score(self, logits, step, state):
        return tf.where(state["used"], rules.FORBIDDEN, logits)


def find(
    name, table, rule, limits, beams=3, block=None, attention=None, **settings
):
    """Run the named search; with attention, sentences have INPUTS."""
    beams = 1 if name == "greedy" else beams
    inputs = None
    if attention is not None:
        inputs = INPUTS[: len(limits)]
        attention = tf.cast(attention, tf.float32)
    model = model_of(table, beams, len(limits), block, attention)
    rule = rules.CombinedRule([rules.LengthLimit(), rule])
    sentences = rules.sentences(tf.constant(limits), inputs=inputs)
    hparams = DecodeHParams(
        beams,
        ALPHA,
        return_beams=True,
        sampling_temp=1.5,
        sampling_seed=3,
        **settings,
    )
    return SEARCHES[name](model, sentences, rule, max(limits), hparams)


def penalty(ids):
    return ((5 + len(ids)) / 6) ** ALPHA


def check_best(found, expected):
    """Check that outputs are the best of {ids: score}."""
    best = sorted(expected.values(), reverse=True)[: len(found)]
    scores = [score for _, score in found]
    np.testing.assert_allclose(scores, best, rtol=1e-4)
    ids_scores = [expected[ids] for ids, _ in found]
    np.testing.assert_allclose(scores, ids_scores, rtol=1e-4)


@pytest.mark.parametrize(
    ("rule", "added"),
    [
        *(
            (
                Bonus(bonus),
                lambda ids, bonus=bonus: bonus * ids.count(2) / penalty(ids),
            )
            for bonus in (-1.5, 0.4, 3.0)
        ),
        *(
            (LengthReward(reward), lambda ids, reward=reward: reward * len(ids))
            for reward in (0.3, 2.0)
        ),
    ],
)
@examples
@hypothesis.given(seed=st.integers(0, 2**32), limit=st.integers(1, MAX_LENGTH))
@hypothesis.example(0, 5)
def test_wide_beam_with_rule_equals_enumeration(rule, added, seed, limit):
    table = random_table(seed)
    every = {
        ids: score + added(ids)
        for ids, score in every_output(table, limit, ALPHA).items()
    }
    found = outputs(find("beam", table, rule, [limit], beams=81))
    assert len(found) == min(len(every), 81)
    check_best(found, every)


def test_beam_search_continues_while_upper_bound_allows():
    # P(EOS) is 0.9: without a reward, short outputs are best.
    table = np.full((PREFIXES, V), -100.0)
    table[:, EOS], table[:, 2] = np.log(0.9), np.log(0.1)
    (longest, score), _ = outputs(
        find("beam", table, LengthReward(3.0), [6], 2)
    )
    assert longest == (2, 2, 2, 2, 2, EOS)
    expected = log_prob(table, longest) / penalty(longest) + 6 * 3.0
    assert score == pytest.approx(expected, rel=1e-4)
    # With the bound 0 the search stops too early.
    rule = LengthReward(3.0)
    rule.upper_bound = lambda step, state: None
    (shorter, _), _ = outputs(find("beam", table, rule, [6], 2))
    assert len(shorter) < 6


@every_search
@examples
@hypothesis.given(
    seed=st.integers(0, 2**32),
    limits=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    block=st.sampled_from([None, 1, 3]),
)
@hypothesis.example(seed=0, limits=[7, 7, 4], block=None)
@hypothesis.example(seed=3, limits=[7, 2, 6], block=1)
def test_rule_state_follows_its_hypothesis(name, seed, limits, block):
    """A rule with a state gives the same result as one that reads ids."""
    table = random_table(seed)
    found, expected = (
        find(name, table, rule, limits, block=block)
        for rule in (NoWordTwice(), rules.NoRepeatNgrams(1))
    )
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


@pytest.mark.parametrize("subwords", [(EOS, 2), (EOS, 4), (2, 3), (3, 4)])
def test_excluded_subwords_are_in_no_output(subwords):
    table = random_table(5)
    every = {
        ids: score
        for ids, score in every_output(table, MAX_LENGTH, ALPHA).items()
        # At the limit EOS is forced even if it is excluded.
        if not {*subwords} & {*ids[: MAX_LENGTH - 1]}
    }
    found = outputs(find("beam", table, Exclude(subwords), [MAX_LENGTH], 81))
    assert len(found) == len(every)
    check_best(found, every)
    sampled = find("sample", table, Exclude(subwords), [MAX_LENGTH], 81)
    assert {ids for ids, _ in outputs(sampled)} <= every.keys()
    ((ids, _),) = outputs(
        find("greedy", table, Exclude(subwords), [MAX_LENGTH])
    )
    assert ids in every


@every_search
def test_first_forcing_rule_decides(name):
    class Always(rules.Rule):
        def forced(self, step, state):
            return tf.constant(3)

    sentences = rules.sentences(tf.constant([3]), tf.constant([[2]]))
    rule = rules.CombinedRule([rules.LengthLimit(), rules.Prefix(), Always()])
    hparams = DecodeHParams(1, ALPHA, sampling_temp=1.0)
    model = model_of(random_table(5), 1)
    found = SEARCHES[name](model, sentences, rule, 3, hparams)
    assert found.ids.numpy().tolist() == [[[2, 3, EOS]]]


@pytest.mark.parametrize("change", [lambda x: x[..., :2], lambda _: None])
def test_score_of_another_shape_is_refused(change):
    class Wrong(rules.Rule):
        def score(self, logits, step, state):
            return change(logits)

    with pytest.raises(errors.UserError, match="rule Wrong must return log"):
        find("greedy", random_table(5), Wrong(), [MAX_LENGTH])


def test_final_score_without_upper_bound_is_refused():
    class Reward(rules.Rule):
        def final_score(self, step, state):
            return 1.0

    message = "search rule Reward has final_score.. and no upper_bound"
    with pytest.raises(errors.UserError, match=message):
        rules.CombinedRule([rules.LengthLimit(), Reward()])


def coverage_penalty(attention, ids, source_length):
    """Compute equation 14 in a loop."""
    prefix, sums = START, np.zeros(source_length)
    for subword in ids:
        sums += attention[prefix][:source_length]
        prefix = extend_hash(prefix, subword)
    return BETA * sum(np.log(min(coverage, 1.0)) for coverage in sums)


@every_search
@pytest.mark.parametrize("raw_scores", [False, True])
@examples
@hypothesis.given(seed=st.integers(0, 2**32), block=st.sampled_from([None, 2]))
def test_scores_of_every_search_include_coverage(name, raw_scores, seed, block):
    table = random_table(seed)
    random = np.random.default_rng(seed)  # padding has attention, too
    attention = random.dirichlet([0.3] * 4, PREFIXES)
    found = find(
        name,
        table,
        rules.CoveragePenalty(BETA),
        [7, 4],
        block=block,
        attention=attention,
        raw_scores=raw_scores,
    )
    for sentence, source_length in enumerate((4, 2)):
        for ids, score in outputs(found, sentence):
            expected = log_prob(table, ids)
            if not raw_scores:
                coverage = coverage_penalty(attention, ids, source_length)
                expected = expected / penalty(ids) + coverage
            assert score == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("beta", [1.0, 1e30])
def test_subword_without_attention_has_finite_penalty(beta):
    """The output with the huge second penalty is still better than none."""
    attention = np.tile([1.0, 0.0, 0.0, 0.0], (PREFIXES, 1))
    rule = rules.CoveragePenalty(beta)
    found = find("beam", random_table(0), rule, [4], 2, attention=attention)
    assert np.isfinite(found.scores).all()
    assert (found.ids.numpy() == EOS).any(-1).all()
