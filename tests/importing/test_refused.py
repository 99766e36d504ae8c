"""Models of all systems that are refused, by the name of what is wrong.

refused.yml has the rows: a system, what differs from a good model, the message.
"""

import inspect
import json
import pathlib
import runpy
import shutil

import fairseq_models
import marian_models
import numpy as np
import opennmt_tf_models
import pytest
import safetensors.numpy
import tensor2tensor_models
import yaml
from marian_models import SPM, TOKENS

from t2t_repro import errors
from t2t_repro.importing import (
    ctranslate2,
    fairseq,
    huggingface,
    marian,
    opennmt_tf,
    tensor2tensor,
)
from t2t_repro.text.t2t_subwords import T2TSubwords

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "huggingface"


def change_arrays(arrays, changes):
    """Return arrays with those of a row.

    A value is an array, {"ones": its shape}, with a type or of float32, or
    {"reversed": name} of an array whose rows it has.
    """
    changed = dict(arrays)
    for name, value in changes.items():
        if isinstance(value, list):
            value = np.float32(value)
        elif value and "ones" in value:
            value = np.ones(value["ones"], value.get("type", "float32"))
        elif value:
            value = arrays[value["reversed"]][::-1].copy()
        changed[name] = value
    return {k: v for k, v in changed.items() if v is not None}


def change_files(folder, changes):
    """Write the files of a row: text in Latin-1, or values of JSON."""
    for name, content in changes.items():
        if content is None:
            (folder / name).unlink()
            continue
        if not isinstance(content, str):
            content = json.dumps(content)
        (folder / name).write_bytes(content.encode("latin-1"))


def read_fairseq(folder, settings, arrays, files, tokenizer="none"):
    tokens = fairseq_models.SUBWORDS, fairseq_models.OTHERS
    state = fairseq_models.state(
        fairseq_models.arguments(), [4 + len(side) for side in tokens]
    )
    for language, side in zip(("en", "de"), tokens, strict=True):
        text = fairseq_models.dictionary(side)
        (folder / f"dict.{language}.txt").write_text(text)
    (folder / "bpecodes").write_text(fairseq_models.CODES)
    change_files(folder, files)
    checkpoint = {
        "args": fairseq_models.arguments(**settings),
        "model": change_arrays(state, arrays),
    }
    fairseq.convert(checkpoint, folder / "model.pt", tokenizer)


def read_huggingface(folder, settings, arrays, files):
    shutil.copytree(GOLDEN, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | settings))
    path = folder / "model.safetensors"
    found = change_arrays(safetensors.numpy.load_file(path), arrays)
    safetensors.numpy.save_file(found, path)
    change_files(folder, files)
    huggingface.read(folder)


def read_marian(folder, settings, arrays, files):
    sizes = [len(TOKENS)] * 2
    found = marian_models.random_arrays(marian_models.OPTIONS, sizes)
    options = marian_models.OPTIONS | {"dim-vocabs": sizes} | settings
    marian_models.write(
        folder, options, change_arrays(found, arrays), **{"vocab.spm": SPM}
    )
    change_files(folder, files)
    marian.read(folder)


def read_opennmt_tf(
    folder, settings, arrays, files, data="", one_embedding=False, learned=False
):
    rows = [
        len(side) + 1
        for side in (opennmt_tf_models.SOURCE, opennmt_tf_models.TARGET)
    ]
    found = opennmt_tf_models.arrays(
        rows, learned=learned, one_embedding=one_embedding
    )
    arrays = {f"{k}{opennmt_tf_models.END}": v for k, v in arrays.items()}
    found = change_arrays(found, arrays)
    more = ", ".join(f"{name}={value}" for name, value in settings.items())
    opennmt_tf_models.write(folder, found, data=data, more=more)
    change_files(folder, files)
    opennmt_tf.read(folder)


def read_tensor2tensor(folder, settings, arrays, files):
    hparams = tensor2tensor_models.settings()
    vocabulary = tensor2tensor_models.subwords()
    rows = T2TSubwords(vocabulary).size
    found = tensor2tensor_models.arrays(hparams, (rows, rows))
    tensor2tensor_models.write(
        folder,
        hparams | settings,
        change_arrays(found, arrays),
        subwords=vocabulary,
    )
    change_files(folder, files)
    tensor2tensor.read(folder)


def read_ctranslate2(folder, settings, arrays, files, change=None, config=()):
    pytest.importorskip(
        "ctranslate2", reason="the extra ctranslate2 is not installed"
    )
    specs = runpy.run_path(f"{HERE}/ctranslate2_specs.py")
    sides = [settings.pop(side, {}) for side in ("encoder", "decoder")]
    spec = specs["build"](layers=1, sides=sides, **settings)
    for name, value in dict(config).items():
        setattr(spec.config, name, value)
    if change:
        name, *arguments = change
        globals()[name](spec, *arguments)
    specs["save"](spec, folder)
    change_files(folder, files)
    ctranslate2.read(folder)


def heads(spec, number):
    for side in (spec.encoder, spec.decoder):
        side.num_heads = np.dtype("int16").type(number)


def language(spec, token):
    (tokens,) = spec._vocabularies["source"]
    tokens = [*tokens[:-1], token]
    spec._vocabularies = {"source": [tokens], "target": [tokens]}
    spec.config.decoder_start_token = "</s>"


def short_relative_tables(spec):
    for side in (spec.encoder, spec.decoder):
        for layer in side.layer:
            for kind in ("keys", "values"):
                name = f"relative_position_{kind}"
                table = getattr(layer.self_attention, name)
                setattr(layer.self_attention, name, table[:1])


def only_encoder_has_positions(spec):
    table = np.ones((4, 16), np.float32)
    spec.encoder.position_encodings.encodings = table


def unknown_scalar(spec):
    spec.decoder.final_logit_softcapping = 30.0


def unknown_matrix(spec):
    linear = spec.decoder.layer[0].ffn.linear_1
    linear.weight_zero = np.ones((3, 3), np.float32)


ROWS = yaml.safe_load((HERE / "refused.yml").read_text("utf-8"))


@pytest.mark.parametrize(
    ("system", "changes", "message"),
    [
        pytest.param(system, *row, id=f"{system}-{i}")
        for system, rows in ROWS.items()
        for i, row in enumerate(rows)
    ],
)
def test_model_is_refused_by_name(system, changes, message, tmp_path):
    reader = globals()[f"read_{system}"]
    known = inspect.signature(reader).parameters
    settings = {k: v for k, v in changes.items() if k not in known}
    others = {k: v for k, v in changes.items() if k in known}
    arguments = {"arrays": {}, "files": {}} | others
    with pytest.raises(errors.UserError, match=message) as error:
        reader(tmp_path, settings, **arguments)
    assert len(str(error.value)) < 3_000
