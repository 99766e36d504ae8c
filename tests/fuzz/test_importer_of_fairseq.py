"""Edited files and settings of fairseq: each is read or refused."""

import fairseq_models as models
import pytest
from file_strategies import JSON, edited_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_repro import errors, registry
from t2t_repro.importing import fairseq, run_writer

pytestmark = pytest.mark.usefixtures("kept_abstract_models")

SIZES = 4 + len(models.SUBWORDS), 4 + len(models.OTHERS)
FILES = {
    "dict.en.txt": models.dictionary(models.SUBWORDS).encode(),
    "dict.de.txt": models.dictionary(models.OTHERS).encode(),
    "bpecodes": models.CODES.encode(),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    registry.load_definitions()
    return tmp_path_factory.mktemp("fairseq")


def _convert(args, folder):
    state = models.state(models.arguments(), SIZES)
    try:
        checkpoint = {"args": args, "model": state}
        found = fairseq.convert(checkpoint, folder / "model.pt", "none")
        run_writer.build_variables(found, run_writer.build_hparams(found))
    except errors.UserError:
        return
    (ids,) = found.vocabularies.source.encode(["the cat"])
    assert max(ids) < found.vocabularies.source.size


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=15)
@given(data=st.data())
def test_edited_file_is_read_or_refused(folder, name, data):
    for other, content in FILES.items():
        (folder / other).write_bytes(content)
    (folder / name).write_bytes(data.draw(edited_bytes(FILES[name])))
    _convert(models.arguments(), folder)


@settings(max_examples=60)
@given(st.sampled_from(sorted(models.arguments())), JSON)
def test_changed_setting_is_read_or_refused(folder, key, value):
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    _convert(models.arguments() | {key: value}, folder)
