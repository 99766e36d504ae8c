"""The registered problems, without a network."""

import importlib

import pytest

from t2t_repro import errors
from t2t_repro.problem import SPLITS, build_problem

# problems/ is not below t2t_repro/: ruff would take an import for third-party.
number_words = importlib.import_module("t2t_repro.problems.number_words")


@pytest.mark.parametrize(
    ("number", "form", "language", "words"),
    [
        (421, "cardinal", "de", "vierhunderteinundzwanzig"),
        (105, "cardinal", "en", "one hundred five"),
        (12_345, "cardinal", "en")
        + ("twelve thousand three hundred forty-five",),
        (1_999, "year", "en", "nineteen ninety-nine"),
        (21, "ordinal", "en", "twenty-first"),
        (1, "ordinal", "fr", "premier"),
    ],
)
def test_spell_writes_number_in_words(number, form, language, words):
    assert number_words.spell(number, form, language) == words


def test_number_words_are_written_once_and_aligned(monkeypatch, tmp_path):
    sizes = {"train": 30, "validation": 4, "test": 6}
    monkeypatch.setattr(number_words, "SPLIT_SIZES", sizes)
    monkeypatch.setattr(number_words, "_CHUNK", 20)
    monkeypatch.setattr(number_words, "LARGEST", 9_999)
    name = "number_words_enfr"
    built = build_problem(name)
    for split in SPLITS:
        pairs = list(built.pairs(split, None, tmp_path))
        expected = [
            tuple(
                number_words.spell(number, form, language)
                for language in built.stored_languages
            )
            for number in number_words.numbers(split)
            for form in number_words.forms(number)
        ]
        assert pairs == expected
        assert len(pairs) >= number_words.SPLIT_SIZES[split]
    written = sorted((tmp_path / name).iterdir())
    assert [path.name for path in written] == sorted(
        f"{split}.{language}"
        for split in SPLITS
        for language in built.stored_languages
    )
    path = tmp_path / name / "test.en"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("".join(f"my {line}\n" for line in lines), "utf-8")
    again = [inputs for inputs, _ in built.pairs("test", None, tmp_path)]
    assert again == [f"my {line}" for line in lines]


def test_parallel_text_follows_its_arguments():
    built = build_problem(
        "parallel_text", "name=my.data,languages=en-zh,vocab_size=500"
    )
    assert built.stored_languages == ("en", "zh")
    assert built.vocab_size == 500
    assert built.data_name == "parallel_text_my.data_enzh"
    names = [file.name for file in built.raw_files("validation")]
    assert names == ["validation.en", "validation.zh"]
    assert build_problem("parallel_text", "name=a,languages=en-de") == (
        build_problem("parallel_text", "name=a,languages=en-de,vocab_size=8000")
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("name=a/b,languages=en-de", "name must consist of letters.*'a/b'"),
        ("name=,languages=en-de", "with name=…, a name .* or with file=…"),
        ("name=a,languages=ende", "languages must be.*en-de; got 'ende'"),
        ("name=a,languages=en-../x", "languages must be.*got 'en-../x'"),
        ("name=a,languages=-de", "languages must be.*got '-de'"),
        ("languages=en-en,file=a.tsv", "must differ; got 'en-en'"),
        ("languages=en-de,file=a.tsv,columns=1:1", "columns .*got '1:1'"),
        ("languages=en-de,file=-", "file=-, needs a name"),
        ("languages=en-de,file=a.txt", "format of .*a.txt must be tsv.*'txt'"),
        (
            "languages=en-de,file=a.tsv,columns=1",
            "columns must be two names.*'",
        ),
        ("languages=en-de,file=a.tsv,corpora=b", "tsv has the text of all spl"),
        ("languages=en-de,name=a,held_out=5", "describe one file with both si"),
    ],
)
def test_wrong_arguments_of_parallel_text_are_refused(arguments, message):
    with pytest.raises(errors.UserError, match=message):
        build_problem("parallel_text", arguments)


def test_parallel_text_trains_on_corpora_and_tests_on_files(tmp_path):
    for stem in ("a", "b", "test"):
        for language in ("en", "de"):
            (tmp_path / f"{stem}.{language}").write_text(f"{stem} {language}\n")
    arguments = "name=mixed,languages=en-de,corpora=b=2:a"
    built = build_problem("parallel_text", arguments)
    a, b, test = ((f"{stem} en", f"{stem} de") for stem in ("a", "b", "test"))
    assert list(built.pairs("train", tmp_path, "unused")) == [b, b, a]
    assert list(built.pairs("test", tmp_path, "unused")) == [test]
    with pytest.raises(errors.UserError, match="unique would drop the copies"):
        build_problem("parallel_text", f"{arguments},filters=unique")
