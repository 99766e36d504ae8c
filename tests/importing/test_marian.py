"""Models of Marian against its formulas in numpy, and their files."""

import datetime
import pathlib

import imported_models
import numpy as np
import pytest
from marian_models import (
    OPTIONS,
    PRE_NORM,
    SPM,
    TOKENS,
    Model,
    binary,
    ids_by_token,
    random_model,
    sentence_piece,
    special,
    write,
)
from sentence_pieces import pieces

from t2t_repro import errors
from t2t_repro.importing import marian

SIDES = {"source.spm": SPM, "target.spm": SPM}
APART = {"tied-embeddings-all": False}
TRAINED = {"transformer-train-positions": True}
GELU = {"transformer-ffn-activation": "gelu"}
VARIANTS = {
    "default": {},
    "together": APART
    | PRE_NORM
    | TRAINED
    | GELU
    | {"transformer-postprocess-emb": "nd", "transformer-heads": 4},
    "pre_norm": PRE_NORM,
    "relu": {"transformer-ffn-activation": "relu", "output-omit-bias": True},
    "gelu": GELU
    | {"version": "v1.12.3", "enc-depth": 1, "dec-depth": 2}
    | {"transformer-decoder-dim-ffn": 30},
    "old_gelu": GELU | APART,
    "target_tied": APART | {"tied-embeddings": True},
    "embeddings_tied": APART
    | {"tied-embeddings-src": True}
    | {"transformer-train-position-embeddings": True},  # has no effect
    "all_tied_by_two": APART
    | {"tied-embeddings-src": True, "tied-embeddings": True}
    | {"transformer-postprocess-emb": "nd"},
    "trained_positions": TRAINED | {"transformer-postprocess-emb": "n"},
    "no_positions": {"transformer-disable-position-embeddings": True},
    "tied_layers": {"dec-depth": 3, "transformer-tied-layers": [1, 2, 1]},
}
# Marian's model is float64 here, and ours float32. Measured: 5.1e-6.
TOLERANCE = 2e-5


def _ours(ids):
    """Return our ids of ids of vocab.spm: PAD, EOS, then the others."""
    return [1 if i == 0 else i + 1 for i in ids]


@pytest.mark.parametrize("name", imported_models.few(VARIANTS))
def test_logits_equal_those_of_marian(tmp_path, name):
    folder, arrays, options = random_model(tmp_path, VARIANTS[name])
    found = marian.read(folder)
    numbers = np.random.default_rng(2)
    # 14 positions, of which 12 can be trained.
    source = [*numbers.integers(1, len(TOKENS), 13), 0]
    target = [*numbers.integers(1, len(TOKENS), 13), 0]
    expected = Model(options, arrays).logits(source, target[:-1])
    logits = imported_models.logits(found, _ours(source), _ours(target))
    difference = np.abs(logits[:, _ours(range(len(TOKENS)))] - expected)
    assert difference.max() < TOLERANCE
    assert (logits[:, 0] < -90).all(), "PAD is in the softmax"


def test_vocabularies_of_opus_mt(tmp_path):
    """decoder.yml names vocabularies and search; others have usual names."""
    tokens = ["</s>", "<unk>", *reversed(TOKENS[2:]), ">>de<<"]
    options = OPTIONS | {"dim-vocabs": [len(tokens)] * 2}
    settings = {
        "relative-paths": "false",
        "models": ["/trained/there/model.npz"],
        "vocabs": ["/trained/there/opus.vocab.yml"] * 2,
        "beam-size": 6,
        "normalize": 1,
        "word-penalty": 0,
    }
    target = sentence_piece(30)
    folder = write(
        tmp_path / "model",
        options,
        Model(options, None, [len(tokens)] * 2).drawn(),
        **{
            "decoder.yml": settings,
            "opus.vocab.yml": ids_by_token(tokens),
            "source.spm": SPM,
            "target.spm": target,
        },
    )
    found = marian.read(folder)
    assert found.search == {
        "beam_size": 6,
        "alpha": 1,
        "length_penalty_offset": 0,
    }
    assert {file.name for file in found.files} == {
        *("model.npz", "decoder.yml", "opus.vocab.yml"),
        *("source.spm", "target.spm"),
    }
    assert found.hparams["shared_embedding_and_softmax_weights"]
    source, target = found.vocabularies.pair
    assert source.size == target.size == len(tokens) + 1
    assert source.pieces(range(1, 4)) == tokens[:3]
    (ids,) = source.encode([">>de<< the cat"])
    assert source.pieces(ids)[0] == ">>de<<"
    assert source.pieces(ids)[-1] == "</s>"


