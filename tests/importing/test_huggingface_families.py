"""Tests of the readers of all families of Hugging Face, against transformers.

The writers of tests/golden/ made the models and what they give: see there what
expected.json has.
"""

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import vocabulary_graphs
from imported_models import forward, write_huggingface

from t2t_repro import errors
from t2t_repro.data.corpus import Encoder
from t2t_repro.decoding import score, search
from t2t_repro.decoding.translate import BatchTranslator
from t2t_repro.importing import (
    huggingface,
    huggingface_vocabularies,
    imported,
    run_writer,
)
from t2t_repro.runs.run import Run
from t2t_repro.serving import graph_vocabularies
from t2t_repro.serving.graph_vocabularies import GraphTagger
from t2t_repro.serving.served_model import ServedModel
from t2t_repro.text import sentence_piece
from t2t_repro.text.languages import tag_of, tagger_of
from t2t_repro.text.vocabulary import EOS

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
EVERY = 7  # logit that the writers store
# {family: direction of translation}; "": the model has one.
FAMILIES = {
    "huggingface": "",
    "bart": "",
    "fsmt": "",
    "mbart50": "en_XX-de_DE",
    "m2m_100": "en-de",
    "nllb": "eng_Latn-deu_Latn",
    "t5": "",
    "madlad": "de",
    "pegasus": "",
}
MULTILINGUAL = "mbart50", "m2m_100", "nllb"
WITH_GRAPH = [name for name in FAMILIES if name != "fsmt"]
SLOW = "m2m_100", "nllb", "madlad", "pegasus"


def families(*names):
    """Return parameters, those of SLOW marked as such."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name in names
    ]


class Family(NamedTuple):
    name: str
    run: Run
    orders: Any  # their id of each of ours, on both sides
    expected: Any

    @property
    def source(self):
        return self.run.vocabularies.source

    @property
    def leads(self):
        """Whether a source begins with the first token of the output."""
        return self.source.leads_outputs

    @property
    def lines(self):
        """Lines with their tags; those of MADLAD have them."""
        lines = self.expected["lines"]
        if self.name in MULTILINGUAL:
            return [f"{tag_of(FAMILIES[self.name])} {line}" for line in lines]
        return lines

    @property
    def sources(self):
        return self.source.encode(self.lines)

    def theirs(self, rows, side=0):
        return [[self.orders[side][i] for i in row] for row in rows]

    def ours(self, row, side=0):
        return np.argsort(self.orders[side])[row].tolist()


def read_orders(folder):
    """Return the other system's id of each of our ids, on both sides."""

    def read(name):
        file = folder / name
        return json.loads(file.read_text("utf-8")) if file.is_file() else {}

    stored = {k: v for k, v in read("config.json").items() if v is not None}
    family = huggingface._FAMILIES[stored["model_type"]]
    config, _ = family.read_settings(stored, folder / "config.json")
    first = "forced_bos_token_id"
    config[first] = read("generation_config.json").get(first)
    settings = read("tokenizer_config.json")
    tokenizer = huggingface_vocabularies.Tokenizer(folder, config, settings)
    return family.read_vocabularies(tokenizer).orders


@pytest.fixture(scope="module", params=families(*FAMILIES))
def family(definitions, request, tmp_path_factory):
    golden = GOLDEN / request.param
    folder = tmp_path_factory.mktemp(request.param) / "run"
    found = huggingface.read(golden)
    run_writer.write(found, "huggingface", folder, imported.languages_of(found))
    return Family(
        request.param,
        Run.open(folder),
        read_orders(golden),
        json.loads((golden / "expected.json").read_text("utf-8")),
    )


@pytest.fixture(scope="module")
def model(family):
    (model,) = family.run.models()
    return model


def test_tokens_equal_those_of_transformers(family):
    rows = [row[family.leads :] for row in family.sources]
    assert family.theirs(rows) == family.expected["inputs"]
    if "targets" in family.expected:
        rows = family.run.vocabularies.target.encode(family.expected["lines"])
        assert family.theirs(rows, 1) == family.expected["targets"]
    assert family.source.encode([]) == []


