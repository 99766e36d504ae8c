"""Rules of one's own: masks, scores, states and bounds, in every search."""

import itertools
import pathlib
import runpy

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.decoding import beam_search, greedy, rules, sampling
from t2t_repro.text.vocabulary import EOS, PAD

TABLES = runpy.run_path(str(pathlib.Path(__file__).with_name("tables.py")))
V, WORDS, PREFIXES = (TABLES[x] for x in ("V", "WORDS", "PREFIXES"))
random_table, model_of, every_output, log_prob = (
    TABLES[x] for x in ("random_table", "model_of", "every_output", "log_prob")
)
LONGEST = 5
ALPHA = 0.6

examples = hypothesis.settings(max_examples=10, deadline=None)
every_search = pytest.mark.parametrize("name", ["beam", "greedy", "sample"])


class Bonus(rules.Rule):
    """Each subword 2 is given a bonus."""

    def __init__(self, bonus):
        self._bonus = bonus

    def score(self, logits, step, state):
        return logits + self._bonus * tf.one_hot(2, V)

    def upper_bound(self, step, state):
        left = step.sentences.limits - step.position
        return max(self._bonus, 0.0) * tf.cast(left, tf.float32)[:, None]


class LengthReward(rules.Rule):
    """An output is given a reward for each of its subwords."""

    def __init__(self, reward):
        self._reward = reward

    def final_score(self, step, state):
        return self._reward * tf.cast(step.position + 1, tf.float32)

    def upper_bound(self, step, state):
        return (
            self._reward * tf.cast(step.sentences.limits, tf.float32)[:, None]
        )


class Unbounded(LengthReward):
    """One that says that it adds nothing."""

    def upper_bound(self, step, state):
        return None


class Without(rules.Rule):
    """Some subwords never come."""

    def __init__(self, subwords):
        self._subwords = subwords

    def excluded(self, step, state):
        return [tf.constant(subword) for subword in self._subwords]


class NoWordTwice(rules.Rule):
    """No subword comes twice; the state is the set of those that have come."""

    def start(self, sentences, num_hypotheses):
        batch = tf.shape(sentences.limits)[0]
        return {"seen": tf.zeros((batch, num_hypotheses, V), tf.bool)}

    def advance(self, step, state):
        before = step.ids[:, :, tf.maximum(step.position - 1, 0)]
        came = (tf.range(V) == before[..., None]) & (step.position > 0)
        return {"seen": state["seen"] | came}

    def score(self, logits, step, state):
        return tf.where(state["seen"], rules.FORBIDDEN, logits)


def find(name, table, rule, limits, beams=3, block=None):
    """Hypotheses of a search of sentences, by its name."""
    beams = 1 if name == "greedy" else beams
    model = model_of(table, beams, len(limits), block)
    rule = rules.Rules([rules.LengthLimit(), rule])
    sentences = rules.sentences(tf.constant(limits))
    most = max(limits)
    if name == "greedy":
        return greedy.greedy_search(model, sentences, rule, most, ALPHA)
    if name == "beam":
        return beam_search.beam_search(
            model, sentences, rule, beams, most, ALPHA, beams
        )
    keys = tf.range(len(limits))
    draws = sampling.Distribution(1.5, seed=3)
    return sampling.sample(
        model, sentences, rule, keys, beams, most, ALPHA, draws
    )


def outputs(found, sentence=0):
    """[(ids up to EOS, score)]."""
    return [
        (tuple(ids[ids != PAD].tolist()), float(score))
        for ids, score in zip(
            found.ids[sentence].numpy(),
            found.scores[sentence].numpy(),
            strict=True,
        )
        if score > rules.FORBIDDEN / 10
    ]


def penalty(ids):
    return ((5 + len(ids)) / 6) ** ALPHA


def bonus_score(table, ids, bonus):
    return (log_prob(table, ids) + bonus * ids.count(2)) / penalty(ids)


def check_best(found, expected):
    """Outputs are the best of {ids: score}, with their scores."""
    best = sorted(expected.values(), reverse=True)[: len(found)]
    scores = [score for _, score in found]
    np.testing.assert_allclose(scores, best, rtol=1e-4)
    own = [expected[ids] for ids, _ in found]
    np.testing.assert_allclose(scores, own, rtol=1e-4)


@examples
@hypothesis.given(
    seed=st.integers(0, 2**32),
    bonus=st.sampled_from([-1.5, 0.4, 3.0]),
    limit=st.integers(1, LONGEST),
)
@hypothesis.example(0, 3.0, 5)
def test_a_wide_beam_finds_the_best_with_a_bonus(seed, bonus, limit):
    table = random_table(seed)
    every = {
        ids: bonus_score(table, ids, bonus)
        for ids in every_output(table, limit, ALPHA)
    }
    found = outputs(find("beam", table, Bonus(bonus), [limit], beams=81))
    assert len(found) == min(len(every), 81)
    check_best(found, every)


@every_search
def test_a_bonus_is_in_the_score_of_every_search(name):
    table = random_table(4)
    for sentence in range(2):
        found = find(name, table, Bonus(0.9), [6, 3], block=2)
        for ids, score in outputs(found, sentence):
            # A subword that the limit forces has no bonus, and is EOS.
            expected = bonus_score(table, ids, 0.9)
            assert score == pytest.approx(expected, rel=1e-4)


