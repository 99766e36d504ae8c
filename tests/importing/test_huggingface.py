"""Tests of the reader of Hugging Face's models, against transformers.

tests/golden/golden_huggingface.py wrote the model and what it gives.
"""

import json
import pathlib
import weakref

import numpy as np
import pytest
import safetensors.numpy
from imported_models import write_huggingface

from t2t_repro import errors, hparam
from t2t_repro.importing import (
    arrays,
    huggingface,
    imported,
    run_writer,
    weights,
)
from t2t_repro.layers.embedding import SinesThenCosines
from t2t_repro.runs.run import Run

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "huggingface"
EXTRA_LENGTH = 12  # subwords
SHARED = "model.shared.weight"


@pytest.fixture(scope="module")
def run(definitions, tmp_path_factory):
    folder = tmp_path_factory.mktemp("huggingface") / "run"
    run_writer.write(huggingface.read(GOLDEN), "huggingface", folder, "en-de")
    return Run.open(folder)


def test_search_is_that_of_generation_config(run):
    assert run.problem.search == hparam.DecodeHParams(
        beam_size=4,
        alpha=1.0,
        length_penalty_offset=0,
        beam_search="huggingface",
    )


@pytest.mark.parametrize(
    ("stored", "shortest"),
    [
        ({"min_length": 5}, 5),  # EOS is the fifth at least
        ({"min_new_tokens": 5}, 6),  # five before EOS
        ({"min_length": 7, "min_new_tokens": 5, "bad_words_ids": [[42]]}, 7),
        ({"do_sample": False, "suppress_tokens": []}, 0),
        (None, 9),  # of config.json, which is not read otherwise
    ],
)
def test_shortest_output_is_that_of_generation_config(
    tmp_path, stored, shortest
):
    files = {"generation_config.json": stored}
    found = write_huggingface(tmp_path, {"min_length": 9}, files=files)()
    assert found.search["min_length"] == shortest


@pytest.mark.parametrize(
    ("stored", "has_none"),
    [
        ({"bad_words_ids": [[42]], "renormalize_logits": True}, True),
        ({"bad_words_ids": [[42]]}, False),
        ({"renormalize_logits": True}, False),
    ],
)
def test_pad_has_no_probability_where_generate_gives_it_none(
    tmp_path, stored, has_none
):
    files = {"generation_config.json": stored}
    found = write_huggingface(tmp_path, files=files)()
    biases = huggingface.read(GOLDEN).weights["softmax/bias"]
    biases[0] = imported.PAD_BIAS if has_none else biases[0]
    np.testing.assert_array_equal(found.weights["softmax/bias"], biases)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"source_lang": "en", "target_lang": "zh-Hans"}, "and 'zh-Hans'"),
        ({"source_lang": "en"}, "the model's files name 'en' and ''"),
        ({}, "files name '' and ''. Say --languages=en-de"),
    ],
)
def test_languages_that_are_no_extensions_are_named(tmp_path, stored, message):
    files = {"tokenizer_config.json": stored}
    found = write_huggingface(tmp_path, files=files)()
    with pytest.raises(errors.UserError, match=message) as error:
        imported.languages_of(found)
    assert "Say --languages=en-de." in str(error.value)


def shard(folder, change=lambda index: None):
    """Divide the weights into two files with an index."""
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = {}
    for number in (1, 2):
        part = f"model-0000{number}-of-00002.safetensors"
        names = sorted(arrays)[number - 1 :: 2]
        index |= dict.fromkeys(names, part)
        safetensors.numpy.save_file(
            {name: arrays[name] for name in names}, folder / part
        )
    change(index)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": index}))


def test_weights_in_several_files_are_read_by_their_index(tmp_path):
    read = write_huggingface(tmp_path)
    whole = read()
    shard(tmp_path)
    found = read()
    np.testing.assert_array_equal(
        found.weights["softmax/weight"], whole.weights["softmax/weight"]
    )
    names = {file.name for file in found.files}
    assert "model.safetensors.index.json" in names
    assert "model-00002-of-00002.safetensors" in names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.pop(SHARED), f"arrays are not .* {SHARED}"),
        (
            lambda index: index.update(extra=index[SHARED]),
            "arrays are not .* extra",
        ),
        (
            lambda index: index.update({SHARED: "../model.safetensors"}),
            "is not the name of a file",
        ),
        (lambda index: index.update({SHARED: "no.safetensors"}), "has no no"),
    ],
)
def test_index_of_other_arrays_is_refused(tmp_path, change, message):
    read = write_huggingface(tmp_path)
    shard(tmp_path, change)
    with pytest.raises(errors.UserError, match=message):
        read()


