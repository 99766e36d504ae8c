"""Tests of the reader of T5 and MADLAD-400, against transformers.

tests/golden/golden_t5.py wrote the models and what they give.
"""

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from imported_models import build

from t2t_repro.decoding import score, search
from t2t_repro.decoding.translate import BatchTranslator
from t2t_repro.hparam import DecodeHParams
from t2t_repro.importing import huggingface, imported, run_writer
from t2t_repro.importing.imported import Imported
from t2t_repro.models import seq2seq
from t2t_repro.runs.run import Run
from t2t_repro.serving import graph_vocabularies
from t2t_repro.serving.served_model import ServedModel

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
EXTRA_LENGTH, EVERY = 8, 7  # of the writer


class Family(NamedTuple):
    found: Imported
    model: seq2seq.Seq2Seq
    order: np.ndarray  # their id of each of ours
    expected: Any

    @property
    def vocabularies(self):
        return self.found.vocabularies

    def theirs(self, rows):
        return [self.order[[i for i in row if i]].tolist() for row in rows]

    def ours(self, rows):
        return [np.argsort(self.order)[row].tolist() for row in rows]


@pytest.fixture(
    scope="module",
    params=["t5", pytest.param("madlad", marks=pytest.mark.slow)],
)
def family(definitions, request):
    found = huggingface.read(GOLDEN / request.param)
    text = (GOLDEN / request.param / "expected.json").read_text("utf-8")
    special = (0, 1) if request.param == "t5" else (1, 2)  # PAD and EOS
    rest = set(range(found.vocabularies.source.size)) - {*special}
    order = np.array([*special, *sorted(rest)])
    return Family(found, build(found), order, json.loads(text))


def test_tokens_equal_those_of_transformers(family):
    """Also in a graph, with unknown text, sentinels, bytes and tags."""
    lines = family.expected["lines"]
    ids = family.vocabularies.source.encode(lines)
    assert family.theirs(ids) == family.expected["inputs"]
    (graph, _) = graph_vocabularies.build(family.vocabularies)
    assert graph.encode(tf.constant(lines)).to_list() == [r[:-1] for r in ids]


def test_logits_equal_those_of_transformers(family):
    source, target = family.ours(family.expected["inputs"][:2])
    batch = seq2seq.one_sentence_per_row(
        *(tf.constant([row], tf.int32) for row in (source, target))
    )
    found = np.asarray(family.model(batch))[0]
    columns = np.argsort(family.order)[::EVERY]
    np.testing.assert_allclose(
        found[:, columns], family.expected["logits"], atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "beams"),
    [pytest.param("greedy", 1, marks=pytest.mark.slow), ("beam", 4)],
)
def test_outputs_equal_those_of_generate(family, name, beams):
    hparams = DecodeHParams(**family.found.search).override(
        {"beam_size": beams, "extra_length": EXTRA_LENGTH}
    )
    inputs = score.pad_rows(family.ours(family.expected["inputs"]))
    found = search.search([family.model], inputs, hparams)
    assert family.theirs(found.ids[:, 0].numpy()) == family.expected[name]


@pytest.mark.slow
def test_export_has_the_outputs_of_the_decoder(family, tmp_path):
    languages = imported.languages_of(family.found)  # "-" of MADLAD
    assert languages in ("inputs-targets", "-")
    run_writer.write(family.found, "huggingface", tmp_path / "run", languages)
    run = Run.open(tmp_path / "run")
    if run.problem.target_languages:
        run = run.toward("de")
    hparams = run.search.override({"extra_length": 2})
    settings = run.models(), run.vocabularies, hparams
    lines = [line.removeprefix("<2de> ") for line in family.expected["lines"]]
    tagged = list(map(run.problem.normalizers[0], lines))
    assert tagged == family.expected["lines"]
    decoded = list(BatchTranslator(*settings).translate(tagged))
    served = ServedModel(*settings, "float32")
    served.tag = run.problem.tag
    found = served.translate(tf.constant(lines))["outputs"].numpy()
    assert [x.decode() for x in found] == [each.text for each in decoded]
