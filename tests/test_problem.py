"""Problems: names, arguments, reversal, and the files they read."""

import re

import pytest
from cases import read_cases

from t2t_repro import errors, problem, registry
from t2t_repro.metrics.metric import TRANSLATION
from t2t_repro.problem import build_problem


@pytest.fixture(autouse=True)
def toy(registries):
    """Register a problem, which is unregistered afterwards."""

    @registry.problems.register("toy")
    class Toy(problem.Problem):
        """A problem without arguments of its own."""

        stored_languages = ("en", "de")
        vocab_size = 300

    return Toy


@pytest.mark.parametrize(
    ("name", "languages", "reverse"),
    [("toy", ("en", "de"), False), ("toy_rev", ("de", "en"), True)],
)
def test_problems_both_ways_have_names_and_languages(name, languages, reverse):
    built = build_problem(name)
    assert (built.requested_name, built.registered_name) == (name, "toy")
    assert (built.data_name, built.full_name) == ("toy", name)
    assert (built.source_language, built.target_language) == languages
    assert built.stored_languages == ("en", "de")
    assert built.reverse is reverse
    assert built.arguments["vocab_size"] == 300


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"reversible": False}, "Own has reversible = False. Use own."),
        ({"allow_empty_source": True}, "its sources may be empty, and no"),
        ({"target_languages": ("de",)}, "own has several directions"),
    ],
)
def test_missing_reversal_is_refused_with_its_reason(toy, attributes, reason):
    registry.problems.register("own")(type("Own", (toy,), attributes))
    build_problem("own")
    with pytest.raises(errors.UserError, match=f"no own_rev: .*{reason}"):
        build_problem("own_rev")


def test_task_follows_the_problem(monkeypatch, toy):
    assert build_problem("toy").task == "translation"
    empty = build_problem("toy", "allow_empty_source=true")
    assert empty.task == "text-generation" and empty.search.allow_empty_source
    monkeypatch.setattr(toy, "stored_languages", ("en", "en"))
    assert build_problem("toy").task == "text2text-generation"
    monkeypatch.setattr(toy, "pipeline_tag", "summarization")
    assert build_problem("toy").task == "summarization"
    monkeypatch.setattr(toy, "pipeline_tag", "summaries")
    with pytest.raises(errors.UserError, match="summarization.*got 'summaries"):
        build_problem("toy")


def test_property_in_place_of_an_argument_is_user_error(toy):
    wrong = type("Own", (toy,), {"vocab_size": property(lambda self: 300)})
    registry.problems.register("own")(wrong)
    message = "vocab_size of .*Own is a property. Write vocab_size = VALUE in"
    with pytest.raises(errors.UserError, match=message):
        build_problem("own")


def test_what_is_no_problem_is_user_error(toy):
    registry.problems.register("own")(object)
    with pytest.raises(errors.UserError, match="be a subclass of .*Problem; g"):
        build_problem("own")


def test_missing_argument_is_user_error(toy):
    @registry.problems.register("named")
    class Named(toy):
        name: str

    message = "'named' needs --problem_args with name=…"
    with pytest.raises(errors.UserError, match=message):
        build_problem("named", "max_length=40")


def test_colon_separates_paths_of_two_vocabularies_only(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    both = "separate_vocabularies=true,vocabulary=a.model:b.model"
    built = build_problem("toy", both)
    paths = [tmp_path / "a.model", tmp_path / "b.model"]
    assert built.vocabulary_paths == paths
    assert build_problem("toy", built.arguments).vocabulary_paths == paths
    shared = build_problem("toy", "vocabulary=a:b")  # a name with a colon
    assert shared.vocabulary_paths == [tmp_path / "a:b"]
    assert build_problem("toy").vocabulary_paths == []


WRONG_ARGUMENTS = read_cases("""
separate_vocabularies=true,vocabulary=a.model
    two paths, of inputs and of targets, .*got 1 in 'a.model'
separate_vocabularies=true,vocabulary=a:b:c
    two paths, of inputs and of targets, .*got 3 in 'a:b:c'
source_vocab_size=9
    with separate_vocabularies=true; got 9
source_vocab_size=-1
    source_vocab_size must be at least 0; got
vocabulary_type=unigramm
    Unknown vocabulary type 'unigramm'.*mean 'unigram'
vocabulary_type=whitespace_tokens,tags=<BT>
    bpe, unigram or char; got whitespace_tokens
normalization=nfc
    bpe normalizes by nmt_nfkc or .* or verbatim; got .*=nfc
vocabulary_type=whitespace_tokens,normalization=identity
    whitespace_tokens normalizes by no rule that can be chosen
vocabulary=a.model,normalization=identity
    given has a rule of normalization already; omit normalization
tags=<BT> <X>
    Each of the tags is a word; got '<BT> <X>'
tags=<BT>:
    Each of the tags is a word; got '<BT>:'
max_length=1
    max_length must be at least 2.*got 1
max_length_ratio=0.5
    max_length_ratio.*at least 1.*got 0.5
max_length_ratio=nan
    max_length_ratio.*at least 1.*got nan
filters=uniqe
    Unknown filter 'uniqe'. Did you mean 'unique'
filters=unique:unique
    'unique' is given twice
filters=unique=1
    'unique=1' must have no value
filters=max_words=
    'max_words=' must have a number
filters=max_words=nan
    'max_words=nan' must have a number
filters=letters=80
    'letters=80' must have a number from 0 to 1
""")


@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS)
def test_wrong_arguments_are_user_errors(arguments):
    with pytest.raises(errors.UserError, match=WRONG_ARGUMENTS[arguments]):
        build_problem("toy", arguments)


