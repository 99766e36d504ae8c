"""Tests of the reader of M2M-100, NLLB-200 and mBART-50, against transformers.

tests/golden/golden_languages.py wrote the models and what they give.
"""

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from imported_models import write_huggingface

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
from t2t_repro.models import seq2seq
from t2t_repro.runs.run import Run
from t2t_repro.serving import graph_vocabularies
from t2t_repro.serving.graph_vocabularies import GraphTagger
from t2t_repro.serving.served_model import ServedModel
from t2t_repro.text import sentence_piece
from t2t_repro.text.languages import tag_of, tagger_of
from t2t_repro.text.vocabulary import EOS

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
EXTRA_LENGTH, EVERY = 8, 7  # of the writer
DIRECTIONS = {
    "m2m_100": "en-de",
    "nllb": "eng_Latn-deu_Latn",
    "mbart50": "en_XX-de_DE",
}


class Family(NamedTuple):
    name: str
    run: Run
    order: list[int]  # their id of each of ours
    expected: Any

    @property
    def direction(self):
        return DIRECTIONS[self.name]

    @property
    def vocabulary(self):
        return self.run.vocabularies.source

    @property
    def sources(self):
        """Our ids of the tagged lines."""
        return self.vocabulary.encode(
            [f"{tag_of(self.direction)} {x}" for x in self.expected["lines"]]
        )

    def ours(self, row):
        return np.argsort(self.order)[row].tolist()


@pytest.fixture(
    scope="module",
    params=[
        "mbart50",
        pytest.param("m2m_100", marks=pytest.mark.slow),
        pytest.param("nllb", marks=pytest.mark.slow),
    ],
)
def family(definitions, request, tmp_path_factory):
    golden = GOLDEN / request.param
    folder = tmp_path_factory.mktemp(request.param) / "run"
    found = huggingface.read(golden)
    run_writer.write(found, "huggingface", folder, imported.languages_of(found))
    softmax = found.weights["softmax/weight"]
    shared = huggingface.arrays.read_weights(golden / "model.safetensors")[0]
    rows = shared.take("model.shared.weight")
    order = [int(np.argmin(np.abs(rows - row).sum(1))) for row in softmax]
    return Family(
        request.param,
        Run.open(folder),
        order,
        json.loads((golden / "expected.json").read_text("utf-8")),
    )


@pytest.fixture(scope="module")
def model(family):
    (model,) = family.run.models()
    return model


def test_tokens_equal_those_of_transformers(family):
    sources = [row[1:] for row in family.sources]  # without the target's
    theirs = [[family.order[i] for i in row] for row in sources]
    assert theirs == family.expected["inputs"]
    assert family.vocabulary.encode([]) == []


def test_graph_has_the_same_tokens(family):
    lines = family.expected["lines"]
    tag = tag_of(family.direction)
    texts = (
        [f"{tag} {x}" for x in lines] + lines + [tag, f" {tag}\t", "<x2y> z"]
    )
    ids = graph_vocabularies.build(family.run.vocabularies)[0].encode(
        tf.constant(texts)
    )
    ours = family.vocabulary.encode(texts)
    assert ids.to_list() == [row[:-1] for row in ours]


def test_logits_equal_those_of_transformers(model, family):
    source, target = (family.ours(x) for x in family.expected["inputs"][:2])
    target[0] = family.sources[0][0]  # the target language
    batch = seq2seq.one_sentence_per_row(
        *(tf.constant([row], tf.int32) for row in (source, target))
    )
    found = np.asarray(model(batch))[0]
    theirs = np.array(family.expected["logits"])
    columns = np.argsort(family.order)[::EVERY]
    found = found[: len(theirs), columns]
    np.testing.assert_allclose(found, theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "beams"),
    [pytest.param("greedy", 1, marks=pytest.mark.slow), ("beam", 4)],
)
def test_outputs_equal_those_of_generate(family, model, name, beams):
    hparams = family.run.search.override(
        {"beam_size": beams, "extra_length": EXTRA_LENGTH}
    )
    found = search.search(
        [model],
        score.pad_rows(family.sources),
        hparams,
        rule=search.build_rules(hparams, family.vocabulary),
    )
    outputs = [
        [family.order[i] for i in row if i] for row in found.ids[:, 0].numpy()
    ]
    assert outputs == family.expected[name]


@pytest.mark.slow
def test_bound_export_has_the_outputs_of_the_decoder(family, model):
    lines = family.expected["lines"][:3]
    hparams = family.run.search.override({"extra_length": 2})
    add_tag, _ = family.run.problem.toward(family.direction).normalizers
    tagged = list(map(add_tag, lines))
    translator = BatchTranslator([model], family.run.vocabularies, hparams)
    decoded = list(translator.translate(tagged))
    scored = [
        x.total for x in translator.score(zip(tagged, lines, strict=True))
    ]
    served = ServedModel([model], family.run.vocabularies, hparams, "float32")
    served.tag = family.run.toward(family.direction).problem.tag
    texts = tf.constant([*lines, " "])
    found = served.translate(texts)
    assert [x.decode() for x in found["outputs"].numpy()] == [
        *(each.text for each in decoded),
        "",
    ]
    np.testing.assert_allclose(
        found["scores"][:3], [each.scores[0] for each in decoded], rtol=1e-4
    )
    many = ServedModel([model], family.run.vocabularies, hparams, "float32")
    many.tagger = GraphTagger(tagger_of(family.run.problem.card))
    asked = family.direction.split("-")
    rows = (tf.constant([code] * 4) for code in asked)
    directed = many.signatures()["directed"]
    asked = dict(zip(["source_language", "target_language"], rows, strict=True))
    assert np.array_equal(
        directed(inputs=texts, **asked)["outputs"], found["outputs"]
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="target_language"):
        many.translate(texts)
    np.testing.assert_allclose(
        served.score(texts, texts)["scores"][:3], scored, rtol=1e-4
    )


def test_languages_that_are_missing_or_unknown_are_refused(family):
    near = {"m2m_100": "zhh", "nllb": "deu_Latin", "mbart50": "de_D"}
    near, message = near[family.name], "Did you mean (zh|deu_Latn|de_DE)"
    with pytest.raises(errors.UserError, match=message):
        family.run.problem.toward(near)
    with pytest.raises(errors.UserError, match="of the target .* got ''"):
        family.run.problem.normalizers[0]("Two dogs.")


def test_targets_of_training_begin_with_their_language(family):
    encoder = Encoder(family.run.vocabularies, None)
    pair = f"{tag_of(family.direction)} Two dogs", "Zwei Hunde"
    found = encoder.encode([pair, ("", "")]).ids
    (language, *source), target = family.vocabulary.encode(pair)
    assert found["inputs"].to_pylist() == [source, [EOS]]
    assert found["targets"].to_pylist() == [[language, *target], [EOS]]


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
            GOLDEN / "m2m_100", {"vocab_size": 400}, settings
        )
