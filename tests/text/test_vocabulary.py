"""What vocabularies owe, and pairs of them."""

import pytest

from t2t_repro import errors, files, registry
from t2t_repro.data import vocabulary_pair
from t2t_repro.data.vocabulary_pair import Vocabularies
from t2t_repro.text.sentence_piece import Bpe, Unigram
from t2t_repro.text.vocabulary import EOS, Vocabulary


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("learn", lambda bare: bare.learn([], 9)),
        ("size", lambda bare: bare.size),
        ("encode", lambda bare: bare.encode(["a"])),
        ("join", lambda bare: bare.decode([[5, EOS]])),
        ("pieces", lambda bare: bare.pieces([5])),
    ],
)
def test_what_a_vocabulary_owes_is_named(name, ask):
    message = f"Vocabulary has no {name}: text/vocabulary.py"
    with pytest.raises(errors.UserError, match=message):
        ask(Vocabulary(b""))


class Digits(Vocabulary):
    """Ids as text."""

    def join(self, rows):
        return ["\t".join(map(str, row)) for row in rows]


def test_any_vocabulary_decodes_up_to_eos_to_a_line():
    rows = [[5, 0, 6, 1, 7, 0], [1, 5], [], [0, 0, 8]]
    assert Digits(b"").decode(rows) == ["5 6", "", "", "8"]
    assert Digits(b"").decode([]) == []


def test_a_vocabulary_type_is_its_class():
    assert vocabulary_pair.vocabulary_class("bpe") is Bpe
    assert vocabulary_pair.vocabulary_class("unigram") is Unigram


def test_a_type_that_is_no_vocabulary_is_refused(monkeypatch):
    entries = dict(registry.vocabularies._entries)
    monkeypatch.setattr(registry.vocabularies, "_entries", entries)
    registry.vocabularies.register("digits")(lambda model: None)
    with pytest.raises(errors.UserError, match="type 'digits' must be a subcl"):
        vocabulary_pair.vocabulary_class("digits")


def test_a_pair_is_told_from_any_other_by_its_checksum():
    a, b = Vocabulary(b"a"), Vocabulary(b"b")
    shared, pair = Vocabularies.shared(a), Vocabularies(a, b)
    assert shared.sha256 == a.sha256 and shared.is_shared
    assert not pair.is_shared
    same_twice = Vocabularies(a, Vocabulary(b"a"))
    sums = {a.sha256, b.sha256, pair.sha256, pair.reversed().sha256}
    assert len(sums | {same_twice.sha256}) == 5


class Hundred(Digits):
    size = 100


class Thousand(Digits):
    size = 1000


def test_sizes_are_named_as_models_take_them():
    pair = Vocabularies(Hundred(b""), Thousand(b""))
    assert pair.sizes == {"vocab_size": 1000, "source_vocab_size": 100}


def test_a_pair_is_read_as_it_was_written(vocabulary, tmp_path):
    target = Unigram.learn(["ein", "zwei"] * 9, 266)
    for made in (
        Vocabularies.shared(vocabulary),
        Vocabularies(vocabulary, target),
    ):
        made.write(tmp_path)
        paths = vocabulary_pair.paths(tmp_path, separate=not made.is_shared)
        found = vocabulary_pair.load("bpe", paths)
        assert found.sha256 == made.sha256
        assert [one.model for one in found] == [one.model for one in made]
        assert found.is_shared == made.is_shared
    assert {path.name for path in tmp_path.iterdir()} == {
        "vocab.model",
        "vocab.inputs.model",
        "vocab.targets.model",
    }
    assert files.sha256(tmp_path / "vocab.targets.model") == target.sha256
