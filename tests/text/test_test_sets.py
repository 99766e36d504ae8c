"""Test sets from files and from sacreBLEU, without a network."""

import socket
import urllib.error
import urllib.request

import pytest
from sacrebleu.dataset import DATASETS

from t2t_repro import errors
from t2t_repro.text import test_sets


@pytest.fixture
def store(monkeypatch, tmp_path):
    """The folder in which sacreBLEU stores wmt14/full in a test."""
    for name in ("_outdir", "_rawdir"):
        monkeypatch.setattr(DATASETS["wmt14/full"], name, str(tmp_path))
    return tmp_path


def test_stored_set_of_sacrebleu_is_read(store):
    fields = {"src": "one\ntwo\n", "ref": "eins\nzwei\n"}
    for field in DATASETS["wmt14/full"].fieldnames("en-de"):
        path = store / f"wmt14_full.en-de.{field}"
        path.write_text(fields.get(field, ""))
    assert test_sets.is_known("wmt14/full")
    name = "sacrebleu/wmt14_full"
    expected = test_sets.TestSet(["one", "two"], [["eins", "zwei"]], name)
    assert list(expected.pairs()) == [("one", "eins"), ("two", "zwei")]
    for codes in (("en", "de"), ("eng_Latn", "deu_Latn"), ("en_XX", "de_DE")):
        assert test_sets.from_sacrebleu("wmt14/full", codes) == expected
    with pytest.raises(errors.UserError, match="is not of en-it, but of cs-en"):
        test_sets.from_sacrebleu("wmt14/full", ("eng_Latn", "ita_Latn"))


def test_failed_download_is_user_error_with_alternatives(store, monkeypatch):
    def unreachable(url):
        # Where a firewall drops packets there would be no end without it.
        assert socket.getdefaulttimeout() == 20
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    message = (
        "cannot fetch wmt14/full en-de.*no route"
        ".*`sacrebleu -t wmt14/full -l en-de --echo ref`"
        ".*--references and --sources"
    )
    with pytest.raises(errors.UserError, match=f"(?s){message}"):
        test_sets.from_sacrebleu("wmt14/full", ("en", "de"))
    assert socket.getdefaulttimeout() is None


def test_files_are_read_and_normalized(tmp_path):
    for name, text in (("src", "A b\n"), ("one", "C\n"), ("two", "D e\n")):
        (tmp_path / name).write_text(text)
    references = [tmp_path / "one", tmp_path / "two"]
    test_set = test_sets.from_files(references)
    assert test_set == test_sets.TestSet(None, [["C"], ["D e"]])
    assert test_set.normalized(str.upper, str.lower) == test_set._replace(
        references=[["c"], ["d e"]]
    )
    test_set = test_sets.from_files(references, tmp_path / "src")
    assert test_set.normalized(str.upper, str.lower).sources == ["A B"]
    assert test_set.name == "files/src"


def test_directions_are_parts_of_a_test_set():
    many = test_sets.TestSet(
        ["a", "b", "c", "d"],
        [["A", "B", "C", "D"]],
        "test",
        {"en-de": 1, "de-en": 2, "fr-de": 1},
    )
    assert many.parts["de-en"] == range(1, 3)
    german = many.toward("de")
    assert german == test_sets.TestSet(
        ["a", "d"], [["A", "D"]], "test.de", {"en-de": 1, "fr-de": 1}
    )
    assert german.toward("de") is german
    assert many.toward("en", "de").name == "test.de-en"
    assert many.toward("", "fr").sources == ["d"]
    assert many.toward("", "en").name == "test.en-"  # test.en is into English
    with pytest.raises(errors.UserError, match="no direction with fr-en"):
        many.toward("en", "fr")
