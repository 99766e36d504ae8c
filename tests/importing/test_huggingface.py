"""Tests of the reader of Hugging Face's models, against transformers.

tests/golden/golden_huggingface.py wrote the model and what it gives.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from t2t_repro import errors, fields, hparam
from t2t_repro.data import batches
from t2t_repro.decoding import score, search, translate
from t2t_repro.importing import huggingface, imported, run_writer
from t2t_repro.layers.embedding import SinesThenCosines
from t2t_repro.runs.run import Run
from t2t_repro.serving import exporting
from t2t_repro.serving.client import ExportedModel

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "huggingface"
EXTRA_LENGTH = 12  # subwords
SHARED = "model.shared.weight"


@pytest.fixture(scope="module")
def expected():
    return json.loads((GOLDEN / "expected.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def run(definitions, tmp_path_factory):
    folder = tmp_path_factory.mktemp("huggingface") / "run"
    run_writer.write(huggingface.read(GOLDEN), "huggingface", folder, "en-de")
    return Run.open(folder)


@pytest.fixture(scope="module")
def model(run):
    (model,) = run.models()
    return model


@pytest.fixture(scope="module")
def orders():
    """Their id of each of our ids, on both sides."""
    config = json.loads((GOLDEN / "config.json").read_text("utf-8"))
    return huggingface.read_vocabularies(GOLDEN, config).orders


@pytest.fixture
def copy(tmp_path):
    """Return a function that copies the model with changes of config.json."""

    def copy(**changes):
        folder = tmp_path / "model"
        shutil.copytree(GOLDEN, folder)
        path = folder / "config.json"
        config = json.loads(path.read_text("utf-8")) | changes
        path.write_text(json.dumps(config), "utf-8")
        return folder

    return copy


@pytest.mark.parametrize("side", ["inputs", "targets"])
def test_tokens_equal_those_of_transformers(run, orders, expected, side):
    number = ("inputs", "targets").index(side)
    vocabulary, order = run.vocabularies[number], orders[number]
    ids = vocabulary.encode(expected["lines"])
    assert [[order[i] for i in row] for row in ids] == expected[side]


def test_logits_equal_those_of_transformers(model, orders, expected):
    count = len(expected["logits"])
    sources = expected["inputs"][:count]
    targets = expected["targets"][count : 2 * count]
    batch = batches.one_sentence_per_row(
        *(
            tf.constant(
                score.pad_rows([np.argsort(order)[row] for row in rows]),
                tf.int32,
            )
            for order, rows in zip(orders, (sources, targets), strict=True)
        )
    )
    found = np.asarray(model(batch))
    for logits, theirs, target in zip(
        found, expected["logits"], targets, strict=True
    ):
        theirs = np.array(theirs)[: len(target), orders[1]]
        np.testing.assert_allclose(logits[: len(target)], theirs, atol=1e-4)


@pytest.mark.parametrize(("name", "beams"), [("greedy", 1), ("beam", 4)])
def test_outputs_equal_those_of_generate(
    run, model, orders, expected, name, beams
):
    hparams = fields.override(
        run.problem.search, {"beam_size": beams, "extra_length": EXTRA_LENGTH}
    )
    # A batch of sentences whose searches end at different steps.
    inputs = score.pad_rows(
        [np.argsort(orders[0])[row] for row in expected["inputs"]]
    )
    found = search.search([model], tf.constant(inputs, tf.int32), hparams)
    outputs = [
        [orders[1][i] for i in row if i] for row in found.ids[:, 0].numpy()
    ]
    assert outputs == expected[name]


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
    ],
)
def test_shortest_output_is_that_of_generation_config(copy, stored, shortest):
    folder = copy()
    (folder / "generation_config.json").write_text(json.dumps(stored))
    assert huggingface.read(folder).search["min_length"] == shortest


@pytest.mark.slow
def test_saved_model_translates_as_the_run(run, model, expected, tmp_path):
    translator = translate.BatchTranslator(
        [model], run.vocabularies, run.problem.search
    )
    lines = expected["lines"]
    translations = [found.text for found in translator.translate(lines)]
    exporting.write(run, tmp_path / "export")
    export = ExportedModel(tmp_path / "export")
    assert [found.text for found in export.translate(lines)] == translations
    assert len(set(translations)) > 5


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"source_lang": "en", "target_lang": "zh-Hans"}, "and 'zh-Hans'"),
        ({"source_lang": "en"}, "tokenizer_config.json names 'en' and ''"),
        ({}, "The files do not name the languages. Say --languages=en-de"),
    ],
)
def test_languages_that_are_no_extensions_are_named(copy, stored, message):
    folder = copy()
    (folder / "tokenizer_config.json").write_text(json.dumps(stored))
    with pytest.raises(errors.UserError, match=message) as error:
        imported.languages_of(huggingface.read(folder))
    assert "Say --languages=en-de." in str(error.value)


def edit(folder, change):
    """Write the weights again after change(arrays)."""
    path = folder / "model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    change(arrays)
    safetensors.numpy.save_file(arrays, path)


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


def test_weights_in_several_files_are_read_by_their_index(copy):
    folder = copy()
    whole = huggingface.read(folder)
    shard(folder)
    found = huggingface.read(folder)
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
def test_index_of_other_arrays_is_refused(copy, change, message):
    folder = copy()
    shard(folder, change)
    with pytest.raises(errors.UserError, match=message):
        huggingface.read(folder)


HEAD = "lm_head.weight"
SIDES = [f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]


def test_matrices_of_their_own_are_used_and_the_unused_one_is_named(copy):
    def add(arrays):
        for number, name in enumerate([*SIDES, HEAD]):
            arrays[name] = arrays[SHARED] + number + 1

    folder = copy(tie_word_embeddings=False)
    edit(folder, add)
    found = huggingface.read(folder)
    assert found.left_over == (SHARED,)
    inputs, targets, softmax = (
        found.weights[f"{name}/weight"]
        for name in ("inputs_embedding", "targets_embedding", "softmax")
    )
    for array, base in ((targets, inputs), (softmax, targets)):
        np.testing.assert_allclose(array - base, 1, atol=1e-5)


@pytest.mark.parametrize("is_theirs", [True, False])
def test_stored_positions_must_be_the_formula(copy, is_theirs):
    table = np.array(
        SinesThenCosines()(np.zeros((1, 64, 16)), np.arange(64)[None])[0]
    )

    def add(arrays):
        arrays["model.encoder.embed_positions.weight"] = (
            table if is_theirs else table[::-1].copy()
        )

    folder = copy()
    edit(folder, add)
    if is_theirs:
        assert huggingface.read(folder).hparams["pos"] == "sines_then_cosines"
        return
    with pytest.raises(errors.UserError, match="embed_positions.* sinusoids"):
        huggingface.read(folder)


def test_start_that_is_not_zero_is_learned(copy):
    def change(arrays):
        arrays["model.shared.weight"][-1] = 1.0

    folder = copy()
    edit(folder, change)
    found = huggingface.read(folder)
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
def test_licence_is_that_of_the_card_of_the_hub(copy, card, license):
    folder = copy()
    (folder / "README.md").write_text(card)
    origin = run_writer.origin_of(huggingface.read(folder), "huggingface")
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
