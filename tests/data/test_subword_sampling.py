"""Sampled segmentations: their probabilities, and their batches."""

import collections
import dataclasses
import functools
import math
import operator
from unittest import mock

import numpy as np
import plans
import pytest
from scipy import stats
from small_corpora import write_ids

from t2t_repro import errors
from t2t_repro.data import batch_plan, batches, corpus, subword_sampling
from t2t_repro.data.subword_sampling import BpeDropout, UnigramSampling
from t2t_repro.problem import build_problem
from t2t_repro.text.vocabulary_pair import Vocabularies

TEXTS = ["aab", "aa", "ab", "ba", "bb", "abba", "a", "b"]
PIECES = {i + 2: (text, -float(i)) for i, text in enumerate(TEXTS)}
SIZE = 12


def text_of(ids):
    """Return the text of a sentence; ids without a text keep their number."""
    return "".join(PIECES.get(i, (f"<{i}>",))[0] for i in ids)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A corpus of stored segmentations of random letters; 11 is special."""
    random = np.random.default_rng(0)

    def side():
        letters = random.choice([8, 9, 9, 11], random.integers(4, 30)).tolist()
        return segment_greedily(letters) + [1]

    folder = tmp_path_factory.mktemp("corpus")
    ids = [(side(), side()) for _ in range(200)]
    return corpus.Corpus([write_ids(folder / "a.arrow", ids, SIZE)])


def segment_greedily(letters):
    """Merge pairs of letters from the left."""
    merges = {(8, 8): 3, (8, 9): 4, (9, 8): 5, (9, 9): 6}
    ids = []
    for letter in letters:
        if ids and (ids[-1], letter) in merges:
            ids[-1] = merges[ids[-1], letter]
        else:
            ids.append(letter)
    return ids


def sampler(seed=3, dropout=0.4, sides=corpus.SIDES):
    method = BpeDropout(PIECES, SIZE, dropout)
    return subword_sampling.SubwordSampler(dict.fromkeys(sides, method), seed)


def plan_of(pairs, batching, chosen=None):
    lengths = subword_sampling.planned_lengths(chosen, pairs, 32)
    return plans.build(lengths, batching, 200, 32)


def sentences(arrays, side):
    """Return the ids of each sentence, by row and segment."""
    return [
        row[segments == segment].tolist()
        for row, segments in zip(
            arrays[side], arrays[f"{side}_segment"], strict=True
        )
        for segment in range(1, segments.max() + 1)
    ]


def stored(pairs, side, batch):
    lengths = pairs.lengths[side][batch.pairs]
    flat = pairs.gather(side, batch.pairs)
    return [x.tolist() for x in np.split(flat, np.cumsum(lengths)[:-1])]


@pytest.mark.parametrize(
    ("batching", "sides"),
    [
        ("packed", corpus.SIDES),
        ("bucketed", corpus.SIDES),
        ("bucketed", ("inputs",)),
        ("packed", ("targets",)),
    ],
)
def test_batches_have_the_text_of_the_corpus_in_other_segmentations(
    pairs, batching, sides
):
    chosen = sampler(sides=sides)
    plan = plan_of(pairs, batching, chosen)
    changed, total = dict.fromkeys(corpus.SIDES, 0), 0
    for step in range(20):
        batch = plan.batch(step)
        arrays = batches.assemble(pairs, batch, chosen, step)
        total += len(batch.pairs)
        for side, row_length in zip(
            corpus.SIDES, batch.row_lengths, strict=True
        ):
            assert arrays[side].shape == (batch.num_rows, row_length)
            before = stored(pairs, side, batch)
            after = sentences(arrays, side)
            assert list(map(text_of, after)) == list(map(text_of, before))
            changed[side] += sum(map(operator.ne, after, before))
            positions = arrays[f"{side}_position"]
            starts = arrays[f"{side}_segment"] > 0
            assert (positions[starts] < row_length).all()
    for side in corpus.SIDES:
        if side in sides:
            assert 0.6 < changed[side] / total < 1
        else:
            assert changed[side] == 0


def test_samples_change_with_step_seed_place_and_side(pairs):
    ids, lengths = pairs.gather("inputs", np.arange(9)), pairs.lengths["inputs"]
    ids, lengths = np.tile(ids, 2), np.tile(lengths[:9], 2)

    def sample(seed=3, side="inputs", step=5):
        return sampler(seed).sample(side, step, ids, lengths)

    first, counts = sample()
    again, _ = sample()
    np.testing.assert_array_equal(first, again)
    assert counts[:9].tolist() != counts[9:].tolist()  # the same pairs twice
    for change in ({"seed": 4}, {"side": "targets"}, {"step": 6}):
        assert sample(**change)[0].tolist() != first.tolist()


@pytest.mark.parametrize(
    ("row_length", "expected"),
    [
        (8, [0, 0, 0, 1, 1]),
        (9, [0, 0, 1, 1, 1]),
        (10, [1, 0, 0, 1, 1]),
        (11, [1, 0, 1, 1, 1]),
        (12, [1, 1, 0, 1, 1]),
        (13, [1, 1, 1, 1, 1]),
    ],
)
@pytest.mark.parametrize("side", corpus.SIDES)
def test_rows_take_samples_in_order_where_these_fit(side, row_length, expected):
    chosen = sampler(dropout=1.0)
    two, one = ([6, 6, 1], [9, 9, 9, 9, 1]), ([6, 1], [9, 9, 1])
    pairs = [two, two, one, one, one]
    lengths = np.array([len(stored) for stored, _ in pairs])
    ids = np.concatenate([stored for stored, _ in pairs])
    rows = np.array([0, 0, 0, 2, 2])
    row_lengths = (row_length, 99) if side == "inputs" else (99, row_length)
    batch = batch_plan.PlannedBatch(np.arange(5), rows, 3, row_lengths, 99)
    actual, counts = chosen.resegment(side, 0, batch, ids, lengths)
    taken = [pair[grows] for pair, grows in zip(pairs, expected, strict=True)]
    assert counts.tolist() == list(map(len, taken))
    assert actual.tolist() == sum(taken, [])


def test_no_sample_is_longer_than_a_sentence_may_be():
    """The sample has 5 ids."""
    chosen = sampler(dropout=1.0)
    stored = np.array([6, 6, 1])
    rows = np.zeros(1, np.int64)
    for longest, side, most, length in (
        (4, "inputs", 4, 3),
        (4, "targets", 4, 3),
        (5, "inputs", 5, 5),
        (5, "targets", 5, 5),
        (4, "inputs", 99, 3),
        (4, "targets", 99, 5),
    ):
        batch = batch_plan.PlannedBatch(rows, rows, 1, (longest, 99), most)
        _, counts = chosen.resegment(
            side, 0, batch, stored, np.array([3], np.int32)
        )
        assert counts.tolist() == [length]


@pytest.mark.parametrize("batching", ["packed", "bucketed"])
def test_plans_count_the_tokens_of_sampled_segmentations(pairs, batching):
    chosen = sampler(dropout=0.8)
    plan = plan_of(pairs, batching, chosen)
    counted = dict.fromkeys(corpus.SIDES, 0)
    for step, batch in enumerate(plan.single_pass()):
        arrays = batches.assemble(pairs, batch, chosen, step)
        for side in corpus.SIDES:
            counted[side] += np.count_nonzero(arrays[side])
    for side in corpus.SIDES:
        assert plan.tokens[side] > 1.1 * pairs.lengths[side].sum()
        assert counted[side] == pytest.approx(plan.tokens[side], rel=0.05)


def test_planned_lengths_keep_the_pairs_that_max_length_admits(pairs):
    limit = 16
    planned = subword_sampling.planned_lengths(sampler(), pairs, limit)
    assert np.array_equal(
        batch_plan.usable_pairs(planned, limit),
        batch_plan.usable_pairs(pairs.lengths, limit),
    )
    assert (planned["inputs"] >= pairs.lengths["inputs"]).all()
    unchanged = subword_sampling.planned_lengths(None, pairs, limit)
    assert unchanged is pairs.lengths


@pytest.mark.parametrize("sides", ["both", "inputs", "targets"])
def test_hparams_choose_the_sides(tiny_hparams, pairs, sides):
    hparams = dataclasses.replace(
        tiny_hparams, unigram_alpha=0.2, subword_sampling_sides=sides
    )
    vocabulary = mock.Mock(size=SIZE, scored_pieces=lambda: PIECES)
    pair = Vocabularies(vocabulary, vocabulary)
    built = subword_sampling.build(hparams, pair, 1)
    assert tuple(built.methods) == (
        corpus.SIDES if sides == "both" else (sides,)
    )
    plan, _ = subword_sampling.training_plan(hparams, pair, 1, pairs)
    assert [*built.methods] == [
        side
        for side in corpus.SIDES
        if plan.tokens[side] > pairs.lengths[side].sum()
    ]


@pytest.mark.parametrize(
    ("changes", "kind", "advice"),
    [
        ({"bpe_dropout": 0.1}, "unigram", "=0 and unigram_alpha=0.1."),
        ({"unigram_alpha": 0.2}, "bpe", "=0 and bpe_dropout=0.1."),
        ({"bpe_dropout": 0.1}, "char", "=0."),
        ({"bpe_dropout": 0.1}, "whitespace_tokens", "=0."),
        ({"unigram_alpha": 0.2}, "mapped_sentence_piece", "=0."),
        ({"unigram_alpha": 0.2, "bpe_dropout": 0.1}, "bpe", "dropout=0.1."),
    ],
)
def test_vocabulary_without_the_sampling_is_refused(
    tiny_hparams, changes, kind, advice
):
    problem = build_problem("number_words_ende", f"vocabulary_type={kind}")
    problem.check_hparams(tiny_hparams)
    name = next(iter(changes))
    message = (
        f"{name}={changes[name]} cannot sample.*of the type {kind}: "
        f".*Set {name}.*{advice}$"
    )
    with pytest.raises(errors.UserError, match=f"(?s){message}"):
        problem.check_hparams(dataclasses.replace(tiny_hparams, **changes))


SAMPLES = 20_000
SPACE = "\u2581"
METHODS = {"bpe": BpeDropout, "unigram": UnigramSampling}


def table(*texts, scores=None):
    """Return {id: (text, score)} from 2 on; texts have descending scores."""
    scores = scores or [-i for i in range(len(texts))]
    pairs = zip(texts, scores, strict=True)
    return dict(enumerate(pairs, start=2))


def segment(method, rows, seed=0):
    """Segment rows of ids, each with a key of its own."""
    lengths = np.array([len(row) for row in rows])
    keys = subword_sampling.split_key(np.uint64(seed), np.arange(len(rows)))
    characters = method.speller.spell(np.concatenate(rows), lengths, keys)
    pieces = method.segment(characters)
    new = np.bincount(characters.sentences[pieces >= 0])
    ends = np.cumsum(new)[:-1]
    return [row.tolist() for row in np.split(pieces[pieces >= 0], ends)]


def count(method, pieces, text):
    """Return how often each segmentation of a text is sampled."""
    ids = {piece: i for i, (piece, _) in pieces.items()}
    row = [ids[character] for character in text]
    sampled = segment(method, [row] * SAMPLES)
    return collections.Counter(
        tuple(pieces[i][0] for i in segmentation) for segmentation in sampled
    )


def assert_frequencies(counts, probabilities):
    assert sum(probabilities.values()) == pytest.approx(1)
    assert counts.keys() <= probabilities.keys()
    common = [key for key, p in probabilities.items() if p * SAMPLES >= 5]
    observed = [counts[key] for key in common]
    expected = [probabilities[key] * SAMPLES for key in common]
    rest = SAMPLES - sum(observed), SAMPLES - sum(expected)
    if rest[1] >= 5:
        observed.append(rest[0])
        expected.append(rest[1])
    else:
        expected = np.array(expected) * sum(observed) / sum(expected)
    assert len(expected) > 1
    assert stats.chisquare(observed, expected).pvalue > 0.001


def dropout_probabilities(pieces, word, dropout):
    """Enumerate algorithm 1 of the paper: {segmentation: probability}."""
    scores = {text: score for text, score in pieces.values()}

    @functools.cache
    def finish(parts):
        merges = sorted(
            (-scores[a + b], i)
            for i, (a, b) in enumerate(zip(parts, parts[1:], strict=False))
            if a + b in scores
        )
        result = collections.Counter()
        result[parts] = dropout ** len(merges)  # all are left out
        for rank, (_, i) in enumerate(merges):
            merged = (*parts[:i], parts[i] + parts[i + 1], *parts[i + 2 :])
            chance = dropout**rank * (1 - dropout)
            for segmentation, probability in finish(merged).items():
                result[segmentation] += chance * probability
        return result

    return finish(tuple(word))


def unigram_probabilities(pieces, text, alpha):
    """Enumerate all segmentations: {segmentation: probability}."""
    scores = {piece: score for piece, score in pieces.values()}

    def all_segmentations(rest):
        if not rest:
            yield ()
        for end in range(1, len(rest) + 1):
            if rest[:end] in scores:
                for others in all_segmentations(rest[end:]):
                    yield rest[:end], *others

    weights = {
        segmentation: math.exp(alpha * sum(scores[i] for i in segmentation))
        for segmentation in all_segmentations(text)
    }
    total = sum(weights.values())
    return {key: weight / total for key, weight in weights.items()}


@pytest.mark.parametrize("dropout", [0.1, 0.5])
@pytest.mark.parametrize("word", ["abab", "abcab", "aabba", "bcabca"])
def test_bpe_dropout_has_the_probabilities_of_the_paper(word, dropout):
    pieces = table("ab", "abc", "ca", "bc", "ba", "abab", "a", "b", "c")
    method = BpeDropout(pieces, 20, dropout)
    assert_frequencies(
        count(method, pieces, word),
        dropout_probabilities(pieces, word, dropout),
    )


@pytest.mark.parametrize("alpha", [0.2, 1.0])
@pytest.mark.parametrize("text", ["abab", "abcab", f"{SPACE}ab{SPACE}abc"])
def test_unigram_sampling_has_the_probabilities_of_the_paper(text, alpha):
    pieces = table(
        *("a", "b", "c", "ab", "abc", "bc", "ca", SPACE, f"{SPACE}ab"),
        scores=[-3.0, -2.5, -4.0, -2.0, -3.5, -3.0, -5.0, -1.0, -2.2],
    )
    method = UnigramSampling(pieces, 20, alpha)
    assert_frequencies(
        count(method, pieces, text), unigram_probabilities(pieces, text, alpha)
    )


@pytest.mark.parametrize("kind", METHODS)
def test_pieces_that_span_words_are_found(kind):
    pieces = table(f"a{SPACE}a", f"a{SPACE}", "a", SPACE)
    method = METHODS[kind](pieces, 20, 0.0 if kind == "bpe" else 50.0)
    counts = count(method, pieces, f"a{SPACE}a")
    assert counts == {(f"a{SPACE}a",): SAMPLES}


@pytest.mark.parametrize("kind", METHODS)
def test_a_sentence_does_not_depend_on_the_others(kind):
    pieces = table("ab", "aba", "ba", "a", "b", scores=[-3, -4, -3, -2, -2])
    method = METHODS[kind](pieces, 9, 0.4)
    draw = np.random.default_rng(0)
    rows = [draw.integers(2, 7, draw.integers(1, 30)) for _ in range(50)]
    together = segment(method, rows)
    others = [draw.integers(2, 7, 9) for _ in range(49)]
    assert segment(method, [*others, rows[-1]])[-1] == together[-1]
    assert segment(method, rows[:20]) == together[:20]
    assert segment(method, rows, seed=1) != together
