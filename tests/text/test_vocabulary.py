"""The interface of vocabularies, and pairs of vocabularies."""

import pytest

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.text import vocabulary_pair
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import EOS, Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies


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
def test_missing_method_is_user_error_that_names_it(name, ask):
    message = f"Vocabulary has no {name}: see .*problems.md"
    with pytest.raises(errors.UserError, match=message):
        ask(Vocabulary(b""))


class Digits(Vocabulary):
    def join(self, rows):
        return ["\t".join(map(str, row)) for row in rows]


def test_decode_stops_at_eos_and_returns_single_lines():
    rows = [[5, 0, 6, 1, 7, 0], [1, 5], [], [0, 0, 8]]
    assert Digits(b"").decode(rows) == ["5 6", "", "", "8"]
    assert Digits(b"").decode([]) == []


@pytest.mark.parametrize(
    "kind", ["bpe_codes", "t2t_subwords", "mapped_sentence_piece"]
)
def test_vocabulary_of_another_system_is_not_learned(kind):
    with pytest.raises(errors.UserError, match="(are|be) (not )?learned"):
        vocabulary_pair.vocabulary_class(kind).learn(["a"], 9)


def test_checksums_of_different_pairs_differ():
    a, b = Vocabulary(b"a"), Vocabulary(b"b")
    shared, pair = Vocabularies.shared(a), Vocabularies(a, b)
    assert shared.sha256 == a.sha256 and shared.is_shared
    assert not pair.is_shared
    same_twice = Vocabularies(a, Vocabulary(b"a"))
    sums = {a.sha256, b.sha256, pair.sha256, pair.reversed().sha256}
    assert len(sums | {same_twice.sha256}) == 5


def test_pair_is_read_as_it_was_written(vocabulary, tmp_path):
    target = Bpe.learn(["ein", "zwei"] * 9, 266)
    for written in (
        Vocabularies.shared(vocabulary),
        Vocabularies(vocabulary, target),
    ):
        written.write(tmp_path)
        paths = vocabulary_pair.paths(tmp_path, separate=not written.is_shared)
        loaded = vocabulary_pair.load("bpe", paths)
        assert loaded.sha256 == written.sha256
        assert [v.model for v in loaded] == [v.model for v in written]
        assert loaded.is_shared == written.is_shared
    assert {path.name for path in tmp_path.iterdir()} == {
        "vocab.model",
        "vocab.inputs.model",
        "vocab.targets.model",
    }
    assert files.sha256(tmp_path / "vocab.targets.model") == target.sha256
