"""Imported models of CTranslate2 compute what CTranslate2 does."""

import dataclasses

import imported_models
import numpy as np
import pytest
import sentencepiece
from imported_models import log_probs
from transformer_variants import VARIANTS

from t2t_repro import errors
from t2t_repro.hparam import DecodeHParams
from t2t_repro.importing import run_writer
from t2t_repro.importing.ctranslate2 import read
from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.serving import exporting
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import EOS, WhitespaceTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="the extra ctranslate2 is not installed"
)
from ctranslate2_specs import (  # noqa: E402
    SIZE,
    TOKENS,
    WIDTH,
    build,
    save,
    specs,
)

SOURCES = ["a b c d", "b", "e d c b a a b c d", "x a"]
TARGETS = ["d c b a", "e", "a a b", "b x c"]
POSITIONS = 20
ACTIVATION = specs.common_spec.Activation


def sinusoids(first, with_half):
    """Return sines, then cosines, of fairseq's or of Hugging Face's rates."""
    half = SIZE // 2
    rates = 10_000.0 ** -(np.arange(half) / (half - 1 if with_half else half))
    angles = (np.arange(POSITIONS)[:, None] + first) * rates
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return table.astype(np.float32)


def tie(spec):
    embeddings = spec.encoder.embeddings[0].weight
    spec.decoder.embeddings.weight = embeddings
    spec.decoder.projection.weight = embeddings


def like_fairseq(spec):
    """Share all matrices; the decoder starts with EOS, without scale."""
    tie(spec)
    spec.decoder.projection.bias = specs.model_spec.OPTIONAL
    spec.config.decoder_start_token = "</s>"
    spec.config.add_source_eos = True
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = sinusoids(2, with_half=True)
        side.scale_embeddings = 1.0


def like_marian(spec):
    """Start from zeros, with learned positions that differ by side."""
    tie(spec)
    spec.decoder.start_from_zero_embedding = True
    spec.config.add_source_eos = True
    random = np.random.default_rng(3)
    for side, rows in ((spec.encoder, 13), (spec.decoder, POSITIONS)):
        table = random.normal(0, 0.5, (rows, SIZE)).astype(np.float32)
        side.position_encodings.encodings = table


def like_bart(spec):
    """Set Hugging Face's positions, odd factors, and fewer biases."""
    spec.config.decoder_start_token = "</s>"
    spec.config.layer_norm_epsilon = 0.01
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.decoder.scale_outputs = 0.25
    for side, factor in ((spec.encoder, 2.0), (spec.decoder, 0.5)):
        side.position_encodings.encodings = sinusoids(0, with_half=False)
        side.scale_embeddings = factor
        for layer in side.layer:
            layer.self_attention.queries_scale = 0.2
            for linear in layer.self_attention.linear:
                linear.bias = specs.model_spec.OPTIONAL
            layer.ffn.linear_1.bias = specs.model_spec.OPTIONAL


def unscaled(spec):
    for side in (spec.encoder, spec.decoder):
        for layer in side.layer:
            layer.self_attention.queries_scale = 1.0
    for layer in spec.decoder.layer:
        layer.attention.queries_scale = 1.0


def activation(name, **settings):
    return {"activation": getattr(ACTIVATION, name)} | settings


CASES = {  # settings, a change, hparams
    "opennmt": (
        {"pre_norm": True},
        lambda spec: None,
        {"pos": "timing", "first_position": 1, "encode_eos": False},
    ),
    "fairseq": (
        {"pre_norm": True, "layernorm_embedding": True},
        like_fairseq,
        {
            "pos": "timing",
            "first_position": 2,
            "encode_eos": True,
            "shared_embedding_and_softmax_weights": True,
            "multiply_embedding_mode": "none",
            "learned_start": True,
        },
    ),
    "marian": (
        activation("SWISH", layers=(2, 1)),
        like_marian,
        {"pos": "emb", "max_length": 24, "learned_start": False},
    ),
    "bart": (
        activation("GELU", layernorm_embedding=True),
        like_bart,
        {
            "pos": "sines_then_cosines",
            "norm_epsilon": 0.01,
            "encode_eos": True,
            "multiply_embedding_mode": "none",
            "attention_type": "dot_product",
        },
    ),
    "relative": (
        activation("GELUTanh", with_relative_position=True),
        unscaled,
        {
            "max_relative_position": 2,
            "attention_type": "dot_product_unscaled",
            "pos": "none",
        },
    ),
    "gated": (activation("Sigmoid", ffn_glu=True), tie, {"filter_size": WIDTH}),
    "swiglu": (activation("SWISH", ffn_glu=True), tie, {}),
}


