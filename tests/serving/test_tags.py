"""Tags of target languages in requests and in the texts of clients."""

import pytest

from t2t_repro import errors
from t2t_repro.server import batching, request_errors
from t2t_repro.serving import client

CARD = {"data": {"target_languages": ["de", "fr"]}}


def test_source_without_a_known_tag_is_refused_with_its_number():
    inputs = {"inputs": [b"<2de> a", b"", b"a"], "targets": [b"b"] * 3}
    with pytest.raises(request_errors.RequestError) as raised:
        batching.check_tags(inputs, CARD)
    assert raised.value.status == 400
    assert "inputs[2] must begin with the tag" in raised.value.message
    assert "<2de>, <2fr>" in raised.value.message
    inputs["inputs"][2] = "<2fr> é".encode()
    batching.check_tags(inputs, CARD)


@pytest.mark.parametrize("card", [{}, {"data": {"target_language": "de"}}])
def test_model_of_one_direction_takes_any_source(card):
    batching.check_tags({"inputs": [b"a"]}, card)


@pytest.fixture
def local():
    """Return a function of a model card: its model, without a graph."""

    def build(card):
        found = object.__new__(client.ExportedModel)
        found.folder, found._card = "export/1", card
        return found

    return build


def test_exported_model_adds_and_checks_tags(local):
    many = local(CARD)
    assert many.add_tags(["a", "<2fr> b"], "de") == ["<2de> a", "<2fr> b"]
    for language in ("", "it"):
        with pytest.raises(errors.UserError, match="one of <2de>, <2fr>"):
            many.add_tags(["a"], language)


def test_exported_model_of_one_direction_compares_languages(local):
    single = local({"data": {"target_language": "de"}})
    assert single.add_tags(["a"], "") == single.add_tags(["a"], "de") == ["a"]
    with pytest.raises(errors.UserError, match="into de; got target_language"):
        single.add_tags(["a"], "fr")


def test_remote_model_adds_any_tag_and_leaves_the_check_to_the_server():
    remote = client.connect("http://127.0.0.1:1")
    assert remote.add_tags(["a"], "it") == ["<2it> a"]
    assert remote.add_tags(["a"], "") == ["a"]
