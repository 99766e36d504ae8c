"""Tags of target languages in requests and in the texts of clients."""

import itertools

import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.server import batching, request_errors
from t2t_repro.serving import client, graph_vocabularies
from t2t_repro.text import languages

CARD = {"data": {"target_languages": ["de", "fr"]}}


def test_source_gets_the_languages_of_the_request_or_of_the_model():
    languages = ["eng_Latn", "deu_Latn"]
    data = {"target_languages": languages, "source_languages": languages}
    card = {"data": data | {"source_language": "eng_Latn"}}
    inputs = {
        "inputs": ["é".encode(), "é".encode(), b"<2deu_Latn> a", b""],
        "source_language": [b"deu_Latn", b"", b"", b""],
        "target_language": [b"eng_Latn", b"deu_Latn", b"", b""],
    }
    assert batching.with_tags(inputs, card)["inputs"] == [
        "<deu_Latn2eng_Latn> é".encode(),
        "<eng_Latn2deu_Latn> é".encode(),
        b"<eng_Latn2deu_Latn> a",
        b"",
    ]


def test_source_without_a_known_tag_is_refused_with_its_number():
    inputs = {"inputs": [b"<2de> a", b"", b"a"], "targets": [b"b"] * 3}
    with pytest.raises(request_errors.RequestError) as raised:
        batching.with_tags(inputs, CARD)
    assert raised.value.status == 400
    message = "inputs[2]: The language of the target must be one"
    assert message in raised.value.message
    assert "The model has de, fr" in raised.value.message


LINES = ["A dog", "<2de> A dog", " <2fr>\tA dog ", "<en2de> A\ndog"]
LINES += ["<en2xx> A dog", "<2xx> A dog", "<2nd> place", "<2de>", "<en2de>\t"]
LINES += [" \t", "", "<2de>A", "A <2de> dog"]
LINES += ["\u3000<2fr>\xa0A\u2028<2de>\x0b\x1c\x85", "\x1f\u2009"]


@pytest.mark.parametrize("source_languages", [[], ["en", "de", "fr"]])
def test_graph_adds_and_refuses_the_tags_of_the_tagger(source_languages):
    """With any languages of the request and of the model."""
    data = {
        "target_languages": ["en", "de", "fr"],
        "source_languages": source_languages,
    }
    for own, *asked in itertools.product(
        ("", "fr"), ("", "de", "xx"), ("", "xx")
    ):
        data |= {"target_language": own, "source_language": own}
        tagger = languages.tagger_of(data, *asked)
        graph = graph_vocabularies.GraphTagger(languages.tagger_of(data))

        def in_graph(lines, graph=graph, asked=asked):
            codes = zip(asked, graph.names, strict=False)
            rows = (tf.fill([len(lines)], code) for code, _ in codes)
            return [x.decode().strip() for x in graph(lines, *rows).numpy()]

        expected = {}
        for line in LINES:
            try:
                expected[line] = tagger(line).strip()
            except errors.UserError:
                with pytest.raises(tf.errors.InvalidArgumentError) as raised:
                    in_graph([line])
                assert "one that the model knows; got" in str(raised.value)
        assert in_graph([*expected]) == [*expected.values()]
        if asked[0] == "de" and not source_languages:
            assert in_graph([b"A\xff"])[0].endswith("de> A\ufffd")


def local(card):
    """Return an exported model with a card, without a graph."""
    found = object.__new__(client.ExportedModel)
    found.folder, found._card = "export/1", card
    return found


def test_exported_model_adds_and_checks_tags():
    many = local(CARD)
    assert many.add_tags(["a", "<2fr> b"], "de") == ["<2de> a", "<2fr> b"]
    for language in ("", "it"):
        with pytest.raises(errors.UserError, match="model has de, fr"):
            many.add_tags(["a"], language)


def test_exported_model_of_one_direction_compares_languages():
    single = local({"data": {"target_language": "de"}})
    assert single.add_tags(["a"], "") == single.add_tags(["a"], "de") == ["a"]
    with pytest.raises(errors.UserError, match="into de; got target_language"):
        single.add_tags(["a"], "fr")


def test_remote_model_adds_any_tag_and_leaves_the_check_to_the_server():
    remote = client.connect("http://127.0.0.1:1")
    lines = ["a", "<en2fr> b", "<2fr> c"]
    assert remote.add_tags(lines, "it") == ["<2it> a", *lines[1:]]
    assert remote.add_tags(["a"], "") == ["a"]
