"""Edited files of TensorFlow's checkpoints: each is read or refused."""

import shutil

import pytest
import tensor2tensor_models
from file_strategies import edited_bytes, edited_json
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_repro import errors, registry
from t2t_repro.importing import run_writer, tensor2tensor_checkpoint
from t2t_repro.text.t2t_subwords import T2TSubwords


@pytest.fixture(scope="module")
def tensor2tensor(tmp_path_factory):
    """Return the folder of a model."""
    registry.load_definitions()
    folder = tmp_path_factory.mktemp("tensor2tensor")
    hparams = tensor2tensor_models.settings()
    vocabulary = tensor2tensor_models.subwords()
    rows = T2TSubwords(vocabulary).size
    tensors = tensor2tensor_models.arrays(hparams, (rows, rows))
    tensor2tensor_models.write(folder, hparams, tensors, subwords=vocabulary)
    return folder


def _convert(folder, out):
    """Import the model; return whether it could be read."""
    shutil.rmtree(out, ignore_errors=True)
    try:
        found = tensor2tensor_checkpoint.read(folder)
        run_writer.write(found, "tensor2tensor", out, "en-de")
    except errors.UserError:
        assert not list(out.glob("**/*ckpt*"))


@pytest.mark.parametrize(
    "name",
    [
        "hparams.json",
        "model.ckpt-7.index",
        "model.ckpt-7.data-00000-of-00001",
        "vocab.translate_ende.subwords",
    ],
)
@settings(max_examples=40)
@given(data=st.data())
def test_edited_file_is_read_or_refused(tensor2tensor, name, data):
    file = tensor2tensor / name
    content = file.read_bytes()
    strategy = edited_bytes(content)
    if name.endswith(".json"):
        strategy = edited_json(tensor2tensor_models.settings())
    file.write_bytes(data.draw(strategy))
    try:
        _convert(tensor2tensor, tensor2tensor.parent / "out")
    finally:
        file.write_bytes(content)