def test_vocabularies_of_each_side(tmp_path):
    """Two models of SentencePiece; a matrix of both is stored in two orders."""
    other = sentence_piece(normalization_rule_name="identity", model_type="bpe")
    count = len(pieces(other))
    options = OPTIONS | APART
    arrays = Model(options, None, (len(TOKENS), count)).drawn()
    folder = write(
        tmp_path / "model",
        options,
        arrays,
        **{
            "model.npz.decoder.yml": {"vocabs": ["a.spm", "sub/b.spm"]},
            "a.spm": SPM,
            "b.spm": other,
        },
    )
    found = marian.read(folder / "model.npz")
    assert found.vocabularies.pair.sizes == {
        "source_vocab_size": len(TOKENS) + 1,
        "vocab_size": count + 1,
    }
    assert found.search["beam_size"] == 12, "marian-decoder's"
    assert not found.hparams["shared_embedding_and_softmax_weights"]
    names = [folder / "b.spm", folder / "a.spm"]
    with pytest.raises(errors.UserError, match="pieces and the model"):
        marian.read(folder, names)


def test_vocabulary_files_are_looked_for_beside_the_model(tmp_path):
    folder, _, _ = random_model(tmp_path, **{"english.spm": SPM})
    with pytest.raises(errors.UserError, match="--vocabularies=vocab.spm"):
        marian.read(folder)
    found = marian.read(folder, [pathlib.Path("english.spm")])
    assert found.vocabularies.pair.is_shared


def test_numbers_in_quotes_are_read_as_numbers(tmp_path):
    """yaml-cpp, which Marian reads options by, makes no difference."""
    options = VARIANTS["tied_layers"] | {"transformer-new-idea": False}
    search = {"beam-size": "6", "normalize": "0.5"}
    files = {"vocab.spm": SPM, "decoder.yml": search}
    folder, arrays, options = random_model(tmp_path, options, **files)
    expected = marian.read(folder)
    assert expected.search["beam_size"] == 6 and expected.search["alpha"] == 0.5
    quoted = {
        name: value if isinstance(value, list) else str(value).lower()
        for name, value in options.items()
        if value is not None
    }
    # A version that YAML has as a number or as a date is text to Marian.
    for version in (quoted["version"], 1.12, datetime.date(2023, 2, 21)):
        quoted["version"] = version
        quoted["transformer-tied-layers"] = ["1", 2, "1"]
        write(folder, quoted, arrays)
        assert marian.read(folder).hparams == expected.hparams


def test_softmax_of_older_versions_is_transposed(tmp_path):
    folder, arrays, options = random_model(tmp_path, APART)
    expected = marian.read(folder).weights["softmax/weight"]
    name = "decoder_ff_logit_out_W"
    arrays[name] = arrays.pop(f"{name}t").T
    write(folder, options, arrays)
    found = marian.read(folder).weights["softmax/weight"]
    np.testing.assert_array_equal(found, expected)


def test_ids_without_a_token_and_names_of_nematus(tmp_path):
    ids = ids_by_token(["eos", "UNK", *TOKENS[2:]])
    ids["beyond"] = 900
    del ids[TOKENS[5]]
    folder, _, _ = random_model(tmp_path, **SIDES, **{"vocab.json": ids})
    vocabulary = marian.read(folder).vocabularies.pair.source
    assert vocabulary.pieces([1, 2, 6]) == ["eos", "UNK", "<unused 5>"]


def test_binary_model_equals_npz(tmp_path):
    folder, arrays, options = random_model(tmp_path)
    arrays["decoder_l1_self_Wq"] = arrays["decoder_l1_self_Wq"].astype("f2")
    content = binary({"special:model.yml": special(options)} | arrays)
    (folder / "model.bin").write_bytes(content)
    write(folder, options, arrays)
    first, second = (
        marian.read(folder / f"model.{kind}").weights for kind in ("npz", "bin")
    )
    assert first.keys() == second.keys()
    for path, array in first.items():
        np.testing.assert_array_equal(array, second[path])