def test_metrics_are_those_of_translations_or_of_direction(monkeypatch, toy):
    names = ("toy", "toy_rev")
    suites = [build_problem(name).suite for name in names]
    assert [suite.language for suite in suites] == ["de", "en"]
    assert {suite.names for suite in suites} == {TRANSLATION}
    monkeypatch.setattr(toy, "metrics", ("ter",))
    assert {build_problem(name).suite.names for name in names} == {("ter",)}
    monkeypatch.setattr(toy, "reversed_metrics", ("chrf", "bleu"))
    assert build_problem("toy").suite.names == ("ter",)
    assert build_problem("toy_rev").suite.headline == "chrf"


@pytest.mark.parametrize(
    ("metrics", "complaint"),
    [
        (("blue",), "Unknown metric 'blue'. Did you mean 'bleu'"),
        ("bleu", "'toy' must be a tuple of names, .*; got 'bleu'"),
        (("bleu", 3), "must be a tuple of names"),
        (
            (),
            r"'toy' must be a tuple of names, the headline first, .* got \(\)",
        ),
        (("loss",), "cannot be named 'loss'"),
    ],
)
def test_wrong_metrics_are_user_errors(monkeypatch, toy, metrics, complaint):
    registry.metrics.declare("loss", "none.of.These")
    monkeypatch.setattr(toy, "metrics", metrics)
    with pytest.raises(errors.UserError, match=complaint):
        build_problem("toy")


def test_overridden_normalize_changes_both_sides_of_pairs(toy, tmp_path):
    class Marked(toy):
        def normalize(self, line, language):
            return f"{language} {line}"

    registry.problems.register("marked")(Marked)
    (tmp_path / "train.en").write_text("one\n")
    (tmp_path / "train.de").write_text("eins\n")
    for name in ("marked", "marked_rev"):
        built = build_problem(name)
        assert built.normalizes
        pairs = built.normalized_pairs("train", tmp_path, tmp_path)
        assert list(pairs) == [("en one", "de eins")]
    plain = build_problem("toy")
    assert not plain.normalizes
    assert plain.normalize("One", "en") == "One"
    pairs = plain.normalized_pairs("train", tmp_path, tmp_path)
    assert list(pairs) == [("one", "eins")]


@pytest.mark.parametrize(
    ("pair", "shown"),
    [
        (("a", "b", "c"), "('a', 'b', 'c')"),
        (("a", 7), "('a', 7)"),
        ((b"a", "b"), "(b'a', 'b')"),
        ("ab", "'ab'"),
        (None, "None"),
        (("a", "\ud83d"), r"('a', '\ud83d')"),  # half of an emoji
    ],
)
def test_wrong_pair_of_a_users_problem_is_named(toy, tmp_path, pair, shown):
    class Wrong(toy):
        def pairs(self, split, raw_dir, download_dir):
            return [("a", "b"), pair]

    registry.problems.register("wrong")(Wrong)
    read = build_problem("wrong").normalized_pairs("test", None, tmp_path)
    assert next(read) == ("a", "b")
    message = (
        r"Wrong\.pairs\(\) must yield pairs of strings, .* whole characters; "
        f"pair 2 of the split test is {re.escape(shown)}\\."
    )
    with pytest.raises(errors.UserError, match=message):
        next(read)


def test_pairs_that_are_none_and_normalized_numbers_are_named(toy, tmp_path):
    class Wrong(toy):
        def pairs(self, split, raw_dir, download_dir):
            return None if split == "train" else [("a", "b")]

        def normalize(self, line, language):
            return len(line)

    registry.problems.register("wrong")(Wrong)
    built = build_problem("wrong")
    for split, message in {
        "train": r"Wrong.pairs\(\) must yield .* train it returned None\.",
        "test": r"Wrong.normalize\(\) must make .*pair 1 .* is \(1, 1\)\.",
    }.items():
        with pytest.raises(errors.UserError, match=message):
            list(built.normalized_pairs(split, None, tmp_path))
