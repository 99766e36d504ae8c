"""Tags of target languages at the beginning of sources."""

import pytest

from t2t_repro import errors
from t2t_repro.text import languages
from t2t_repro.text.languages import Tagger

LANGUAGES = ("de", "fr")


@pytest.mark.parametrize(
    ("line", "tag", "text"),
    [
        ("<2de> A dog", "<2de>", "A dog"),
        ("  <2pt_BR>\tA <2de> b ", "<2pt_BR>", "A <2de> b "),
        ("<2de>", "<2de>", ""),
        ("<2de>A", "", "<2de>A"),
        ("<2> a", "", "<2> a"),
        ("A <2de> b", "", "A <2de> b"),
        ("", "", ""),
    ],
)
def test_split_separates_a_tag_at_the_beginning(line, tag, text):
    assert languages.split_tag(line) == (tag, text)
    joined = languages.join_tag(tag, text)
    assert languages.split_tag(joined) == (tag, text)
    assert languages.without_tag(line) == text
    assert languages.without_tag(f"<eng_Latn2de> {text}") == text.lstrip()


@pytest.mark.parametrize(
    ("line", "tag", "text"),
    [
        (" >>fra<<  A dog ", ">>fra<<", "A dog "),
        (">>fra<<", ">>fra<<", ""),
        (">>fra<<A", "", ">>fra<<A"),
        (">>deu<< A", "", ">>deu<< A"),
        (" ", "", " "),
    ],
)
def test_split_known_separates_known_tags_only(line, tag, text):
    assert languages.split_known_tag(line, {">>fra<<"}) == (tag, text)


def test_tagger_adds_its_tag_to_lines_without_one():
    tagger = Tagger(LANGUAGES, "de")
    lines = ["A dog", "<2nd> place", " <2fr>  A dog", "<2fr> ", "", " \t"]
    assert list(map(tagger, lines)) == [
        "<2de> A dog",
        "<2de> <2nd> place",  # an unknown tag is text
        "<2fr> A dog",
        "",
        "",
        " \t",
    ]


@pytest.mark.parametrize(
    ("language", "line"), [("", "A dog"), ("", "<2it> A"), ("it", "A dog")]
)
def test_tagger_refuses_a_line_without_a_known_tag(language, line):
    message = "target must be one .* has de, fr"
    with pytest.raises(errors.UserError, match=message):
        Tagger(LANGUAGES, language)(line)