def read_model(folder):
    """Return a model with the weights of a folder, and what was read."""
    found = read(folder)
    return imported_models.build(found), found


def compare(folder, atol=2e-4, source_end=()):
    """Compare log-probabilities and greedy outputs with CTranslate2's."""
    model, found = read_model(folder)
    source, target = found.vocabularies
    theirs = ctranslate2.Translator(
        str(folder), compute_type="float32", intra_threads=1
    )
    inputs = [[*line.split(), *source_end] for line in SOURCES]
    scored = theirs.score_batch(inputs, [line.split() for line in TARGETS])
    for i, result in enumerate(scored):
        (ids,), (chosen,) = (
            source.encode([SOURCES[i]]),
            target.encode([TARGETS[i]]),
        )
        _, ours = log_probs(model, ids, chosen)
        np.testing.assert_allclose(result.log_probs, ours, atol=atol)
    translated = theirs.translate_batch(
        inputs, beam_size=1, max_decoding_length=9
    )
    for line, result in zip(SOURCES, translated, strict=True):
        pieces = target.pieces(range(target.size))
        chosen = [pieces.index(token) for token in result.hypotheses[0]]
        (ids,) = source.encode([line])
        best, _ = log_probs(model, ids, [*chosen, EOS])
        best[0, EOS] = -np.inf  # CTranslate2's outputs are not empty
        assert best.argmax(-1).tolist()[: len(chosen)] == chosen
    return found


@pytest.mark.parametrize("name", imported_models.few(CASES))
def test_log_probabilities_and_greedy_outputs_equal_ctranslate2s(
    name, tmp_path
):
    settings, change, hparams = CASES[name]
    folder = save(build(change, **settings), tmp_path / "model")
    found = compare(folder, source_end=["</s>"] if name == "bart" else ())
    assert {k: found.hparams[k] for k in hparams} == hparams
    assert found.vocabulary_type == "whitespace_tokens"
    assert found.search["beam_size"] == 2
    assert {file.name for file in found.files} == {
        "model.bin",
        "config.json",
        "shared_vocabulary.json",
    }


@pytest.mark.parametrize("kind", ["int8", "int16", "float16"])
def test_rounded_weights_are_those_of_ctranslate2(kind, tmp_path):
    """CTranslate2 multiplies them out, too, if it computes in float32."""
    spec = build(like_fairseq, pre_norm=True)
    found = compare(save(spec, tmp_path / "model", kind))
    assert found.hparams["shared_embedding_and_softmax_weights"]


@pytest.mark.parametrize("starts_with_eos", [False, True])
def test_forward_pass_is_compared_with_ctranslate2s(starts_with_eos, tmp_path):
    def change(spec):
        if starts_with_eos:
            spec.config.decoder_start_token = "</s>"

    found = read(save(build(change), tmp_path / "model"))
    hparams = run_writer.build_hparams(found)
    variables = run_writer.build_variables(found, hparams)
    run_writer.compare(found, hparams, variables)
    # The weights fit any number of heads.
    hparams = dataclasses.replace(hparams, num_heads=4)
    with pytest.raises(errors.UserError, match="here and .* in CTranslate2"):
        run_writer.compare(found, hparams, variables)


def test_vocabularies_of_two_sides_are_read(tmp_path):
    def pieces_apart(spec):
        spec.register_target_vocabulary([])
        spec._vocabularies["target"] = [[*TOKENS[:9], "z"]]

    found = compare(save(build(pieces_apart), tmp_path / "model"))
    assert not found.vocabularies.is_shared


