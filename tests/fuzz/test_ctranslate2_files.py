"""Edited files of CTranslate2's models: each is read, or raises UserError."""

import pathlib
import runpy

import pytest
from file_strategies import edited_bytes, edited_json
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.importing import ctranslate2
from t2t_repro.io import files
from t2t_repro.text.whitespace_tokens import WhitespaceTokens

pytestmark = pytest.mark.usefixtures("kept_abstract_models")

pytest.importorskip(
    "ctranslate2", reason="the extra ctranslate2 is not installed"
)
_HELPERS = pathlib.Path(__file__).parents[1] / "importing/ctranslate2_specs.py"
_SPECS = runpy.run_path(str(_HELPERS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a small model with int8 weights."""
    path = tmp_path_factory.mktemp("model")
    return _SPECS["save"](_SPECS["build"](layers=1), path, "int8")


def read_with(folder, name, content):
    """Read the folder with another content of a file; None: refused."""
    file = folder / name
    original = file.read_bytes()
    file.write_bytes(content)
    try:
        return ctranslate2.read(folder)
    except errors.UserError as error:
        assert str(folder) in str(error) or "hparam" in str(error)
        return None
    finally:
        file.write_bytes(original)


@given(data=st.data())
def test_edited_model_is_read_or_refused(folder, data):
    whole = (folder / "model.bin").read_bytes()
    head = data.draw(edited_bytes(whole[:2000]))
    content = head + whole[2000:] if data.draw(st.booleans()) else head
    found = read_with(folder, "model.bin", content)
    if found:
        assert found.weights.softmax.shape[0] == found.vocabularies.target.size


@given(data=st.data())
def test_edited_configuration_is_read_or_refused(folder, data):
    config = files.read_json(folder / "config.json")
    read_with(folder, "config.json", data.draw(edited_json(config)))


@given(data=st.data())
def test_edited_vocabulary_is_read_or_refused(folder, data):
    tokens = files.read_json(folder / "shared_vocabulary.json")
    content = data.draw(edited_json(tokens))
    found = read_with(folder, "shared_vocabulary.json", content)
    if found:
        vocabulary = WhitespaceTokens(found.vocabularies.source.model)
        assert vocabulary.encode(["a"])[0][-1] == 1
