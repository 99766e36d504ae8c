"""Tests of translation of lines, with an echo and with a model.

Lines may be too long, and have side inputs, which search rules read.
"""

import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from t2t_repro import errors, hparam
from t2t_repro.decoding import score, translate
from t2t_repro.decoding.translation import (
    OUTPUT_FORMATS,
    Stopped,
    Translation,
    refused_message,
    too_long,
)
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import EOS
from t2t_repro.text.vocabulary_pair import Vocabularies

LINES = [
    "two birds sing",
    "",
    "the cat sat on the mat",
    "   ",
    "a dog ran in the park today and the cat sat on the mat",
    "birds",
    "a dog sat",
]
BLANK = [1, 3]

examples = hypothesis.settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def translator(translator_of):
    return translator_of(return_beams=True)


def texts(translations):
    return [translation.texts[0] for translation in translations]


@hypothesis.given(
    lengths=st.lists(st.integers(1, 50), max_size=40),
    max_tokens=st.integers(0, 200),
    data=st.data(),
)
def test_length_sorted_yields_each_index_once(lengths, max_tokens, data):
    every = range(len(lengths))
    omitted = data.draw(st.sets(st.sampled_from(every))) if lengths else ()
    indices = [i for i in every if i not in omitted]
    batches = list(score.length_sorted(indices, lengths, max_tokens))
    flat = list(itertools.chain(*batches))
    assert sorted(flat) == indices
    sizes = [lengths[i] for i in flat]
    assert sizes == sorted(sizes, reverse=True)
    for batch, following in itertools.zip_longest(batches, batches[1:]):
        longest = lengths[batch[0]]
        assert len(batch) == 1 or len(batch) * longest <= max_tokens
        # Another row would exceed the limit.
        assert following is None or (len(batch) + 1) * longest > max_tokens


@examples
@hypothesis.given(
    order=st.permutations(LINES * 2),
    batch_tokens=st.sampled_from([1, 40, 8192]),
)
def test_order_is_kept_and_blank_lines_stay_blank(echo, order, batch_tokens):
    found = echo(batch_tokens=batch_tokens).translate(order)
    assert texts(found) == [line.strip() for line in order]


@pytest.mark.parametrize("return_beams, width", [(False, 1), (True, 3)])
def test_blank_lines_have_same_number_of_outputs(echo, return_beams, width):
    translator = echo(beam_size=3, return_beams=return_beams)
    found = list(translator.translate(LINES))
    for i, (line, translation) in enumerate(zip(LINES, found, strict=True)):
        assert translation.texts == [line.strip()] * width
        assert len(translation.scores) == width
        assert (translation.scores == [0.0] * width) == (i in BLANK)


def test_empty_lines_are_decoded_where_the_search_allows_it(echo):
    found = list(echo(beam_size=3, allow_empty_source=True).translate(LINES))
    assert texts(found) == [line.strip() for line in LINES]
    assert all(translation.scores[0] > 0 for translation in found)


@pytest.mark.parametrize("batch_tokens", [1, 30, 60, 8192])
def test_batches_keep_batch_tokens(echo, vocabulary, batch_tokens):
    translator = echo(beam_size=3, batch_tokens=batch_tokens)
    lengths = list(map(len, vocabulary.encode(LINES)))
    found = list(translator.translate(LINES))
    sizes = [int(translation.scores[0]) for translation in found]
    for i, length in enumerate(lengths):
        if i not in BLANK:
            assert sizes[i] <= batch_tokens or sizes[i] == 3 * length
    if batch_tokens == 8192:  # a single batch
        assert max(sizes) == 3 * max(lengths) * (len(LINES) - len(BLANK))


def test_lines_are_consumed_lazily(echo, monkeypatch):
    monkeypatch.setattr(translate, "SORT_WINDOW", 3)
    read = []

    def lines():
        for line in LINES:
            read.append(line)
            yield line

    found = echo().translate(lines())
    assert read == []
    first = next(found)
    assert read == LINES[:3]
    rest = list(found)
    assert read == LINES
    assert texts([first, *rest]) == [line.strip() for line in LINES]


def test_constants_for_one_sentence_change_no_output(
    model, vocabularies, translator_of
):
    lines = ["two birds sing", "the cat sat on the mat", "birds"]
    translator = translate.BatchTranslator(
        [model],
        vocabularies,
        hparam.DecodeHParams(beam_size=2, extra_length=4),
        one_sentence=True,
    )
    expected = list(translator_of().translate(lines))
    for line, others in zip(lines, expected, strict=True):
        (result,) = translator.translate([line])
        assert result.texts == others.texts
        assert result.scores == pytest.approx(others.scores, rel=1e-4)


PAIRS = list(zip(LINES, LINES[3:] + LINES[:3], strict=True))


def totals(translator, pairs):
    return [score_.total for score_ in translator.score(pairs)]


def test_score_has_log_probs_of_subwords(translator, translator_of, vocabulary):
    sources, references = zip(*PAIRS, strict=True)
    sums = translator.log_probs(sources, references)
    for target, found, (total, count) in zip(
        references, translator.score(PAIRS), sums, strict=True
    ):
        (ids,) = vocabulary.encode([target])
        assert found.pieces == vocabulary.pieces(ids)
        assert len(found.log_probs) == len(ids) and max(found.log_probs) < 0
        assert found.total == pytest.approx(sum(found.log_probs), rel=1e-5)
        assert (total, count) == (found.total, len(ids))
    with pytest.raises(errors.UserError, match="Reference 2 has .*more than"):
        translator_of(max_input_length=4).log_probs(["", ""], ["a", LINES[4]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text", "ä b\tc"),
        ("tsv", "3\t1\t-1.234568\tä b\n3\t2\t-2.000000\tc"),
        (
            "jsonl",
            '{"sentence": 3, "source": "x", "translations": '
            r'[{"text": "ä\tb", "score": -1.234568}, '
            '{"text": "c", "score": -2.0}]}',
        ),
    ],
)
def test_format_has_all_outputs_of_a_line(name, expected):
    found = Translation(["ä\tb", "c"], [-1.23456789, -2.0])
    assert OUTPUT_FORMATS[name](3, "x", found) == expected


