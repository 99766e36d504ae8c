"""Edited files of TensorFlow's checkpoints: each is read or refused."""

import shutil

import opennmt_tf_models
import pytest
import tensor2tensor_models
from file_strategies import edited_bytes, edited_json
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_repro import errors, registry
from t2t_repro.importing import opennmt_tf, run_writer
from t2t_repro.importing import tensor2tensor as tensor2tensor_module
from t2t_repro.text.t2t_subwords import T2TSubwords

pytestmark = pytest.mark.usefixtures("kept_abstract_models")


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


@pytest.fixture(scope="module")
def opennmt(tmp_path_factory):
    """Return the folder of a model of OpenNMT-tf."""
    registry.load_definitions()
    folder = tmp_path_factory.mktemp("opennmt")
    rows = len(opennmt_tf_models.SOURCE) + 1, len(opennmt_tf_models.TARGET) + 1
    opennmt_tf_models.write(folder, opennmt_tf_models.arrays(rows))
    return folder


def _convert(reader, folder, out):
    """Import the model, or check that nothing is written."""
    shutil.rmtree(out, ignore_errors=True)
    try:
        run_writer.write(reader.read(folder), "some", out, "en-de")
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
@settings(max_examples=15)
@given(data=st.data())
def test_edited_file_is_read_or_refused(tensor2tensor, name, data):
    file = tensor2tensor / name
    content = file.read_bytes()
    strategy = edited_bytes(content)
    if name.endswith(".json"):
        strategy = edited_json(tensor2tensor_models.settings())
    file.write_bytes(data.draw(strategy))
    try:
        out = tensor2tensor.parent / "out"
        _convert(tensor2tensor_module, tensor2tensor, out)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["data.yml", "model_description.py", "src.vocab"]
)
@settings(max_examples=15)
@given(data=st.data())
def test_edited_file_of_opennmt_is_read_or_refused(opennmt, name, data):
    file = opennmt / name
    content = file.read_bytes()
    file.write_bytes(data.draw(edited_bytes(content)))
    try:
        _convert(opennmt_tf, opennmt, opennmt.parent / "out")
    finally:
        file.write_bytes(content)
