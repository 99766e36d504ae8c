"""Tests of the readers of BART and FSMT, against transformers.

tests/golden/golden_bpe.py wrote the models and what they give.
"""

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from imported_models import forward, write_huggingface

from t2t_repro import errors
from t2t_repro.data.corpus import Encoder
from t2t_repro.decoding import score, search
from t2t_repro.decoding.translate import BatchTranslator
from t2t_repro.importing import (
    huggingface,
    huggingface_vocabularies,
    run_writer,
)
from t2t_repro.runs.run import Run
from t2t_repro.serving import graph_vocabularies
from t2t_repro.serving.served_model import ServedModel

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
EXTRA_LENGTH, EVERY, ROWS = 8, 7, 6  # of the writer


class Family(NamedTuple):
    name: str
    run: Run
    orders: Any  # their id of each of ours, on both sides
    expected: Any

    @property
    def leads(self):
        return self.run.vocabularies.source.leads_outputs

    @property
    def sources(self):
        return self.run.vocabularies.source.encode(self.expected["lines"])


@pytest.fixture(scope="module", params=["bart", "fsmt"])
def family(definitions, request, tmp_path_factory):
    golden = GOLDEN / request.param
    folder = tmp_path_factory.mktemp(request.param) / "run"
    found = huggingface.read(golden)
    run_writer.write(found, "huggingface", folder, "-".join(found.languages))
    config = json.loads((golden / "config.json").read_text("utf-8"))
    config["forced_bos_token_id"] = 0
    read = getattr(huggingface_vocabularies, f"read_{request.param}")
    return Family(
        request.param,
        Run.open(folder),
        read(golden, config, {}).orders,
        json.loads((golden / "expected.json").read_text("utf-8")),
    )


@pytest.fixture(scope="module")
def model(family):
    (model,) = family.run.models()
    return model


def test_tokens_equal_those_of_transformers(family):
    order = family.orders[0]
    rows = [[order[i] for i in row[family.leads :]] for row in family.sources]
    assert rows == family.expected["inputs"]


def test_texts_equal_those_of_transformers(family):
    ours = np.argsort(family.orders[1])
    rows = [ours[row] for row in family.expected["beam"]]
    found = family.run.vocabularies.target.decode(rows)
    theirs = [text.replace("\n", " ") for text in family.expected["texts"]]
    assert found == theirs


@pytest.mark.parametrize("family", ["bart"], indirect=True)
def test_graph_has_the_same_tokens_and_texts(family):
    vocabulary = family.run.vocabularies.source
    built, _ = graph_vocabularies.build(family.run.vocabularies)
    lines = [*family.expected["lines"], ""]
    rows = [row[:-1] for row in vocabulary.encode(lines)]
    assert built.encode(tf.constant(lines)).to_list() == rows
    rows = [[i] for i in range(2, vocabulary.size)] + rows
    texts = [
        text.decode() for text in built.decode(tf.ragged.constant(rows)).numpy()
    ]
    assert texts == vocabulary.join(rows)


def test_logits_equal_those_of_transformers(model, family):
    ours = [np.argsort(order) for order in family.orders]
    source, target = family.expected["inputs"][:2]
    target = [ours[1][i % len(ours[1])] for i in target[:ROWS]]
    found = forward(model, ours[0][source], target)
    theirs = np.array(family.expected["logits"])
    np.testing.assert_allclose(found[:, ours[1][::EVERY]], theirs, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "beams"), [("greedy", 1), ("beam", 4)])
def test_outputs_equal_those_of_generate(family, model, name, beams):
    hparams = family.run.search.override(
        {"beam_size": beams, "extra_length": EXTRA_LENGTH}
    )
    found = search.search(
        [model],
        score.pad_rows(family.sources),
        hparams,
        rule=search.build_rules(hparams, family.run.vocabularies.source),
    )
    order = family.orders[1]
    rows = found.ids[:, 0].numpy()
    outputs = [[order[i] for i in row if i] for row in rows]
    assert outputs == family.expected[name]


@pytest.mark.slow
def test_export_has_the_outputs_of_the_decoder(family, model):
    if family.name == "fsmt":
        with pytest.raises(errors.UserError, match="BpeCodes has no graph_cl"):
            ServedModel([model], family.run.vocabularies, family.run.search, "")
        return
    lines = family.expected["lines"][:3]
    hparams = family.run.search.override({"extra_length": 2})
    translator = BatchTranslator([model], family.run.vocabularies, hparams)
    decoded = [*translator.translate(lines)]
    scored = [x.total for x in translator.score(zip(lines, lines, strict=True))]
    served = ServedModel([model], family.run.vocabularies, hparams, "float32")
    texts = tf.constant([*lines, ""])
    found = served.translate(texts)
    outputs = [text.decode() for text in found["outputs"].numpy()]
    assert outputs == [*(each.text for each in decoded), ""]
    np.testing.assert_allclose(
        found["scores"][:3], [each.scores[0] for each in decoded], rtol=1e-4
    )
    np.testing.assert_allclose(
        served.score(texts, texts)["scores"][:3], scored, rtol=1e-4
    )


def test_targets_of_training_are_those_of_labels(family):
    pairs = [("Two dogs", "play"), ("", "")]
    found = Encoder(family.run.vocabularies, None).encode(pairs).ids
    sources, targets = (
        [[order[i] for i in row] for row in found[side].to_pylist()]
        for side, order in zip(
            ("inputs", "targets"), family.orders, strict=True
        )
    )
    first = [0] * family.leads  # <s>
    (source, *_), (target, *_) = (
        vocabulary.encode([text])
        for vocabulary, text in zip(
            family.run.vocabularies, pairs[0], strict=True
        )
    )
    ours = source[family.leads :], target
    wanted = [
        [order[i] for i in row]
        for row, order in zip(ours, family.orders, strict=True)
    ]
    assert sources == [wanted[0], [2]]
    assert targets == [first + wanted[1], [2]]


def test_output_of_bart_may_begin_with_any_token(tmp_path):
    files = {"generation_config.json": {"forced_bos_token_id": None}}
    found = write_huggingface(tmp_path, files=files, golden="bart")()
    assert found.vocabularies.is_shared
    assert not found.vocabularies.source.leads_outputs
    (row,) = found.vocabularies.source.encode(["x"])
    assert found.vocabularies.source.pieces(row) == ["<s>", "x", "</s>"]


def test_newer_files_of_bart_have_the_same_tokens(tmp_path):
    golden = GOLDEN / "bart"
    ids = json.loads((golden / "vocab.json").read_text("utf-8"))
    lines = (golden / "merges.txt").read_text("utf-8").split("\n")[1:-1]
    stored = {
        "model": {"vocab": ids, "merges": lines, "type": "BPE"},
        "added_tokens": [{"id": ids["<mask>"], "content": "<mask>"}],
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "use_regex": True,
        },
    }
    files = {"tokenizer.json": stored, "vocab.json": None, "merges.txt": None}
    newer = write_huggingface(tmp_path, files=files, golden="bart")()
    older = huggingface.read(golden)
    assert newer.vocabularies.sha256 == older.vocabularies.sha256


@pytest.mark.parametrize("name", ["embed_tokens", "output_projection"])
def test_softmax_of_older_fsmt_has_either_name(tmp_path, name):
    arrays = {f"model.decoder.{name}.weight": None}
    read = write_huggingface(tmp_path, arrays=arrays, golden="fsmt")
    found = read().hparams
    assert found["shared_targets_embedding_and_softmax_weights"]
