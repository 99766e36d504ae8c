"""Small models of other systems, and models that a reader found."""

import json
import pathlib
import shutil

import fairseq_models
import marian_models
import numpy as np
import opennmt_tf_models
import pytest
import safetensors.numpy
import tensor2tensor_models

from t2t_repro import registry
from t2t_repro.importing import (
    fairseq,
    huggingface,
    marian,
    opennmt_tf,
    run_writer,
    tensor2tensor,
)
from t2t_repro.models import building, seq2seq

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


def few(names):
    """Return test parameters, all but the first two of which are slow."""
    return [
        pytest.param(name, id=name, marks=[] if i < 2 else pytest.mark.slow)
        for i, name in enumerate(names)
    ]


def build(found):
    """Return the model of an Imported, with its weights."""
    registry.load_definitions()
    hparams = run_writer.build_hparams(found)
    variables = run_writer.build_variables(found, hparams)
    model = building.build(hparams, **found.vocabularies.pair.sizes)
    for path, weight in building.by_path(model.weights).items():
        weight.assign(variables[f"weights/{path}"])
    return model


def encode(found, source, target):
    """Return the ids [L] and [T] of two lines."""
    pair = found.vocabularies.pair
    return [*pair.source.encode([source]), *pair.target.encode([target])]


def forward(model, inputs, targets):
    """Return the logits [T, V] of a model for ids [L] and [T]."""
    batch = seq2seq.one_sentence_per_row(
        np.array([inputs], np.int32), np.array([targets], np.int32)
    )
    return np.asarray(model(batch))[0]


def logits(found, inputs, targets):
    """Return forward() of an Imported."""
    return forward(build(found), inputs, targets)


def log_probs(model, inputs, targets):
    """Return log-probabilities [T, V], and those of the targets [T]."""
    logits = forward(model, inputs, targets).astype(float)
    found = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return found, found[np.arange(len(targets)), targets]


def _arrays(arrays, changes):
    """Return arrays with those that differ.

    A value is an array, {"ones": its shape}, with a type or of float32, or
    {"reversed": name} of an array whose rows it has.
    """
    changed = dict(arrays)
    for name, value in dict(changes).items():
        if isinstance(value, list):
            value = np.float32(value)
        elif isinstance(value, dict) and "ones" in value:
            value = np.ones(value["ones"], value.get("type", "float32"))
        elif isinstance(value, dict):
            value = arrays[value["reversed"]][::-1].copy()
        changed[name] = value
    return {k: v for k, v in changed.items() if v is not None}


def change_files(folder, changes):
    """Write files: text in Latin-1, or values of JSON."""
    for name, content in dict(changes).items():
        if content is None:
            (folder / name).unlink()
            continue
        if not isinstance(content, str):
            content = json.dumps(content)
        (folder / name).write_bytes(content.encode("latin-1"))


# Each function writes a model into a folder, and returns its reader. `arrays`
# and `files` have what differs, by name; None: the model lacks it.


def write_fairseq(folder, settings=(), arrays=(), files=(), tokenizer="none"):
    state = fairseq_models.state(fairseq_models.arguments())
    fairseq_models.write_vocabularies(folder)
    change_files(folder, files)
    checkpoint = {
        "args": fairseq_models.arguments(**dict(settings)),
        "model": _arrays(state, arrays),
    }
    return lambda: fairseq.convert(checkpoint, folder / "model.pt", tokenizer)


def write_huggingface(
    folder, settings=(), arrays=(), files=(), golden="huggingface"
):
    shutil.copytree(GOLDEN / golden, folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | dict(settings)))
    path = folder / "model.safetensors"
    found = _arrays(safetensors.numpy.load_file(path), arrays)
    safetensors.numpy.save_file(found, path)
    change_files(folder, files)
    return lambda: huggingface.read(folder)


def write_marian(folder, settings=(), arrays=(), files=()):
    folder, found, options = marian_models.random_model(folder)
    options, found = options | dict(settings), _arrays(found, arrays)
    marian_models.write(folder, options, found)
    change_files(folder, files)
    return lambda: marian.read(folder)


def write_opennmt_tf(
    folder,
    settings=(),
    arrays=(),
    files=(),
    data="",
    one_embedding=False,
    learned=False,
):
    structure = {"learned": learned, "one_embedding": one_embedding}
    found = opennmt_tf_models.arrays(**structure)
    arrays = {f"{k}{opennmt_tf_models.END}": v for k, v in dict(arrays).items()}
    found = _arrays(found, arrays)
    more = ", ".join(
        f"{name}={value}" for name, value in dict(settings).items()
    )
    opennmt_tf_models.write(folder, found, data=data, more=more)
    change_files(folder, files)
    return lambda: opennmt_tf.read(folder)


def write_tensor2tensor(folder, settings=(), arrays=(), files=()):
    hparams = tensor2tensor_models.settings()
    found = _arrays(tensor2tensor_models.arrays(hparams), arrays)
    vocabulary = tensor2tensor_models.VOCABULARY
    hparams |= dict(settings)
    tensor2tensor_models.write(folder, hparams, found, subwords=vocabulary)
    change_files(folder, files)
    return lambda: tensor2tensor.read(folder)