@pytest.fixture
def export(tiny_hparams, randomize, tmp_path):
    """Return a function that exports a random model: it, and its folder."""

    def export(pair, card=(), **changes):
        hparams = dataclasses.replace(
            tiny_hparams, num_hidden_layers=1, max_length=8, **changes
        )
        model = building.build(hparams, **pair.sizes)
        randomize(model)
        search = DecodeHParams(max_input_length=16, extra_length=8)
        folder = tmp_path / "export"
        exporting.export_ctranslate2([model], pair, search, folder, dict(card))
        return model, folder

    return export


@pytest.mark.parametrize(
    "changes",
    [
        VARIANTS["imported"],
        VARIANTS["relative"] | VARIANTS["hidden_eos"] | VARIANTS["sizes"],
        VARIANTS["learned"] | VARIANTS["unscaled"],
    ],
    ids=["imported", "relative_sizes", "learned"],
)
def test_own_exports_are_imported_with_their_vocabulary(
    export, vocabulary, changes
):
    is_named = "learned_start" in changes  # else the file shows the type
    card = {"problem_arguments": {"vocabulary_type": "bpe"} if is_named else {}}
    pair = Vocabularies.shared(vocabulary)
    model, folder = export(pair, card, **changes)
    imported, found = read_model(folder)
    assert found.vocabulary_type == "bpe"
    assert found.vocabularies.sha256 == vocabulary.sha256
    assert found.vocabularies.is_shared
    for name in ("pos", "first_position", "encode_eos", "attention_type"):
        assert getattr(imported.hparams, name) == getattr(model.hparams, name)
    ids, targets = vocabulary.encode(["two birds sing in a tree", "a dog"])
    np.testing.assert_allclose(
        log_probs(imported, ids, targets)[0],
        log_probs(model, ids, targets)[0],
        atol=1e-4,
    )


def test_own_export_with_separate_vocabularies(export, vocabulary):
    pair = Vocabularies(vocabulary, Bpe.learn(["ein Vogel singt"] * 5, 270))
    _, folder = export(pair, shared_embedding_and_softmax_weights=False)
    found = read(folder)
    assert found.vocabularies.target.model == pair.target.model
    other = Bpe.learn(["ein Fisch singt"] * 5, 270)
    (folder / "vocab.targets.model").write_bytes(other.model)
    with pytest.raises(errors.UserError, match="vocab.targets.model are not"):
        read(folder)


def test_own_export_of_tokens_is_imported_as_such(export):
    words = WhitespaceTokens.learn(SOURCES, 9)
    _, folder = export(Vocabularies.shared(words))
    found = read(folder)
    assert found.vocabulary_type == "whitespace_tokens"
    assert found.vocabularies.source.model == words.model


def test_sentence_piece_model_beside_gives_the_tokens(vocabulary, tmp_path):
    """Its pieces get the ids of the model's list."""
    pieces = vocabulary.pieces(range(2, vocabulary.size))
    tokens = [*pieces, "<s>", "</s>"]

    def register(spec):
        spec._vocabularies = {"source": [tokens], "target": [tokens]}
        table = np.random.default_rng(2).normal(0, 0.3, (len(tokens), SIZE))
        table = table.astype(np.float32)
        spec.encoder.embeddings[0].weight = table
        spec.decoder.embeddings.weight = table
        spec.decoder.projection.weight = table
        spec.decoder.projection.bias = np.zeros(len(tokens), np.float32)

    folder = save(build(register), tmp_path / "model")
    (folder / "sentencepiece.model").write_bytes(vocabulary.model)
    model, found = read_model(folder)
    assert found.vocabulary_type == "mapped_sentence_piece"
    assert found.vocabularies.is_shared and found.files[-1].suffix == ".model"
    theirs = ctranslate2.Translator(str(folder), compute_type="float32")
    spell = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    line, target = "two birds sing", "a cat"
    (result,) = theirs.score_batch(
        [spell.Encode(line, out_type=str)], [spell.Encode(target, out_type=str)]
    )
    ids, chosen = found.vocabularies.source.encode([line, target])
    _, ours = log_probs(model, ids, chosen)
    np.testing.assert_allclose(result.log_probs, ours, atol=2e-4)
    assert files.read_json(folder / "config.json")["bos_token"] == "<s>"
