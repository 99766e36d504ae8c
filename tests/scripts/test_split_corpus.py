"""Division of a corpus into splits that share no sentence."""

import pytest

from scripts.reproduce import split_corpus
from t2t_repro import errors

# Sentence i // 2 translates to i // 3: each has several translations.
PAIRS = {(f"source {i // 2}", f"target {i // 3}") for i in range(120)}


def test_splits_share_no_sentence():
    splits = split_corpus.divide(PAIRS, held_out=7, seed=1)
    assert [len(splits[name]) for name in ("validation", "test")] == [7, 7]
    assert splits["train"]
    for side in range(2):
        sentences = [{p[side] for p in split} for split in splits.values()]
        assert len(set.union(*sentences)) == sum(map(len, sentences))
    assert set().union(*splits.values()) <= PAIRS


def test_division_depends_on_the_seed_and_on_nothing_else():
    divided = split_corpus.divide(PAIRS, held_out=7, seed=1)
    assert split_corpus.divide(set(sorted(PAIRS)), 7, 1) == divided
    assert split_corpus.divide(PAIRS, 7, 2)["test"] != divided["test"]


def test_every_pair_without_a_held_out_sentence_is_kept():
    pairs = {(f"source {i}", f"target {i}") for i in range(20)}
    splits = split_corpus.divide(pairs, held_out=3, seed=5)
    assert sorted(sum(splits.values(), [])) == sorted(pairs)


def test_a_corpus_that_is_too_small_is_refused():
    with pytest.raises(errors.UserError, match="too few to hold out twice 60"):
        split_corpus.divide(PAIRS, held_out=60, seed=1)