def test_damaged_and_packed_binary_models_are_named(tmp_path):
    folder, arrays, options = random_model(tmp_path)
    arrays |= {"special:model.yml": special(options)}
    negative = binary({"Wemb": np.ones((2, 2), np.float32)})
    at = negative.index(np.array([2, 2], np.int32).tobytes())
    negative = negative[:at] + b"\xff" * 4 + negative[at + 4 :]
    name = "encoder_l1_self_Wq"
    for content, message in (
        (binary(arrays)[:-5_000], "it ends within"),
        (binary({}, version=2), "version is 2, not 1"),
        (negative, "Wemb is too short for its shape"),
        (b"", "it ends within 8 bytes that begin at byte 0"),
        (binary(arrays, kinds={name: 0x10001}), rf"{name} .* 0x10001\)"),
    ):
        (folder / "b.bin").write_bytes(content)
        with pytest.raises(errors.UserError, match=message):
            marian.read(folder / "b.bin")


def test_missing_and_ambiguous_files_are_named(tmp_path):
    folder, arrays, _ = random_model(tmp_path)
    (folder / "model.npz.optimizer.npz").write_bytes(b"")
    assert marian.read(folder)
    (folder / "last.npz").write_bytes(b"")
    with pytest.raises(errors.UserError, match="has 2 models: last.npz, model"):
        marian.read(folder)
    with pytest.raises(errors.UserError, match="last.npz cannot be read"):
        marian.read(folder / "last.npz")
    np.savez(folder / "last.npz", **arrays)
    with pytest.raises(errors.UserError, match="no special:model.yml"):
        marian.read(folder / "last.npz")
    with pytest.raises(errors.UserError, match="none is .npz or .bin"):
        marian.read(folder / "vocab.spm")
    with pytest.raises(errors.UserError, match="has 0 models: none is"):
        marian.read(tmp_path)
    (folder / "vocab.json").write_bytes(b"{")
    names = [folder / name for name in ("vocab.spm", "vocab.json")]
    with pytest.raises(errors.UserError, match="vocab.json cannot be read"):
        marian.read(folder / "model.npz", names)
    (folder / "model.npz.yml").write_bytes(b"a: [")
    with pytest.raises(errors.UserError, match="npz.yml cannot be read"):
        marian.read(folder / "model.npz")
    for name in ("model", "last"):
        settings = f"models: [/there/{name}.npz]"
        (folder / f"{name}.npz.decoder.yml").write_text(settings)
    with pytest.raises(errors.UserError, match="has 2 models: last.npz, model"):
        marian.read(folder)
    (folder / "decoder.yml").write_text(settings)
    with pytest.raises(errors.UserError, match="no .*vocab|special:model"):
        marian.read(folder)  # last.npz


@pytest.mark.parametrize("number", ["1", "x", -1, 10**12])
def test_wrong_ids_are_named(tmp_path, number):
    ids = ids_by_token(TOKENS) | {TOKENS[2]: number}
    folder, _, _ = random_model(tmp_path, **SIDES, **{"vocab.yml": ids})
    with pytest.raises(errors.UserError, match="must be different numbers"):
        marian.read(folder)


def test_sentence_piece_without_eos_is_named(tmp_path):
    other = sentence_piece(eos_piece="</end>")
    folder, _, _ = random_model(tmp_path, **{"vocab.spm": other})
    found = marian.read(folder).vocabularies.pair.source
    assert found.pieces([1]) == ["</end>"]
    other = other.replace(b"</end>", b"</and>", 1)
    (folder / "vocab.spm").write_bytes(other)
    with pytest.raises(errors.UserError, match="Cannot use .*must have a piec"):
        marian.read(folder)


def test_trained_positions_that_the_file_lacks_are_sinusoids(tmp_path):
    """src/models/transformer.h has no Wpos then."""
    found = imported_models.write_marian(tmp_path, TRAINED)()
    assert found.hparams["pos"] == "timing"


def test_importer_gives_vocabularies_to_readers_that_have_the_argument(
    tmp_path, forked
):
    folder, _, _ = random_model(tmp_path, **{"english.spm": SPM})
    arguments = [f"--input={folder}", f"--output_dir={tmp_path / 'run'}"]
    arguments += ["--languages=en-de", f"--vocabularies={folder}/english.spm"]
    result = forked("importer", "--from=huggingface", *arguments)
    assert result.returncode == 1
    assert "--vocabularies is not for --from=" in result.stderr
    result = forked("importer", "--from=marian", *arguments)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run" / "vocab.model").exists()