@pytest.mark.parametrize("family", families("bart", "fsmt"), indirect=True)
def test_texts_equal_those_of_transformers(family):
    rows = [family.ours(row, 1) for row in family.expected["beam"]]
    found = family.run.vocabularies.target.decode(rows)
    theirs = [text.replace("\n", " ") for text in family.expected["texts"]]
    assert found == theirs


@pytest.mark.parametrize("family", families(*WITH_GRAPH), indirect=True)
def test_graph_has_the_same_tokens_and_texts(family):
    tag = tag_of(FAMILIES[family.name])
    tagged = [tag, f" {tag}\t", "<x2y> z"]
    graph, _ = graph_vocabularies.build(family.run.vocabularies)
    lines = [*family.expected["lines"], *family.lines, *tagged, ""]
    rows = [row[:-1] for row in family.source.encode(lines)]
    assert graph.encode(tf.constant(lines)).to_list() == rows
    if family.name == "bart":
        rows += [[i] for i in range(2, family.source.size)]
        vocabulary_graphs.assert_same_text(family.source, graph, rows)


def test_logits_equal_those_of_transformers(model, family):
    expected, every = family.expected, EVERY
    logits, sources = [expected["logits"]], expected["inputs"]
    targets = sources[1:]
    if "targets" in expected:  # of several pairs, all logits
        logits, every = expected["logits"], 1
        targets = expected["targets"][len(logits) :]
    size = len(family.orders[1])
    columns = np.argsort(family.orders[1])[::every]
    for source, target, theirs in zip(sources, targets, logits, strict=False):
        target = family.ours([i % size for i in target], 1)
        if family.name in MULTILINGUAL:
            target[0] = family.sources[0][0]  # the language
        found = forward(model, family.ours(source), target)[:, columns]
        count = min(len(found), len(theirs))
        np.testing.assert_allclose(found[:count], theirs[:count], atol=1e-4)


@pytest.mark.parametrize(
    ("name", "beams"),
    [pytest.param("greedy", 1, marks=pytest.mark.slow), ("beam", 4)],
)
def test_outputs_equal_those_of_generate(family, model, name, beams):
    """Of a batch of sentences whose searches end at different steps."""
    extra_length = 12 if family.name == "huggingface" else 8
    hparams = family.run.search.override(
        {"beam_size": beams, "extra_length": extra_length}
    )
    translator = BatchTranslator([model], family.run.vocabularies, hparams)
    found = search.search(
        [model],
        score.pad_rows(family.sources),
        hparams,
        rule=translator._rule,
    )
    rows = [[i for i in row if i] for row in found.ids[:, 0].numpy()]
    assert family.theirs(rows, 1) == family.expected[name]


