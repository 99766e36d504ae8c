"""Sentences of lines, by sentencex or without it."""

import sys

import pytest

from t2t_repro import errors
from t2t_repro.text import sentences


def test_line_is_split_into_sentences_without_loss():
    pytest.importorskip("sentencex")
    split = sentences.splitter("de")
    line = " Es war z. B. am 3. Mai so.  Dr. Maier kam! Ende"
    parts = ["Es war z. B. am 3. Mai so.", "Dr. Maier kam!", "Ende"]
    assert split(line) == parts
    assert split("") == split(" \t") == []
    assert sentences.splitter("xx")("Sing now. Fly.") == ["Sing now.", "Fly."]


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(errors.UserError, match=r"extra sentences"):
        sentences.splitter("de")
