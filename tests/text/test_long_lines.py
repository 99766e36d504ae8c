"""Splitting of long lines and of sentences, which loses no character."""

import pytest

from t2t_repro.text import languages, long_lines


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        ("It fits.", 8, ["It fits."]),
        ("One. Two. Three.", 9, ["One. Two.", "Three."]),
        ('He said "No." She left.', 16, ['He said "No."', "She left."]),
        ("Ends here?! Yes… Ok", 11, ["Ends here?!", "Yes… Ok"]),
        ("好。很好。不好。", 5, ["好。很好。", "不好。"]),
        # 3.5 does not end a sentence.
        ("It is 3.5 m. So.", 12, ["It is 3.5 m.", "So."]),
        # A sentence that is too long is split at clauses, then at words. Its
        # rest is not joined with the next sentence.
        ("a b, c d; e f. G.", 9, ["a b, c d;", "e f.", "G."]),
        ("aa bb cc dd", 5, ["aa bb", "cc dd"]),
        ("aaaabbbb cc", 4, ["aaaa", "bbbb", "cc"]),
        ("  ", 1, []),
    ],
)
def test_split_prefers_sentences_to_clauses_to_words(text, length, expected):
    found = long_lines.split(text, lambda fragment: len(fragment) <= length)
    assert found == expected


@pytest.mark.parametrize("language", ["de", "de_DE", "deu_Latn"])
def test_line_is_split_into_sentences_without_loss(language):
    pytest.importorskip("sentencex")
    split = long_lines.sentence_splitter(language)
    line = " Es war z. B. am 3. Mai so.  Dr. Maier kam! Ende"
    parts = ["Es war z. B. am 3. Mai so.", "Dr. Maier kam!", "Ende"]
    assert split(line) == parts
    assert split("") == split(" \t") == []
    split = long_lines.sentence_splitter("xx")
    assert split("Sing now. Fly.") == ["Sing now.", "Fly."]


@pytest.mark.parametrize("tag", ["<2de>", "<2nd>"])
def test_sentence_that_begins_like_a_tag_gets_the_tag_of_its_line(tag):
    pytest.importorskip("sentencex")
    tagger = languages.Tagger(("de", "fr"), "fr")
    split = long_lines.sentence_splitter(
        "en", tagger, languages.split_tag, True
    )
    assert split(f"Good morning. {tag} is a tag.") == [
        "<2fr> Good morning.",
        f"<2fr> {tag} is a tag.",
    ]
    assert split("<2de> One. Two.") == ["<2de> One.", "<2de> Two."]
    assert split("") == []


def test_sentences_get_the_tag_of_their_line():
    pytest.importorskip("sentencex")
    split = long_lines.sentence_splitter(
        "en",
        str.lower,
        lambda line: languages.split_known_tag(line, {">>fra<<"}),
    )
    assert split(">>fra<< One. Two.") == [">>fra<< one.", ">>fra<< two."]
    assert split(">>deu<< One. Two.") == [">>deu<< one.", "two."]


def test_message_names_the_first_long_lines():
    message = long_lines.message({"a.en line 3": 1_200}, 1)
    assert "truncated (1 in all): a.en line 3 (1,200 bytes). Split" in message
    assert "3 (1,200 bytes), …. " in long_lines.message({"line 3": 1_200}, 2)
    message = long_lines.message({"line 3": 1_200}, 1, 1_024)
    assert "(1 in all): line 3 (1,200 subwords). All" in message
