"""Models of Marian that cannot be represented, and damaged files."""

import numpy as np
import pytest
from marian_models import (
    OPTIONS,
    PRE_NORM,
    SIZE,
    SPM,
    TOKENS,
    binary,
    ids_by_token,
    random_arrays,
    random_model,
    sentence_piece,
    special,
    write,
)

from t2t_repro import errors
from t2t_repro.importing import marian

REFUSED = [
    ({"type": "s2s"}, "type in .*model.npz must be 'transformer'; got 's2s'"),
    ({"transformer-decoder-autoreg": "average-attention"}, "autoreg"),
    ({"transformer-decoder-autoreg": "rnn"}, "decoder-autoreg"),
    ({"transformer-ffn-depth": 3}, "ffn-depth"),
    ({"transformer-no-projection": True}, "no-projection"),
    ({"transformer-postprocess": "dahn"}, "must be 'an', with d or without"),
    ({"transformer-postprocess": "dar"}, "transformer-postprocess "),
    ({"transformer-postprocess-top": "n"}, "postprocess-top"),
    ({"transformer-postprocess-emb": "r"}, "postprocess-emb"),
    ({"transformer-preprocess": "r"}, "transformer-preprocess "),
    (PRE_NORM | {"version": "v1.10.0"}, "Marian before 1.11"),
    (PRE_NORM | {"version": ""}, "Marian before 1.11"),
    ({"transformer-ffn-activation": "tanh"}, "relu or swish or gelu"),
    ({"transformer-decoder-dim-ffn": 32}, r"transformer-dim-ffn \(24\)"),
    ({"transformer-tied-layers": [1, 2]}, "tied-layers .* 1 numbers"),
    ({"transformer-new-idea": True}, "new-idea .* unknown here"),
    ({"transformer-attention-mask": "alibi"}, "attention-mask"),
    ({"dim-vocabs": [9, 9, 9]}, "one source and one target"),
    ({"input-types": ["sequence", "class"]}, "input-types"),
    ({"dim-emb": "wide"}, "dim-emb .* a number"),
    ({"enc-depth": 0}, "enc-depth .* at least 1"),
    ({"tied-embeddings-all": "maybe"}, "true or false"),
    ({"version": ["1"]}, "version .* a single value"),
    ({"lemma-dim-emb": 64}, "lemma-dim-emb"),
    ({"ulr": True}, "ulr"),
    ({"right-left": True}, "right-left"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_model_with_another_option_is_refused(tmp_path, changes, message):
    arrays = random_arrays(OPTIONS, [len(TOKENS)] * 2)
    folder = write(
        tmp_path / "m", OPTIONS | changes, arrays, **{"vocab.spm": SPM}
    )
    with pytest.raises(errors.UserError, match=message):
        marian.read(folder)


def test_array_without_a_place_is_refused(tmp_path):
    folder, arrays, options = random_model(tmp_path)
    write(folder, options, arrays | {"Wpos": np.zeros((3, SIZE))})
    with pytest.raises(errors.UserError, match="arrays that no hparam .* Wpos"):
        marian.read(folder)
    options = options | {"transformer-train-positions": True}
    write(folder, options, arrays)
    found = marian.read(folder)
    assert found.hparams["pos"] == "timing", "transformer.h has no Wpos"


def test_quantized_models_are_refused(tmp_path):
    folder, arrays, options = random_model(tmp_path)
    name = "encoder_l1_self_Wq"
    small = arrays | {name: np.ones((SIZE, SIZE), np.int8)}
    write(folder, options, small)
    with pytest.raises(errors.UserError, match=f"{name} .* quantized"):
        marian.read(folder)
    small["special:model.yml"] = special(options)
    (folder / "a.bin").write_bytes(binary(small, kinds={name: 0x10001}))
    with pytest.raises(errors.UserError, match=rf"{name} .*type 0x10001\)"):
        marian.read(folder / "a.bin")


def test_damaged_binary_models_are_named(tmp_path):
    folder, arrays, options = random_model(tmp_path)
    whole = binary({"special:model.yml": special(options)} | arrays)
    negative = binary({"Wemb": np.ones((2, 2), np.float32)})
    at = negative.index(np.array([2, 2], np.int32).tobytes())
    negative = negative[:at] + b"\xff" * 4 + negative[at + 4 :]
    for content, message in (
        (whole[:-5_000], "too short"),
        (binary({}, version=2), "version is 2, not 1"),
        (negative, "Wemb is too short for its shape"),
        (b"", "too short"),
    ):
        (folder / "b.bin").write_bytes(content)
        with pytest.raises(errors.UserError, match=message):
            marian.read(folder / "b.bin")


SEARCHES = [
    ({"word-penalty": 0.2}, "word-penalty in .*decoder.yml must be 0"),
    ({"beam-size": 0}, "beam-size .* at least 1"),
    ({"normalize": "much"}, "normalize .* a number"),
    ({"normalize": -1}, "normalize .* at least 0"),
    ({"models": ["a.npz", "b.npz"]}, "2 models, an ensemble"),
    ({"vocabs": ["source.bpe", "target.bpe"]}, "must be one or two Sent"),
    ({"vocabs": ["words.yml"]}, "There is no .*source.spm"),
    ([1], "must have lines `name: value`"),
]


@pytest.mark.parametrize(("settings", "message"), SEARCHES)
def test_other_settings_of_a_search_are_refused(tmp_path, settings, message):
    folder, _, _ = random_model(
        tmp_path, **{"vocab.spm": SPM, "decoder.yml": settings}
    )
    with pytest.raises(errors.UserError, match=message):
        marian.read(folder)


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
    with pytest.raises(errors.UserError, match="a .npz or .bin file"):
        marian.read(folder / "vocab.spm")
    with pytest.raises(errors.UserError, match="no model of Marian"):
        marian.read(tmp_path)
    (folder / "vocab.json").write_bytes(b"{")
    names = [folder / name for name in ("vocab.spm", "vocab.json")]
    with pytest.raises(errors.UserError, match="cannot be read as JSON"):
        marian.read(folder / "model.npz", names)
    (folder / "model.npz.yml").write_bytes(b"a: [")
    with pytest.raises(errors.UserError, match="cannot be read as YAML"):
        marian.read(folder / "model.npz")


@pytest.mark.parametrize("number", ["1", "x", -1, 10**12])
def test_wrong_ids_are_named(tmp_path, number):
    ids = ids_by_token(TOKENS) | {TOKENS[2]: number}
    folder, _, _ = random_model(
        tmp_path, **{"source.spm": SPM, "target.spm": SPM, "vocab.yml": ids}
    )
    with pytest.raises(errors.UserError, match="must be different numbers"):
        marian.read(folder)


def test_sentence_piece_without_eos_is_named(tmp_path):
    other = sentence_piece(eos_piece="</end>")
    folder, _, _ = random_model(tmp_path, **{"vocab.spm": other})
    assert marian.read(folder).vocabularies.source.pieces([1]) == ["</end>"]
    other = other.replace(b"</end>", b"</and>", 1)
    (folder / "vocab.spm").write_bytes(other)
    with pytest.raises(errors.UserError, match="Cannot use .*must have a piec"):
        marian.read(folder)