@pytest.mark.slow
@pytest.mark.parametrize("family", families(*WITH_GRAPH), indirect=True)
def test_export_has_the_outputs_of_the_decoder(family, model):
    lines = family.expected["lines"][:3]
    run = family.run
    if language := FAMILIES[family.name]:
        run = run.toward(language)
        lines = [line.removeprefix("<2de> ") for line in lines]
    tagged = [*map(run.problem.normalizers[0], lines)]
    assert tagged == family.lines[:3]
    settings = run.vocabularies, run.search.override({"extra_length": 2})
    translator = BatchTranslator([model], *settings)
    decoded = [*translator.translate(tagged)]
    scored = translator.score(zip(tagged, lines, strict=True))
    served = ServedModel([model], *settings, "float32")
    served.tag = run.problem.tag
    texts = tf.constant([*lines, ""])
    found = served.translate(texts)
    outputs = [text.decode() for text in found["outputs"].numpy()]
    assert outputs == [*(each.text for each in decoded), ""]
    np.testing.assert_allclose(
        found["scores"][:3], [each.scores[0] for each in decoded], rtol=1e-4
    )
    np.testing.assert_allclose(
        served.score(texts, texts)["scores"][:3],
        [each.total for each in scored],
        rtol=1e-4,
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", families(*MULTILINGUAL), indirect=True)
def test_export_of_many_languages_is_told_those_of_each_line(family, model):
    hparams = family.run.search.override({"extra_length": 2})
    texts = tf.constant(family.expected["lines"][:3])
    settings = [model], family.run.vocabularies, hparams, "float32"
    bound, many = ServedModel(*settings), ServedModel(*settings)
    bound.tag = family.run.toward(FAMILIES[family.name]).problem.tag
    many.tagger = GraphTagger(tagger_of(family.run.problem.card))
    source, target = FAMILIES[family.name].split("-")
    found = many.signatures()["directed"](
        inputs=texts,
        source_language=tf.constant([source] * 3),
        target_language=tf.constant([target] * 3),
    )
    assert np.array_equal(found["outputs"], bound.translate(texts)["outputs"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="target_language"):
        many.translate(texts)


def test_codes_of_moses_have_no_graph():
    found = huggingface.read(GOLDEN / "fsmt").vocabularies
    with pytest.raises(errors.UserError, match="BpeCodes has no graph_cl"):
        graph_vocabularies.build(found)


@pytest.mark.parametrize("family", families(*MULTILINGUAL), indirect=True)
def test_languages_that_are_missing_or_unknown_are_refused(family):
    near = {"m2m_100": "zhh", "nllb": "deu_Latin", "mbart50": "de_D"}
    near, message = near[family.name], "Did you mean (zh|deu_Latn|de_DE)"
    with pytest.raises(errors.UserError, match=message):
        family.run.problem.toward(near)
    with pytest.raises(errors.UserError, match="of the target .* got ''"):
        family.run.problem.normalizers[0]("Two dogs.")


def test_targets_of_training_begin_with_what_leads_outputs(family):
    """The language that the tag of the source names, or <s> of BART."""
    tag = family.lines[0].removesuffix(family.expected["lines"][0])
    pair = f"{tag}Two dogs", "play"
    pairs = Encoder(family.run.vocabularies, None).encode([pair, ("", "")])
    found = [pairs.ids[name].to_pylist() for name in ("inputs", "targets")]
    (source, *_), (target, *_) = (
        side.encode([text])
        for side, text in zip(family.run.vocabularies, pair, strict=True)
    )
    lead, source = source[: family.leads], source[family.leads :]
    assert found == [[source, [EOS]], [lead + target, [EOS]]]


def test_newer_files_of_mbart50_have_the_same_tokens(tmp_path):
    found = huggingface.read(GOLDEN / "mbart50")
    content = (GOLDEN / "mbart50" / "sentencepiece.bpe.model").read_bytes()
    pieces = sentence_piece.piece_names(content)[3:]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces, *found.codes, "<mask>"]
    stored = {
        "model": {"vocab": [[token, 0.0] for token in tokens[:-1]]},
        "added_tokens": [{"id": len(tokens) - 1, "content": "<mask>"}],
    }
    files = {
        "tokenizer.json": stored,
        "generation_config.json": {
            "forced_bos_token_id": tokens.index("de_DE")
        },
    }
    newer = write_huggingface(tmp_path, files=files, golden="mbart50")()
    assert newer.vocabularies.source.model == found.vocabularies.source.model
    assert newer.languages == ("en_XX", "de_DE")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"language_codes": ["en"]}, "language_codes in .* be of type str"),
        ({"language_codes": "m2m"}, "be one of 'm2m100', 'wmt21'; got 'm2m'"),
        ({"tokenizer_class": "T5"}, "be one of 'M2M100Tokenizer', 'NllbT"),
        ({"legacy_behaviour": True}, "legacy_behaviour in .* false or 0"),
    ],
)
def test_other_tokenizers_are_refused(settings, message):
    settings = {"tokenizer_class": "M2M100Tokenizer"} | settings
    with pytest.raises(errors.UserError, match=message):
        huggingface_vocabularies.read_languages(
            huggingface_vocabularies.Tokenizer(
                GOLDEN / "m2m_100", {"vocab_size": 400}, settings
            )
        )


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
