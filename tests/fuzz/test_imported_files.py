"""Edited files of other systems' models: each is read, or refused."""

import functools
import json
import pathlib

import fairseq_models
import imported_models
import marian_models
import pytest
from file_strategies import JSON, edited_bytes, edited_json
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.importing import ctranslate2, marian, run_writer

pytestmark = pytest.mark.usefixtures("kept_abstract_models")
MARIAN_OPTIONS = marian_models.OPTIONS | {"enc-depth": 1}
FILES = {
    "bart": ["vocab.json", "merges.txt"],
    "ctranslate2": ["model.bin", "config.json", "shared_vocabulary.json"],
    "fairseq": ["dict.en.txt", "dict.de.txt", "bpecodes"],
    "fsmt": ["vocab-src.json"],
    "huggingface": [
        *("config.json", "generation_config.json", "model.safetensors"),
        *("source.spm", "vocab.json"),
    ],
    "m2m_100": ["tokenizer_config.json", "vocab.json"],
    "marian": ["model.npz", "decoder.yml", "vocab.yml", "source.spm"],
    "marian_binary": ["model.bin"],
    "mbart50": ["tokenizer_config.json"],
    "nllb": ["tokenizer.json"],
    "opennmt_tf": ["data.yml", "model_description.py", "src.vocab"],
    "t5": ["config.json", "tokenizer_config.json", "spiece.model"],
    "tensor2tensor": [
        *("hparams.json", "model.ckpt-7.index"),
        *("model.ckpt-7.data-00000-of-00001", "vocab.translate_ende.subwords"),
    ],
}


# Each function writes a model into a folder, and returns its reader.


def write_ctranslate2(folder):
    import ctranslate2_specs

    ctranslate2_specs.save(ctranslate2_specs.build(layers=1), folder, "int8")
    return lambda: ctranslate2.read(folder)


def write_marian(folder, name="model.npz"):
    tokens = marian_models.TOKENS
    sizes = [len(tokens)] * 2
    arrays = marian_models.Model(MARIAN_OPTIONS, None, sizes).drawn()
    files = {
        "decoder.yml": {"models": ["model.npz"], "vocabs": ["vocab.yml"]},
        "vocab.yml": marian_models.ids_by_token(tokens),
        "source.spm": marian_models.SPM,
        "target.spm": marian_models.SPM,
    }
    marian_models.write(folder, MARIAN_OPTIONS, arrays, **files)
    stored = {"special:model.yml": marian_models.special(MARIAN_OPTIONS)}
    binary = marian_models.binary(stored | arrays)
    (folder / "model.bin").write_bytes(binary)
    return lambda: marian.read(folder / name)


WRITERS = {
    "ctranslate2": write_ctranslate2,
    "fairseq": imported_models.write_fairseq,
    "marian": write_marian,
    "marian_binary": functools.partial(write_marian, name="model.bin"),
    "opennmt_tf": imported_models.write_opennmt_tf,
    "tensor2tensor": imported_models.write_tensor2tensor,
} | {
    name: functools.partial(imported_models.write_huggingface, golden=name)
    for name in FILES
    if (imported_models.GOLDEN / name).is_dir()
}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Return a function of a system: folder of its model, and reader."""

    @functools.cache
    def write(system):
        folder = tmp_path_factory.mktemp(system)
        return folder, WRITERS[system](folder)

    return write


def read_or_refuse(read):
    """Check that a model is refused, or can be written as a run."""
    try:
        found = read()
        run_writer.build_variables(found, run_writer.build_hparams(found))
    except errors.UserError as error:
        assert str(error)
        return
    vocabulary = found.vocabularies.pair.source
    (ids,) = vocabulary.encode(["the cat"])
    assert ids[-1] == 1 and max(ids) < vocabulary.size


@pytest.mark.parametrize(
    ("system", "name"),
    [(system, name) for system, names in FILES.items() for name in names],
)
@settings(max_examples=15)
@given(data=st.data())
def test_edited_file_is_read_or_refused(make, system, name, data):
    folder, read = make(system)
    whole = (folder / name).read_bytes()
    if name.endswith(".json"):
        content = data.draw(edited_json(json.loads(whole)))
    else:
        content = data.draw(edited_bytes(whole[:2_000]))
        content += whole[2_000:] * data.draw(st.booleans())
    (folder / name).write_bytes(content)
    try:
        read_or_refuse(read)
    finally:
        (folder / name).write_bytes(whole)


@settings(max_examples=40)
@given(st.sampled_from(sorted(fairseq_models.arguments())), JSON)
def test_changed_setting_of_fairseq_is_read_or_refused(make, key, value):
    folder, _ = make("fairseq")
    read_or_refuse(imported_models.write_fairseq(folder, {key: value}))


@given(edited_bytes(marian_models.special(MARIAN_OPTIONS).tobytes()))
def test_edited_options_of_marian_are_read_or_named(content):
    """Edits of the whole .npz mostly break its checksums."""
    try:
        marian.read_options(content, pathlib.Path("model.npz"))
    except errors.UserError as error:
        assert "model.npz" in str(error)
