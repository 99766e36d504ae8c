"""Edited files of Marian models: each is read, or named by an error."""

import pytest
from file_strategies import edited_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from marian_models import (
    OPTIONS,
    binary,
    pieces,
    random_arrays,
    sentence_piece,
    special,
    write,
)

from t2t_repro import errors
from t2t_repro.importing import imported, marian

pytestmark = pytest.mark.usefixtures("kept_abstract_models")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    spm = sentence_piece()
    tokens = pieces(spm)
    options = OPTIONS | {"enc-depth": 1}
    arrays = random_arrays(options, [len(tokens)] * 2)
    folder = write(
        tmp_path_factory.mktemp("marian") / "model",
        options,
        arrays,
        **{
            "decoder.yml": {"models": ["model.npz"], "vocabs": ["vocab.yml"]},
            "vocab.yml": {token: i for i, token in enumerate(tokens)},
            "source.spm": spm,
            "target.spm": spm,
        },
    )
    stored = {"special:model.yml": special(options)} | arrays
    (folder / "model.bin").write_bytes(binary(stored))
    return folder


@pytest.mark.parametrize(
    "name",
    ["model.npz", "model.bin", "decoder.yml", "vocab.yml", "source.spm"],
)
@settings(max_examples=40)
@given(data=st.data())
def test_edited_file_is_read_or_named(folder, name, data):
    path = folder / name
    whole = path.read_bytes()
    model = folder / ("model.bin" if name == "model.bin" else "model.npz")
    path.write_bytes(data.draw(edited_bytes(whole)))
    try:
        assert isinstance(marian.read(model), imported.Imported)
    except errors.UserError as error:
        assert str(error)
    finally:
        path.write_bytes(whole)


@given(data=st.data())
def test_edited_options_are_read_or_named(folder, data):
    """Edits of the whole .npz mostly break its checksums."""
    whole = special(OPTIONS | {"enc-depth": 1}).tobytes()
    content = data.draw(edited_bytes(whole))
    try:
        options = marian.parse_options(content, folder / "model.npz")
        options.hparams(has_positions=False)
    except errors.UserError as error:
        assert "model.npz" in str(error)
