"""Broken and hostile files of models: refused in a short message, never run.

Edited files are in tests/fuzz/; these are made by hand.
"""

import json
import os
import pickle
import struct
import zipfile

import numpy as np
import opennmt_tf_models
import pytest
from imported_models import write_huggingface

from t2t_repro import errors
from t2t_repro.importing import (
    arrays,
    ctranslate2,
    fairseq,
    huggingface,
    marian,
    model_files,
    opennmt_tf,
    tensor2tensor,
)


@pytest.mark.parametrize(("kind", "size"), [("F8_E4M3", 2), ("F4", 1)])
def test_safetensors_of_a_type_without_arrays_are_refused(tmp_path, kind, size):
    entry = {"dtype": kind, "shape": [2], "data_offsets": [0, size]}
    header = json.dumps({"a": entry}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    with pytest.raises(errors.UserError, match=f"a in .* {kind}, of a quanti"):
        arrays.read_weights(path)


@pytest.mark.parametrize(
    "header",
    [
        {"descr": "<f4", "fortran_order": False, "shape": (2**70,)},
        {"descr": "<f4", "fortran_order": False, "shape": (10**12,)},
        {"descr": "<f4", "fortran_order": False, "shape": (-1,)},
        {"descr": "<f4", "fortran_order": False, "shape": (1,) * 70},
        {"descr": "|O", "fortran_order": False, "shape": (1,)},
        "{'descr': " + "[" * 5_000,
        "-" * 9_000 + "1",
    ],
    ids=str,
)
def test_npz_of_an_impossible_shape_is_refused(tmp_path, header):
    content = f"{header}\n".encode()
    path = tmp_path / "model.npz"
    with zipfile.ZipFile(path, "w") as archive:
        length = struct.pack("<H", len(content))
        archive.writestr("a.npy", b"\x93NUMPY\1\0" + length + content)
    with pytest.raises(errors.UserError, match=r"model.npz cannot be read: \S"):
        arrays.read_npz(path)


def test_npz_that_fills_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "_SMALL_BYTES", 0)
    path = tmp_path / "model.npz"
    np.savez_compressed(path, a=np.zeros(100_000, np.float32))
    with pytest.raises(errors.UserError, match="bytes for arrays of 400,128"):
        arrays.read_npz(path)
    array = np.random.default_rng(1).normal(size=10_000)
    np.savez_compressed(path, a=array)
    np.testing.assert_array_equal(arrays.read_npz(path)["a"], array)


def test_checkpoint_that_fills_the_memory_is_refused(tmp_path, monkeypatch):
    opennmt_tf_models.save(tmp_path / "ckpt-1", {"a": np.zeros(9, np.float32)})
    prefix = arrays.find_checkpoint(tmp_path)
    assert arrays.read_checkpoint_arrays(prefix).take("a").shape == (9,)
    monkeypatch.setattr(arrays, "_SMALL_BYTES", 0)
    monkeypatch.setattr(arrays, "_MAX_RATIO", 0)
    with pytest.raises(errors.UserError, match="bytes for arrays of 36"):
        arrays.read_checkpoint_arrays(prefix)


def test_marian_binary_of_many_dimensions_is_refused(tmp_path):
    path = tmp_path / "model.bin"
    numbers = struct.pack("<6Q", 1, 1, 2, 0x404, 70, 4)
    path.write_bytes(numbers + b"a\0" + bytes([1, 0, 0, 0] * 70) + bytes(12))
    with pytest.raises(errors.UserError, match="a has 70 dimensions"):
        marian.read_binary(path)


@pytest.mark.parametrize(
    "code",
    [
        "model = " + "-" * 200_000 + "1",
        "model" + ".a" * 300 + "()",
        "model = " + "(" * 200,
        "Transformer(num_heads=0x" + "f" * 5_000 + ")",
        "Transformer(num_heads=2, dropout=0x" + "f" * 5_000 + ")",
    ],
    ids=lambda code: code[:40],
)
def test_description_that_is_no_model_is_refused(tmp_path, code):
    path = tmp_path / "model_description.py"
    path.write_text(code)
    with pytest.raises(errors.UserError, match="model_description.py"):
        opennmt_tf.read_model(path)


ALIASES = "a0: &a0 [xxxxxxxx]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)


def test_aliases_of_yaml_make_a_short_message(tmp_path):
    """Written out, the value would have 9^29 letters."""
    path = tmp_path / "data.yml"
    path.write_text(f"{ALIASES}params: {{beam_width: *a29}}\n")
    config = model_files.read_yaml(path)
    with pytest.raises(errors.UserError, match="beam_width") as error:
        opennmt_tf.read_search(config, path)
    assert len(str(error.value)) < 1_000
    path.write_text(f"{ALIASES}[1]: *a29\n")
    with pytest.raises(errors.UserError) as error:
        model_files.read_yaml(path)
    assert len(str(error.value)) < 1_000


@pytest.fixture
def outside(tmp_path):
    """Return a file that belongs to the user, beside the model's folder."""
    (tmp_path / "model" / "data").mkdir(parents=True)
    path = tmp_path / "secret.yml"
    path.write_text("TOKEN: 123\n")
    return path


