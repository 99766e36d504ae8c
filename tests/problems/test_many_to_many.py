"""Many-to-many problems: directions, tags, mixing, and the text they read."""

import collections
import importlib
import itertools

import pytest

from t2t_repro import errors, prepare
from t2t_repro.data import manifest
from t2t_repro.problem import build_problem
from t2t_repro.text import weighted_corpora

many_to_many = importlib.import_module("t2t_repro.problems.many_to_many")

WORDS = "abcdefghij"
SIZES = {"en-de": 20, "fr-en": 5}  # training pairs


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A folder with text of en-de and of fr-en, and aligned text for tests.

    Line n of a language is its name and the letters of n.
    """
    folder = tmp_path_factory.mktemp("raw")

    def write(name, language, count):
        lines = (
            f"{language} {' '.join(WORDS[int(digit)] for digit in str(n))}\n"
            for n in range(count)
        )
        (folder / f"{name}.{language}").write_text("".join(lines))

    for pair, size in SIZES.items():
        for language in pair.split("-"):
            write(f"train.{pair}", language, size)
    for language in ("en", "de", "fr"):
        write("validation", language, 2)
        write("test", language, 3)
    return folder


def build(directions="en-de:de-en:en-fr", **arguments):
    return build_problem(
        "parallel_text_many",
        {"name": "mine", "directions": directions, "vocab_size": 280}
        | arguments,
    )


def read(problem, split, raw):
    return list(problem.pairs(split, raw, "unused"))


def test_directions_follow_each_other_with_tags(raw):
    pairs = read(build(), "validation", raw)
    assert pairs == [
        ("<2de> en a", "de a"),
        ("<2de> en b", "de b"),
        ("<2en> de a", "en a"),
        ("<2en> de b", "en b"),
        ("<2fr> en a", "fr a"),
        ("<2fr> en b", "fr b"),
    ]


def test_files_of_a_pair_serve_both_directions(raw):
    pairs = read(build("en-de:de-en:en-fr:fr-en"), "train", raw)
    assert pairs[0] == ("<2de> en a", "de a")
    assert pairs[20] == ("<2en> de a", "en a")
    assert pairs[40] == ("<2fr> en a", "fr a")
    assert pairs[45] == ("<2en> fr a", "en a")
    assert len(pairs) == 50


@pytest.mark.parametrize(
    ("temperature", "taken"), [(1, [20, 20, 5]), (2, [20, 20, 10])]
)
def test_temperature_repeats_pairs_of_small_directions(raw, temperature, taken):
    problem = build(temperature=temperature)
    pairs = read(problem, "train", raw)
    counts = problem.count_directions("train", raw, "unused")
    assert list(counts.values()) == taken
    assert len(pairs) == sum(taken)
    french = collections.Counter(
        pair for pair in pairs if pair[0].startswith("<2fr>")
    )
    assert set(french.values()) == {taken[2] // 5} and len(french) == 5
    # Only training text is mixed.
    assert problem.count_directions("test", raw, "") == {
        "en-de": 3,
        "de-en": 3,
        "en-fr": 3,
    }


def test_vocabulary_is_learned_from_each_line_once(raw):
    lines = list(build().vocabulary_lines(raw, "unused"))
    languages = collections.Counter(line.split()[0] for line in lines)
    assert languages == {"en": 20 + 5, "de": 20, "fr": 5}
    assert not any("<2" in line for line in lines)


def test_blank_source_has_no_tag_so_that_its_pair_is_dropped(tmp_path):
    (tmp_path / "train.en").write_text("a\n \n")
    (tmp_path / "train.de").write_text("b\nc\n")
    pairs = read(build("en-de"), "train", tmp_path)
    assert pairs == [("<2de> a", "b"), (" ", "c")]


def test_zero_shot_directions_are_a_split_of_the_test_text(raw):
    problem = build(zero_shot="de-fr")
    assert problem.splits == ("train", "validation", "test", "zero_shot")
    assert read(problem, "zero_shot", raw)[0] == ("<2fr> de a", "fr a")
    assert build().splits == ("train", "validation", "test")


def test_direction_determines_languages_and_tags():
    problem = build()
    assert (problem.source_language, problem.target_language) == ("", "")
    chosen = problem.toward("de", "en")
    assert problem.toward("en-de").tag == chosen.tag == "<2de>"
    assert (chosen.source_language, chosen.target_language) == ("en", "de")
    assert chosen.suite.language == "de"
    assert chosen.normalizers[0]("a") == "<2de> a"
    assert problem.target_language == ""  # unchanged
    with pytest.raises(errors.UserError, match="language of the target"):
        problem.normalizers[0]("a")
    for languages in (("fr", "de"), ("it", "")):
        with pytest.raises(errors.UserError, match="no direction with.*en-fr"):
            problem.toward(*languages)
    with pytest.raises(errors.UserError, match="got 'fr', and 'en' in en-de"):
        problem.toward("en-de", "fr")
    # One language may determine the other.
    both = build("en-de:de-en:en-fr", zero_shot="de-fr")
    assert both.toward("fr").source_language == ""  # en or de
    assert both.toward("en").source_language == "de"
    assert build("en-de:de-en").toward("", "en").target_language == "de"
    # The only target language needs no choice.
    assert build("en-de:fr-de").normalizers[0]("a") == "<2de> a"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"directions": "en"}, "directions must be.*got 'en'"),
        ({"directions": "en-de:en-de"}, "different directions.*'en-de'"),
        ({"directions": "en-en"}, "different directions"),
        ({"directions": ":"}, "must name at least one direction"),
        ({"zero_shot": "en-de"}, "in directions and in zero_shot"),
        ({"zero_shot": "fr-de"}, "needs training from fr and into de"),
        ({"zero_shot": "de-it"}, "needs training from de and into it"),
        ({"temperature": 0.5}, "at least 1"),
        ({"vocabulary_type": "whitespace_tokens"}, "bpe, unigram or char"),
        ({"separate_vocabularies": True}, "share a vocabulary"),
        ({"name": "a/b"}, "name must consist of letters"),
    ],
)
def test_wrong_arguments_are_user_errors(arguments, message):
    with pytest.raises(errors.UserError, match=message):
        build(**arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("parallel_text_many", {"directions": "en-de"}),
        ("parallel_text_multilingual", {"languages": "en:de"}),  # imported
    ],
)
def test_filters_are_refused_when_data_are_generated(name, arguments):
    """Sources have tags, which filters would take for text. Runs open."""
    arguments = arguments | {"name": "mine", "filters": "different"}
    problem = build_problem(name, arguments)
    with pytest.raises(errors.UserError, match="Filters are for pairs of two"):
        _ = problem.pair_filters


def test_normalize_of_a_subclass_is_refused():
    class Lower(many_to_many.ManyToMany):
        """Text in lower case."""

        directions = "en-de"
        vocab_size = 300

        def normalize(self, line, language):
            return line.lower()

    with pytest.raises(errors.UserError, match="Lower is many-to-many"):
        Lower()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no text of en-de: none of train.en-de.en, train.de-en.en"),
        ({"train.en-de.en": "a\n"}, "neither train.en-de.de"),
        ({"train.en-de.de": "a\n", "train.en": ""}, "neither train.en-de.en"),
        ({"train.en": "", "train.de": ""}, "en-de has no text in the split"),
        (
            {"train.en": "a\n\n", "train.de": " \nb\n"},
            "en-de has no text in the split",
        ),
    ],
)
def test_missing_text_is_user_error(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(errors.UserError, match=message):
        read(build("en-de"), "train", tmp_path)


def test_multi30k_shares_the_files_of_its_pairs():
    many = build_problem("multi30k_many")
    pair = build_problem("multi30k_defr").raw_files("test")
    assert tuple(many.raw_file("test", code) for code in ("de", "fr")) == pair
    names = [source["name"] for source in many.sources("validation")]
    assert names == ["val.en", "val.de", "val.fr"]
    assert [file.name for file in many.raw_files("validation")] == names
    assert many.data_page and many.data_citation


@pytest.fixture(scope="module")
def prepared(raw, tmp_path_factory):
    problem = build("en-de:de-en:en-fr", temperature=2, zero_shot="de-fr")
    data_dir = tmp_path_factory.mktemp("data")
    return problem, prepare.prepare(problem, data_dir, raw)


def test_data_has_counts_of_directions_and_a_tag_in_each_source(prepared):
    problem, folder = prepared
    assert folder.name == "parallel_text_many_mine"
    assert "train.en-de.de" in manifest.require(folder)["raw_bytes"]
    counts = weighted_corpora.mixed_counts([20, 20, 5], 2)
    names = ["en-de", "de-en", "en-fr"]
    expected = dict(zip(names, counts, strict=True))
    assert manifest.directions(folder, "train") == expected
    assert manifest.directions(folder, "zero_shot") == {"de-fr": 3}
    vocabulary = manifest.open_vocabularies(folder).source
    assert vocabulary.size == 280
    for split in problem.splits:
        corpus = manifest.open_corpus(folder, split)
        assert len(corpus) == sum(manifest.directions(folder, split).values())
        firsts = [ids[0] for ids in corpus.sentences("inputs")]
        assert set(vocabulary.pieces(firsts)) <= {"▁<2de>", "▁<2en>", "▁<2fr>"}
        targets = itertools.chain(*corpus.sentences("targets"))
        assert not set(firsts) & set(targets)
    assert "read: en-de 20, de-en 20, en-fr 10" in prepare.summary(
        manifest.read(folder)
    )


def test_existing_vocabulary_needs_the_tags(prepared, raw, tmp_path):
    _, folder = prepared
    given = {"vocabulary": str(folder / "vocab.model")}
    fewer = build("en-de:de-en", **given)
    prepare.prepare(fewer, tmp_path / "fewer", raw)
    other = build("en-de:de-it", **given)
    for language in ("de", "it"):
        for split in ("train", "validation", "test"):
            path = tmp_path / f"{split}.{language}"
            path.write_text("a\n")
            (tmp_path / f"{split}.en").write_text("a\n")
    with pytest.raises(errors.UserError, match="it lacks <2it>"):
        prepare.prepare(other, tmp_path / "other", tmp_path)