def test_beam_search_goes_on_while_a_rule_may_still_add():
    # EOS 0.9: without a reward, outputs of one and two subwords are best.
    table = np.full((PREFIXES, V), -100.0)
    table[:, EOS], table[:, 2] = np.log(0.9), np.log(0.1)
    (longest, score), _ = outputs(
        find("beam", table, LengthReward(3.0), [6], 2)
    )
    assert longest == (2, 2, 2, 2, 2, EOS)
    expected = log_prob(table, longest) / penalty(longest) + 6 * 3.0
    assert score == pytest.approx(expected, rel=1e-4)
    # The bound is what keeps it going.
    (shorter, _), _ = outputs(find("beam", table, Unbounded(3.0), [6], 2))
    assert len(shorter) < 6


@examples
@hypothesis.given(
    seed=st.integers(0, 2**32),
    reward=st.sampled_from([0.3, 2.0]),
    limit=st.integers(1, LONGEST),
)
def test_a_wide_beam_finds_the_best_with_a_reward(seed, reward, limit):
    table = random_table(seed)
    every = {
        ids: score + reward * len(ids)
        for ids, score in every_output(table, limit, ALPHA).items()
    }
    found = outputs(find("beam", table, LengthReward(reward), [limit], 81))
    check_best(found, every)


@every_search
@examples
@hypothesis.given(
    seed=st.integers(0, 2**32),
    limits=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    block=st.sampled_from([None, 1, 3]),
)
@hypothesis.example(seed=0, limits=[7, 7, 4], block=None)
@hypothesis.example(seed=3, limits=[7, 2, 6], block=1)
def test_a_state_goes_with_its_hypothesis(name, seed, limits, block):
    """As the rule that reads ids: hypotheses change beams, sentences leave."""
    table = random_table(seed)
    found, expected = (
        find(name, table, rule, limits, block=block)
        for rule in (NoWordTwice(), rules.NoRepeatNgrams(1))
    )
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


@pytest.mark.parametrize("name", ["beam", "sample"])
def test_a_state_goes_with_its_hypothesis_in_xla(name):
    table = random_table(3)
    found = tf.function(
        lambda: find(name, table, NoWordTwice(), [7, 4, 6]), jit_compile=True
    )()
    expected = find(name, table, rules.NoRepeatNgrams(1), [7, 4, 6])
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


@pytest.mark.parametrize(
    "subwords", [*itertools.combinations([EOS, 2, 3, 4], 2)]
)
def test_excluded_subwords_never_come_and_others_do(subwords):
    table = random_table(5)
    every = {
        ids: score
        for ids, score in every_output(table, LONGEST, ALPHA).items()
        # EOS comes at the limit all the same.
        if not {*subwords} & {*ids[: LONGEST - 1]}
    }
    found = outputs(find("beam", table, Without(subwords), [LONGEST], 81))
    assert len(found) == len(every)
    check_best(found, every)
    drawn = find("sample", table, Without(subwords), [LONGEST], 81)
    assert {ids for ids, _ in outputs(drawn)} <= every.keys()
    ((ids, _),) = outputs(find("greedy", table, Without(subwords), [LONGEST]))
    assert ids in every


def test_where_rules_exclude_everything_the_output_ends():
    for name in ("beam", "greedy", "sample"):
        rule = Without([EOS, *WORDS])
        found = outputs(find(name, random_table(5), rule, [LONGEST]))
        assert {ids for ids, _ in found} == {(EOS,)}


def test_the_first_rule_that_forces_a_subword_decides():
    class Always(rules.Rule):
        def forced(self, step, state):
            return tf.constant(3)

    sentences = rules.sentences(tf.constant([3]), tf.constant([[2]]))
    rule = rules.Rules([rules.LengthLimit(), rules.Prefix(), Always()])
    found = greedy.greedy_search(
        model_of(random_table(5), 1), sentences, rule, 3, ALPHA
    )
    assert found.ids.numpy().tolist() == [[[2, 3, EOS]]]


def test_no_rules_are_a_rule():
    rule, step = rules.Rules([]), rules.Step(0, None, None)
    assert rule.forced(step, ()) is None and rule.final_score(step, ()) is None
    assert not rule.needs_attention and not rule.excluded(step, ())
    # Nothing ends an output but EOS, of which there is enough.
    table = np.full((PREFIXES, V), -100.0)
    table[:, EOS] = 0.0
    sentences = rules.sentences(tf.constant([5]))
    model = model_of(table, 1)
    found = greedy.greedy_search(model, sentences, rule, 5, ALPHA)
    assert found.ids.numpy().tolist() == [[[EOS, 0, 0, 0, 0]]]


def test_a_final_score_without_a_bound_is_refused():
    class Reward(rules.Rule):
        def final_score(self, step, state):
            return 1.0

    message = "search rule Reward has final_score.. and no upper_bound"
    with pytest.raises(errors.UserError, match=message):
        rules.Rules([rules.LengthLimit(), Reward()])
