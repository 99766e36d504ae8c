"""Tests of lines that are translated in parts, or refused as too long."""

import pytest

from t2t_repro import hparam
from t2t_repro.decoding import translate, translation
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary_pair import Vocabularies


@pytest.mark.parametrize("return_beams", [False, True])
def test_long_line_is_translated_in_fragments(echo, vocabulary, return_beams):
    """Lines are cut at ends of sentences."""
    sentences = ["birds sing. ", "fish swim! ", "Do dogs? ", "cats sleep"]
    limit = max(len(ids) for ids in vocabulary.encode(sentences))
    translator = echo(
        max_input_length=limit, return_beams=return_beams, beam_size=3
    )
    batches, unlimited = [], echo(return_beams=return_beams, beam_size=3)
    translator._search = _record(translator._search, batches)
    line = "".join(sentences)
    joined, short = translator.translate([line, "birds"])
    assert joined.texts == [line] * (3 if return_beams else 1)
    assert short.texts == next(unlimited.translate(["birds"])).texts
    rows = [vocabulary.decode([ids])[0] for batch in batches for ids in batch]
    assert sorted(rows) == sorted([*map(str.strip, sentences), "birds"])
    assert joined.too_long == short.too_long == 0


def _record(search, batches):
    def recording_search(ids, starts, side):
        batches.append(ids.numpy())
        return search(ids, starts, side)

    return recording_search


def test_long_line_is_refused_by_number(echo, vocabulary, monkeypatch):
    """With long_inputs=refuse; line numbers continue over windows."""
    monkeypatch.setattr(translate, "SORT_WINDOW", 2)
    translator = echo(max_input_length=10, long_inputs="refuse")
    long = "birds " * 30
    lines = ["birds", "", long, "fish", long]
    found = list(translator.translate(lines))
    assert [each.texts for each in found] == [
        *(["birds"], [""], [""], ["fish"], [""])
    ]
    subwords = len(vocabulary.encode([long])[0])
    refused = translation.too_long(found)
    assert refused == {3: subwords, 5: subwords}
    message = translation.refused_message(refused, 10)
    assert f"(2 in all): line 3 ({subwords} subwords), line 5 (" in message


def test_character_longer_than_limit_is_truncated(echo):
    """The character has four subwords, more than the limit."""
    assert len(list(echo(max_input_length=2).translate(["\U0001f984 ok"]))) == 1


def test_sentences_are_translated_one_by_one_and_joined(echo, vocabularies):
    """A sentence that is too long is split again, or refuses its line."""
    echo()  # translations are the sources

    def translator(**settings):
        hparams = hparam.DecodeHParams(
            beam_size=1, batch_tokens=1, max_input_length=9, **settings
        )
        return translate.BatchTranslator(
            [], vocabularies, hparams, split=lambda line: line.split("|")
        )

    long = " ".join(["birds"] * 9)
    lines = ["birds|fish", "", "|", f"fish|{long}|cats", "cats"]
    expected = ["birds fish", "", "", f"fish {long} cats", "cats"]
    found = list(translator().translate(lines))
    assert [each.text for each in found] == expected
    # Each sentence is a batch by itself, whose size is its score.
    birds, fish = translator().translate(["birds", "fish"])
    assert found[0].scores == [birds.scores[0] + fish.scores[0]]
    strict = translator(long_inputs="refuse")
    found = list(strict.translate(lines))
    assert [each.text for each in found] == ["birds fish", "", "", "", "cats"]
    assert list(translation.too_long(found)) == [4]


def test_each_fragment_begins_with_the_tag_of_the_line(echo):
    sentences = ["birds sing.", "fish swim.", "cats sleep."]
    tagged = Bpe.learn(sentences * 9, 300, tags=["<2de>"])
    echo()  # translations are the sources
    limit = max(map(len, tagged.encode([f"<2de> {s}" for s in sentences])))
    translator = translate.BatchTranslator(
        [],
        Vocabularies.shared(tagged),
        hparam.DecodeHParams(max_input_length=limit),
    )
    line = " ".join(sentences)
    (found,) = translator.translate([f"<2de> {line}"])
    assert found.text == " ".join(f"<2de> {s}" for s in sentences)
    # Another tag is text.
    (found,) = translator.translate([f"<2fr> {line}"])
    assert found.text.count("fr") == 1
    # SentencePiece reads a zero-width space as a space.
    for blank in ("<2de>", "<2de> \u200b", "\u200b"):
        (found,) = translator.translate([blank])
        assert (found.text, found.scores) == ("", [0.0])