def test_prefix_of_the_maximum_length_has_one_output(translator_of):
    """The second line is split: its second part has no prefix."""
    translator = translator_of(
        return_beams=True, extra_length=0, max_input_length=16
    )
    lines = ["birds", "the cat sat on the mat. a dog ran in the park."]
    prefix = "a dog ran in the park today and the cat sat on the mat today"
    for found in translator.translate(lines, prefixes=[prefix] * 2):
        assert len(found.texts) == len(found.scores) == 1
        assert -1e8 < found.scores[0] < 0
        assert found.text.startswith("a dog ran in")


def test_scores_are_in_order_and_independent_of_batches(
    translator, translator_of, monkeypatch
):
    expected = [totals(translator, [pair])[0] for pair in PAIRS]
    assert totals(translator, PAIRS) == pytest.approx(expected, rel=1e-4)
    small = translator_of(batch_tokens=40)
    shapes, real = [], small._score
    monkeypatch.setattr(
        small, "_score", lambda *ids: shapes.append(ids[1].shape) or real(*ids)
    )
    assert totals(small, PAIRS) == pytest.approx(expected, rel=1e-4)
    assert len(shapes) > 1
    assert all(rows * length <= 40 for rows, length in shapes)


@pytest.mark.parametrize("limit", [5, 200])
def test_score_is_of_truncated_target_given_truncated_inputs(
    model, vocabulary, translator_of, limit
):
    lines = [LINES[2], LINES[4]]
    cat, dog = (
        row if len(row) <= limit else row[: limit - 1] + [EOS]
        for row in vocabulary.encode(lines)
    )
    found = totals(translator_of(max_input_length=limit), [lines, lines[::-1]])
    expected = [
        score.subword_log_probs([model], *map(score.pad_rows, pair))
        .numpy()
        .sum()
        for pair in (([cat], [dog]), ([dog], [cat]))
    ]
    assert found == pytest.approx(expected, rel=1e-4)


def test_stopped_translation_has_the_lines_that_are_finished(echo, monkeypatch):
    monkeypatch.setattr(translate, "SORT_WINDOW", 4)
    # A batch is a line: two of the first four, and one of the others.
    stops = iter([False, False, False, True])
    translations = echo(batch_tokens=1).translate(
        LINES, stop=lambda: next(stops)
    )
    found = [next(translations) for _ in range(4)]
    assert texts(found) == [line.strip() for line in LINES[:4]]
    with pytest.raises(Stopped) as stopped:
        next(translations)
    longest, *others = stopped.value.translations
    assert longest.text == LINES[4] and others == [None, None]


@pytest.mark.parametrize("return_beams", [False, True])
def test_long_line_is_translated_in_fragments(echo, vocabulary, return_beams):
    """Lines are cut at ends of sentences."""
    sentences = ["birds sing. ", "fish swim! ", "Do dogs? ", "cats sleep"]
    limit = max(len(ids) for ids in vocabulary.encode(sentences))
    translator = echo(
        max_input_length=limit, return_beams=return_beams, beam_size=3
    )
    batches, unlimited = [], echo(return_beams=return_beams, beam_size=3)
    real = translator._search
    translator._search = lambda ids, *others: (
        batches.append(ids.numpy()) or real(ids, *others)
    )
    line = "".join(sentences)
    joined, short = translator.translate([line, "birds"])
    assert joined.texts == [line] * (3 if return_beams else 1)
    assert short.texts == next(unlimited.translate(["birds"])).texts
    rows = [vocabulary.decode([ids])[0] for batch in batches for ids in batch]
    assert sorted(rows) == sorted([*map(str.strip, sentences), "birds"])
    assert joined.too_long == short.too_long == 0


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
    refused = too_long(found)
    assert refused == {3: subwords, 5: subwords}
    message = refused_message(refused, 10)
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
    assert list(too_long(found)) == [4]


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


SIDE_LINES = [*LINES[:3], *LINES[5:]]
SIDE = ["a dog\tthe cat", "the", "a\ton", "birds\tsing\t", "\tdog"]


def test_phrases_stay_beside_their_sentences(say, translator_of):
    """The second one of a line, if it has one; in batches by length."""
    translator = translator_of(
        rules="say:field=1",
        return_beams=True,
        batch_tokens=60,
        max_input_length=40,
    )
    lines, side = [*SIDE_LINES, "birds " * 40], [*SIDE, "birds\tbirds"]
    *found, long = translator.translate(lines, side=side)
    for each, text in zip(found, SIDE, strict=True):
        phrase = f"{text}\t".split("\t")[1]
        assert each.text == phrase if phrase else len(each.texts) == 2
    assert long.text == "" and long.too_long > 40


def test_side_inputs_are_given_exactly_if_a_rule_reads_them(say, translator_of):
    reading = translator_of(rules="say")
    with pytest.raises(errors.UserError, match="none: Say. Give --decode_si"):
        reading.translate(SIDE_LINES)
    with pytest.raises(errors.UserError, match="need a side input"):
        reading.attention("birds")
    with pytest.raises(errors.UserError, match="no search rule reads them"):
        translator_of().translate(SIDE_LINES, side=SIDE)
