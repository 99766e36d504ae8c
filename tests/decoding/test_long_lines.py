"""Lines longer than a model takes: in pieces, or refused by number."""

import pytest

from t2t_repro.decoding import translate


@pytest.mark.parametrize("return_beams", [False, True])
def test_a_long_input_is_translated_in_pieces(echo, vocabulary, return_beams):
    """Cut at ends of sentences; the scores of pieces add up."""
    sentences = ["birds sing. ", "fish swim! ", "Do dogs? ", "cats sleep"]
    most = max(len(ids) for ids in vocabulary.encode(sentences))
    translator = echo(
        max_input_length=most, return_beams=return_beams, beam_size=3
    )
    pieces, alone = [], echo(return_beams=return_beams, beam_size=3)
    translator._search = _remember(translator._search, pieces)
    line = "".join(sentences)
    found, other = translator.translate([line, "birds"])
    assert found.texts == [line] * (3 if return_beams else 1)
    assert other == next(alone.translate(["birds"]))._replace(
        scores=other.scores
    )
    rows = [vocabulary.decode([ids])[0] for batch in pieces for ids in batch]
    assert sorted(rows) == sorted([*map(str.strip, sentences), "birds"])
    assert translator.refused == {}


def _remember(search, pieces):
    def remembering(kernels, ids, starts):
        pieces.append(ids.numpy())
        return search(kernels, ids, starts)

    return remembering


def test_scores_of_pieces_add_up(translator_of_pieces, vocabulary):
    whole, *parts = translator_of_pieces.translate(
        ["birds sing. fish swim.", "birds sing.", "fish swim."]
    )
    assert whole.texts == [" ".join(part.texts[0] for part in parts)]
    expected = sum(part.scores[0] for part in parts)
    assert whole.scores == [pytest.approx(expected, rel=1e-5)]


@pytest.fixture
def translator_of_pieces(translator_of, vocabulary):
    """Whose model takes one sentence of "birds sing. fish swim." at a time."""
    sentences = ["birds sing.", "fish swim."]
    most = max(len(ids) for ids in vocabulary.encode(sentences))
    return translator_of(max_input_length=most)


def test_a_long_input_is_refused_by_number(echo, vocabulary, monkeypatch):
    """Where the caller asks for it; lines are counted over chunks."""
    monkeypatch.setattr(translate, "SORT_WINDOW", 2)
    translator = echo(max_input_length=10, long_inputs="refuse")
    long = "birds " * 30
    lines = ["birds", "", long, "fish", long]
    found = [one.texts for one in translator.translate(lines)]
    assert found == [["birds"], [""], [""], ["fish"], [""]]
    subwords = len(vocabulary.encode([long])[0])
    assert translator.refused == {3: subwords, 5: subwords}
    (found,) = translator.translate(["birds"])
    assert found.texts == ["birds"]
    assert translator.refused == {}


def test_a_character_of_many_bytes_is_a_piece(echo):
    """Its four bytes are more than such a limit allows."""
    assert len(list(echo(max_input_length=2).translate(["\U0001f984 ok"]))) == 1