@pytest.mark.parametrize("name", ["{}", "../secret.yml", "/dev/zero", "data"])
def test_file_outside_of_the_model_is_not_read(outside, name):
    folder, name = outside.parent / "model", name.format(outside)
    data = folder / "data.yml"
    config = {"data": {"source_vocabulary": name, "target_vocabulary": name}}
    message = "There is no .*/model/"
    with pytest.raises(errors.UserError, match=message) as error:
        opennmt_tf.read_vocabularies(config, data)
    assert "TOKEN" not in str(error.value)
    (folder / "model.npz").touch()
    (folder / "decoder.yml").write_text(json.dumps({"vocabs": [name]}))
    with pytest.raises(errors.UserError, match="model/") as error:
        marian.find_files(folder, [])
    assert "TOKEN" not in str(error.value)


def test_file_in_a_folder_of_the_model_is_read(outside):
    folder = outside.parent / "model"
    for name in ("data/a.vocab", "b.vocab"):
        (folder / name).touch()
        found = model_files.named_file(folder, name)
        assert found == folder / name
    assert (
        model_files.named_file(folder, "/there/b.vocab") == folder / "b.vocab"
    )


class Code:
    """Object whose pickle makes a folder when it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


READERS = {
    "model.npz": marian.read,
    "model.bin": marian.read_binary,
    "config.json": lambda path: huggingface.read(path.parent),
    "model.safetensors": arrays.read_weights,
    "pytorch_model.bin": arrays.read_weights,
    "model.pt": fairseq.read,
    "decoder.yml": model_files.read_yaml,
    "data.yml": lambda path: model_files.read_yaml(path, is_text=True),
    "model_description.py": opennmt_tf.read_model,
    "hparams.json": tensor2tensor.read_settings,
    "model.ckpt-1.index": lambda path: arrays.read_checkpoint_arrays(
        path.with_suffix("")
    ),
    "CTranslate2/model.bin": lambda path: ctranslate2.read(path.parent),
}


def hostile_contents(code, folder):
    """Yield files that run code where a reader trusts them."""
    pickled = pickle.dumps(code)
    yield pickled
    path = folder / "hostile.npz"
    np.savez(path, a=np.array([code], object))
    yield path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:  # of PyTorch
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
    yield path.read_bytes()
    call = f"os.mkdir({code.path!r})"
    yield f"import os\n{call}\nmodel = Transformer({call})\n".encode()
    yield f"a: !!python/object/apply:os.mkdir [{code.path}]\n".encode()


@pytest.mark.parametrize("name", READERS)
def test_no_file_runs_code(tmp_path, name):
    if name.endswith(("pytorch_model.bin", ".pt")):
        pytest.importorskip("torch", reason="the extra pytorch is absent")
    code = Code(tmp_path / "made")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    for content in hostile_contents(code, tmp_path):
        path.write_bytes(content)
        try:
            READERS[name](path)
        except errors.UserError as error:
            assert len(str(error)) < 3_000
        assert not (tmp_path / "made").exists()
    pickle.loads(pickle.dumps(code))
    assert (tmp_path / "made").exists()


RECURSIVE: dict = {}
RECURSIVE["model"] = RECURSIVE["args"] = RECURSIVE


@pytest.mark.parametrize(
    "checkpoint",
    [
        RECURSIVE,
        {"args": {"arch": np.zeros(3)}},
        {"args": {"arch": "transformer", 1: 2, "adaptive_input": np.zeros(2)}},
        {"args": {"arch": "transformer", "encoder_layers": 10**5_000}},
        {"args": {"arch": "transformer", "dropout": float("nan")}},
        {"cfg": {"model": {"_name": "transformer"}, "task": {3: 4}}},
        {"args": {"arch": "transformer"}, "model": {1: np.zeros(2), "a": 3}},
    ],
    ids=lambda checkpoint: errors.shown(checkpoint)[:60],
)
def test_checkpoint_of_odd_objects_is_refused(tmp_path, checkpoint):
    with pytest.raises(errors.UserError) as error:
        fairseq.convert(checkpoint, tmp_path / "model.pt", "none")
    assert len(str(error.value)) < 3_000


@pytest.mark.parametrize("tensor", ["expand", "many"])
def test_tensors_that_share_bytes_are_limited(tmp_path, monkeypatch, tensor):
    torch = pytest.importorskip("torch", reason="the extra pytorch is absent")
    monkeypatch.setattr(arrays, "_SMALL_BYTES", 0)
    half = torch.zeros(1, dtype=torch.float16)
    state = {"a": half.expand(10**12)}
    if tensor == "many":
        shared = torch.zeros(10_000, dtype=torch.float16)
        state = {str(i): shared for i in range(1_000)}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(errors.UserError, match="bytes for arrays of"):
        arrays.read_checkpoint(tmp_path / "model.pt")


@pytest.mark.parametrize(
    "name",
    ["generation_config.json", "tokenizer_config.json", "target_vocab.json"],
)
def test_optional_file_that_is_a_device_is_not_read(tmp_path, name):
    read = write_huggingface(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/dev/zero")
    read()
