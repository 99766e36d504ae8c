"""Edited files of a Hugging Face model: each is read or refused."""

import json
import pathlib
import shutil

import pytest
from file_strategies import JSON, edited_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_repro import errors, registry
from t2t_repro.importing import huggingface, run_writer

pytestmark = pytest.mark.usefixtures("kept_abstract_models")

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "huggingface"
FILES = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "source.spm",
    "vocab.json",
]
SETTINGS = json.loads((GOLDEN / "config.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    registry.load_definitions()
    copy = tmp_path_factory.mktemp("huggingface") / "model"
    return pathlib.Path(shutil.copytree(GOLDEN, copy))


def read(folder, name, content):
    """Read the model with another content of a file, and build the run's."""
    original = (GOLDEN / name).read_bytes()
    (folder / name).write_bytes(content)
    try:
        found = huggingface.read(folder)
        run_writer.build_variables(found, run_writer.build_hparams(found))
    except errors.UserError:
        return
    finally:
        (folder / name).write_bytes(original)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=15)
@given(data=st.data())
def test_edited_file_is_read_or_refused(folder, name, data):
    read(folder, name, data.draw(edited_bytes((GOLDEN / name).read_bytes())))


@settings(max_examples=15)
@given(st.sampled_from(sorted(SETTINGS)), JSON)
def test_changed_setting_is_read_or_refused(folder, key, value):
    content = json.dumps(SETTINGS | {key: value}).encode()
    read(folder, "config.json", content)
