"""Filtering: counts and examples, and what does not change them."""

import numpy as np
import pytest
from small_corpora import draw_pairs, generate_corpus

from t2t_repro import errors
from t2t_repro.data import corpus, filtering, manifest
from t2t_repro.data.filtering import PairFilters
from t2t_repro.problem import build_problem
from t2t_repro.text.pair_filters import PairFilter

FILTERS = "max_words=10:different:unique:letters"
BAD = [("12 34", "5"), ("an", "an"), ("an " * 20, "x")]


PAIRS = [*dict.fromkeys(draw_pairs(70))][:50]
# Some pairs are bad or repeated.
DIRTY = [*PAIRS[:20], *BAD, PAIRS[3], *PAIRS[20:], BAD[0], PAIRS[3]]


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    """Return the folder and the manifest of a corpus of DIRTY."""
    folder = tmp_path_factory.mktemp("filtered")
    return folder, generate_corpus(folder, DIRTY, filters=FILTERS)


def test_manifest_has_counts_and_examples_of_each_filter(filtered):
    folder, contents = filtered
    train = contents["splits"]["train"]
    entry = train["filters"]
    assert (entry["read"], train["read"], train["kept"]) == (56, 50, 50)
    assert entry["dropped"] == {
        "max_words": 1,
        "different": 1,
        "unique": 2,
        "letters": 2,
    }
    repeated = list(DIRTY[3])
    assert entry["examples"] == {
        "max_words": [list(BAD[2])],
        "different": [list(BAD[1])],
        "unique": [repeated, repeated],
        "letters": [list(BAD[0])] * 2,
    }
    numbers = np.load(folder / filtering.FILE)
    assert numbers.tolist()[20:24] == [4, 2, 1, 3]
    manifest.verify(folder)


def test_corpus_and_vocabulary_are_those_of_the_kept_pairs(filtered, tmp_path):
    kept = [pair for pair in dict.fromkeys(DIRTY) if pair not in BAD]
    generate_corpus(tmp_path, kept)
    for name in ("train-00000-of-00001.arrow", "vocab.model"):
        expected = (tmp_path / name).read_bytes()
        assert (filtered[0] / name).read_bytes() == expected


def test_chunks_and_parts_do_not_change_files(filtered, tmp_path, monkeypatch):
    monkeypatch.setattr(filtering, "_PART", 5)
    actual = generate_corpus(tmp_path, DIRTY, filters=FILTERS, chunk_pairs=7)
    assert actual == filtered[1]


def test_resuming_does_not_filter_again(filtered, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "encode_split", None)
        with pytest.raises(TypeError):
            generate_corpus(tmp_path, DIRTY, filters=FILTERS)
    monkeypatch.setattr(PairFilters, "apply", None)
    actual = generate_corpus(tmp_path, DIRTY, filters=FILTERS)
    assert actual == filtered[1]


def test_damaged_result_of_filters_is_user_error(tmp_path):
    contents = generate_corpus(tmp_path, DIRTY, filters=FILTERS)
    (tmp_path / filtering.FILE).write_bytes(b"")
    with pytest.raises(errors.UserError, match="filtered.npy is damaged"):
        manifest.verify(tmp_path)
    entry = contents["splits"]["train"]["filters"]
    with pytest.raises(errors.UserError, match="missing or damaged"):
        list(filtering.kept_pairs(tmp_path, lambda: DIRTY, entry))


@pytest.mark.parametrize("change", ["fewer", "more", "dropped"])
def test_text_that_changes_after_filters_is_an_error(tmp_path, change):
    other = {
        "fewer": DIRTY[:-1],
        "more": [*DIRTY, DIRTY[0]],
        "dropped": [("x", "y") if pair == BAD[1] else pair for pair in DIRTY],
    }[change]
    readings = iter([DIRTY, DIRTY, other])
    with pytest.raises(errors.UserError, match="since its 56 pairs were filt"):
        generate_corpus(tmp_path, lambda: next(readings), filters=FILTERS)


def test_filters_that_drop_every_pair_are_user_error(tmp_path):
    filters = "max_words=0:different"
    message = "dropped 9 of 9 training pairs: max_words 9, different 0. Give"
    with pytest.raises(errors.UserError, match=message):
        generate_corpus(tmp_path, draw_pairs(9), filters=filters)


@pytest.mark.parametrize("source", ["", " ", "\u3000"])
def test_target_without_a_source_is_judged_as_both_sides(source):
    built = PairFilters("letters:script:max_words:different", ("", "en"), True)
    assert built.apply([(source, "a day"), (source, "+")]).reasons == b"\0\1"


def test_tag_is_not_judged():
    built = PairFilters("max_words=2:different", ("a", "en"), tags=["<BT>"])
    pairs = [("<BT> a b", "c"), ("<BT> a", "A"), ("<B> a b", "c")]
    assert built.apply(pairs).reasons == b"\0\2\1"
    names = "parallel_text", "parallel_text_rev"  # of the same data
    arguments = "name=x,languages=a-b,tags=<BT>,filters=max_words=2"
    for problem in (build_problem(name, arguments) for name in names):
        assert problem.pair_filters.apply(pairs).reasons == b"\0\0\1"


def test_exception_of_a_filter_is_a_user_error_that_names_it(registries):
    @registries.pair_filters.register("tenth")
    class Tenth(PairFilter):
        """Drop pairs by their tenth word, which may be absent."""

        def keep(self, pair):
            return pair[0].split()[9]

    message = r"'tenth' raised IndexError.*for the pair \['an', 'na'\]"
    with pytest.raises(errors.UserError, match=message):
        PairFilters("different:tenth", ("en", "xx")).apply([("an", "na")])