HEAD = "lm_head.weight"
SIDES = [f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]


@pytest.fixture(scope="module")
def matrix():
    """The matrix that embeddings and softmax share."""
    return safetensors.numpy.load_file(GOLDEN / "model.safetensors")[SHARED]


def test_matrices_of_their_own_are_used_and_the_unused_one_is_named(
    matrix, tmp_path
):
    arrays = {
        name: (matrix + number + 1).tolist()
        for number, name in enumerate([*SIDES, HEAD])
    }
    settings = {"tie_word_embeddings": False}
    found = write_huggingface(tmp_path, settings, arrays)()
    assert found.left_over == (SHARED,)
    inputs, targets, softmax = (
        found.weights[f"{name}/weight"]
        for name in ("inputs_embedding", "targets_embedding", "softmax")
    )
    for array, base in ((targets, inputs), (softmax, targets)):
        np.testing.assert_allclose(array - base, 1, atol=1e-5)


def test_stored_positions_may_be_the_formula(tmp_path):
    zeros, numbers = np.zeros((1, 64, 16)), np.arange(64)[None]
    table = np.asarray(SinesThenCosines()(zeros, numbers))[0].tolist()
    arrays = {"model.encoder.embed_positions.weight": table}
    found = write_huggingface(tmp_path, arrays=arrays)()
    assert found.hparams["pos"] == "sines_then_cosines"


def test_start_that_is_not_zero_is_learned(matrix, tmp_path):
    arrays = {SHARED: [*matrix[:-1].tolist(), [1.0] * 16]}
    found = write_huggingface(tmp_path, arrays=arrays)()
    assert found.hparams["learned_start"]
    np.testing.assert_array_equal(found.weights["start"], np.ones(16))


@pytest.mark.parametrize(
    ("card", "license"),
    [
        ("---\nlicense: apache-2.0\ntags: [a]\n---\n# Model", "apache-2.0"),
        ("---\nlanguage: en\nlicense: 'mit' \n---\n", "mit"),
        ("---\nlanguage: en\n---\nlicense: mit\n", ""),
        ("license: mit", ""),
        ("---\nlicense: [a, b]\n---\n", ""),
    ],
)
def test_licence_is_that_of_the_card_of_the_hub(tmp_path, card, license):
    folder, files = tmp_path / "model", {"README.md": card}
    found = write_huggingface(folder, files=files)()
    origin = run_writer.origin_of(found, "huggingface")
    assert (origin["name"], origin["license"]) == ("model", license)
    assert "model.safetensors" in origin["sha256"]


def test_run_refuses_a_folder_in_use(run):
    found = huggingface.read(GOLDEN)
    with pytest.raises(errors.UserError, match="is not empty"):
        run_writer.write(found, "huggingface", run.output_dir, "en-de")


def test_hparams_that_do_not_fit_are_refused(tmp_path):
    found = huggingface.read(GOLDEN)
    with pytest.raises(errors.UserError, match="decoder/layer_1.* missing"):
        run_writer.write(
            found,
            "huggingface",
            tmp_path / "run",
            "en-de",
            "num_decoder_layers=2",
        )
    assert not (tmp_path / "run").exists()


def test_variable_shares_the_memory_of_aligned_arrays_only():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    aligned = arrays.aligned_copy(array.T)
    shared, copied = map(arrays.variable, (aligned, array.T))
    np.testing.assert_array_equal(shared, copied)
    aligned[0, 1] = array[1, 0] = 7.0
    assert shared[0, 1].numpy() == 7.0
    assert copied[0, 1].numpy() == 3.0


def test_one_array_stays_one():
    tied = np.ones((3, 2), np.float32)
    found = imported.matrices([[2, -1], [2, -1]], tied, tied, tied)
    assert len(set(map(id, found.values()))) == 1
    other = imported.matrices([[2, -1], [2, 0]], tied, tied, tied.copy())
    assert len(set(map(id, other.values()))) == 3


@pytest.mark.parametrize("family", ["huggingface", "t5"])
def test_matrices_of_the_file_are_dropped_before_the_layers_are_read(
    family, monkeypatch
):
    """With them, a model of 0.6 billion weights needs 1 GB more."""
    taken, left = [], []
    take, read_stacks = arrays.Tensors.take, weights.read_stacks

    def remember(*arguments):
        found = take(*arguments)
        taken.append(weakref.ref(found))
        return found

    def count(*arguments):
        left.extend(ref for ref in taken if ref() is not None)
        return read_stacks(*arguments)

    monkeypatch.setattr(arrays.Tensors, "take", remember)
    monkeypatch.setattr(weights, "read_stacks", count)
    huggingface.read(GOLDEN.with_name(family))
    assert taken and not left
