"""Manifests: the vocabularies of a corpus, and errors of opening it."""

import pytest
from small_corpora import draw_pairs, generate_corpus

from t2t_repro import errors
from t2t_repro.data import generate, manifest
from t2t_repro.data.generate import LineSample
from t2t_repro.io import files
from t2t_repro.text.sentence_piece import Bpe, Unigram


def test_unknown_split_and_missing_manifest_are_user_errors(tmp_path):
    generate_corpus(tmp_path, draw_pairs(50))
    with pytest.raises(errors.UserError, match="'dev' in .*: train, test"):
        manifest.open_corpus(tmp_path, "dev")
    (tmp_path / manifest.MANIFEST).unlink()
    with pytest.raises(errors.UserError, match="manifest.json"):
        manifest.verify(tmp_path)


def test_vocabulary_is_learned_from_a_sample_of_limited_size(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(generate, "SAMPLE_LINES", 60)
    train = draw_pairs(50)
    generate_corpus(tmp_path, train)
    sample = LineSample(60)
    sample.add([line for pair in train for line in pair])
    learned = Bpe.learn(sample.lines, 300)
    assert (tmp_path / "vocab.model").read_bytes() == learned.model
    assert "300 subwords from 60 of 100 lines" in capsys.readouterr().out


def test_separate_vocabularies_are_learned_from_their_side_alone(tmp_path):
    train = draw_pairs(50)
    contents = generate_corpus(
        tmp_path,
        train,
        vocab_size=275,
        separate_vocabularies=True,
        source_vocab_size=270,
    )
    assert not (tmp_path / "vocab.model").exists()
    assert "vocabulary" not in contents
    corpus = manifest.open_corpus(tmp_path, "train")
    sizes = {"inputs": 270, "targets": 275}
    for i, (side, size) in enumerate(sizes.items()):
        lines = [pair[i] for pair in train]
        learned = Bpe.learn(lines, size)
        stored = (tmp_path / f"vocab.{side}.model").read_bytes()
        assert stored == learned.model
        assert corpus.sentences(side) == learned.encode(lines)
        assert contents["vocabularies"][side] == {
            "size": size,
            "sha256": learned.sha256,
        }
    forward = manifest.open_vocabularies(tmp_path)
    backward = manifest.open_vocabularies(tmp_path, reverse=True)
    assert [vocabulary.size for vocabulary in forward] == [270, 275]
    assert [vocabulary.size for vocabulary in backward] == [275, 270]
    assert not forward.is_shared


def test_given_separate_vocabularies_replace_learning(tmp_path):
    lines = [f"{a} w{i}" for i, (a, _) in enumerate(draw_pairs(90))]
    given = [Bpe.learn(lines, size) for size in (310, 320)]
    paths = [tmp_path / "a.model", tmp_path / "b.model"]
    for path, vocabulary in zip(paths, given, strict=True):
        path.write_bytes(vocabulary.model)
    contents = generate_corpus(
        tmp_path / "data",
        draw_pairs(50),
        separate_vocabularies=True,
        vocabulary=":".join(map(str, paths)),
    )
    sizes = [entry["size"] for entry in contents["vocabularies"].values()]
    assert sizes == [310, 320]
    opened = manifest.open_vocabularies(tmp_path / "data")
    assert [v.model for v in opened] == [v.model for v in given]


def test_unigram_vocabulary_is_learned_and_opened_as_its_type(tmp_path):
    train = draw_pairs(50)
    contents = generate_corpus(
        tmp_path, train, vocab_size=275, vocabulary_type="unigram"
    )
    learned = Unigram.learn([line for pair in train for line in pair], 275)
    assert (tmp_path / "vocab.model").read_bytes() == learned.model
    assert contents["vocabulary_type"] == "unigram"
    assert isinstance(manifest.open_vocabularies(tmp_path).source, Unigram)


@pytest.mark.parametrize("name", ["/etc/passwd", "../../../../etc/passwd"])
def test_shard_outside_the_folder_is_never_read(tmp_path, monkeypatch, name):
    contents = generate_corpus(tmp_path, draw_pairs(50))
    contents["splits"]["train"]["shards"][0]["file"] = name
    files.write_json(tmp_path / manifest.MANIFEST, contents)
    sha256, read = files.sha256, []

    def record(path):
        read.append(path.resolve())
        return sha256(path)

    monkeypatch.setattr(files, "sha256", record)
    with pytest.raises(errors.UserError, match="leads out of that folder"):
        manifest.open_corpus(tmp_path, "train")
    with pytest.raises(errors.UserError, match="leads out of that folder"):
        manifest.verify(tmp_path)
    assert {path.parent for path in read} <= {tmp_path}
