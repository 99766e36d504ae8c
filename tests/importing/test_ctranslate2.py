"""Imported models of CTranslate2 compute what it does; the files of others."""

import dataclasses
import json
import struct

import imported_models
import numpy as np
import pytest
from ctranslate2_specs import (
    SIZE,
    TOKENS,
    assert_same_outputs,
    build,
    save,
    specs,
)
from imported_models import log_probs
from transformer_variants import VARIANTS

from t2t_repro import errors
from t2t_repro.importing import ctranslate2_files, run_writer
from t2t_repro.importing.ctranslate2 import read
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary import WhitespaceTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

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


CASES = {  # settings, and a change
    "opennmt": ({"pre_norm": True}, lambda spec: None),
    "fairseq": ({"pre_norm": True, "layernorm_embedding": True}, like_fairseq),
    "marian": (activation("SWISH", layers=(2, 1)), like_marian),
    "bart": (activation("GELU", layernorm_embedding=True), like_bart),
    "relative": (activation("GELUTanh", with_relative_position=True), unscaled),
    "gated": (activation("Sigmoid", ffn_glu=True), tie),
    "swiglu": (activation("SWISH", ffn_glu=True), tie),
}


def read_model(folder):
    found = read(folder)
    return imported_models.build(found), found


def compare(folder, source_end=()):
    """Compare the outputs of a folder with ours; return what was read."""
    model, found = read_model(folder)
    assert_same_outputs(
        folder, model, found.vocabularies.pair, SOURCES, TARGETS, source_end
    )
    return found


@pytest.mark.parametrize("name", imported_models.few(CASES))
def test_log_probs_and_greedy_outputs_equal_ctranslate2s(name, tmp_path):
    settings, change = CASES[name]
    folder = save(build(change, **settings), tmp_path / "model")
    found = compare(folder, source_end=["</s>"] if name == "bart" else ())
    if name == "marian":  # a multiple of 8, for 20 positions
        assert found.hparams["max_length"] == 24
    assert found.vocabularies.kind == "whitespace_tokens"
    assert found.search["beam_size"] == 2
    assert {file.name for file in found.files} == {
        "model.bin",
        "config.json",
        "shared_vocabulary.json",
    }


def test_quantized_weights_are_those_of_ctranslate2(tmp_path):
    """CTranslate2 multiplies them out, too, if it computes in float32."""
    spec = build(like_fairseq, pre_norm=True)
    found = compare(save(spec, tmp_path / "model", "int8"))
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


def test_own_export_keeps_its_vocabulary(export_to_ctranslate2, vocabulary):
    """With sizes of attention that the converters of CTranslate2 lack."""
    card = {"problem_arguments": {"vocabulary_type": "bpe"}}
    pair = Vocabularies.shared(vocabulary)
    changes = VARIANTS["learned"] | VARIANTS["unscaled"]
    changes |= VARIANTS["hidden_eos"] | VARIANTS["sizes"]
    model, folder = export_to_ctranslate2(pair, card, **changes)
    imported, found = read_model(folder)
    assert found.vocabularies.kind == "bpe"
    assert found.vocabularies.pair.sha256 == vocabulary.sha256
    assert found.vocabularies.pair.is_shared
    assert imported.hparams.max_length == model.hparams.max_length
    ids, targets = vocabulary.encode(["two birds sing in a tree", "a dog"])
    np.testing.assert_allclose(
        log_probs(imported, ids, targets)[0],
        log_probs(model, ids, targets)[0],
        atol=1e-4,
    )
    (folder / "vocab.model").unlink()
    with pytest.raises(errors.UserError, match="lacks its bpe vocabulary"):
        read(folder)


def test_own_export_of_two_vocabularies(export_to_ctranslate2, vocabulary):
    pair = Vocabularies(vocabulary, Bpe.learn(["ein Vogel singt"] * 5, 270))
    changes = {"shared_embedding_and_softmax_weights": False}
    _, folder = export_to_ctranslate2(pair, **changes)
    found = read(folder)
    assert found.vocabularies.pair.target.model == pair.target.model
    assert found.vocabularies.kind == "bpe"  # by the files, without a card
    other = Bpe.learn(["ein Fisch singt"] * 5, 270)
    (folder / "vocab.targets.model").write_bytes(other.model)
    with pytest.raises(errors.UserError, match="vocab.targets.model are not"):
        read(folder)


def test_own_export_of_tokens_is_imported_as_such(export_to_ctranslate2):
    words = WhitespaceTokens.learn(SOURCES, 9)
    _, folder = export_to_ctranslate2(Vocabularies.shared(words))
    found = read(folder)
    assert found.vocabularies.kind == "whitespace_tokens"
    assert found.vocabularies.pair.source.model == words.model


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
    assert found.vocabularies.kind == "mapped_sentence_piece"
    pair = found.vocabularies.pair
    assert pair.is_shared and found.files[-1].suffix == ".model"
    lines = ["two birds sing", "a cat"]
    spelled, expected = (
        [side.pieces(row) for row in side.encode(lines)]
        for side in (pair.source, vocabulary)
    )
    assert spelled == expected
    assert_same_outputs(folder, model, pair, lines, lines[::-1])


def refused(folder, message):
    with pytest.raises(errors.UserError, match=message):
        read(folder)


def test_other_specifications_are_named(tmp_path):
    write(tmp_path / "model.bin", spec="TransformerDecoderSpec")
    refused(tmp_path, "specification in .* got 'TransformerDecoderSpec'")
    write(tmp_path / "model.bin", revision=8)
    refused(tmp_path, "revision of its specification .* at most 7; got 8")


def test_text_vocabulary_is_read_as_ctranslate2_does(tmp_path):
    folder = save(build(), tmp_path / "model")
    vocabulary = folder / "shared_vocabulary.json"
    tokens = json.loads(vocabulary.read_text())
    vocabulary.unlink()
    text = folder / "shared_vocabulary.txt"
    text.write_bytes("".join(f"{token}\r\n" for token in tokens).encode())
    found = read(folder)
    assert set(tokens) < set(found.vocabularies.pair.source.pieces(range(11)))
    # The unknown token comes last if the file lacks it.
    text.write_text("\n".join(tokens[1:]))
    source = read(folder).vocabularies.pair.source
    assert source.pieces([source.unknown])


def test_vocabularies_of_two_sides_are_read(tmp_path):
    folder = save(build(), tmp_path / "model")
    (folder / "shared_vocabulary.json").unlink()
    target = folder / "target_vocabulary.json"
    target.write_text(json.dumps([*TOKENS[:-1], "z"]))
    source = folder / "source_vocabulary.json"
    source.write_text(json.dumps([*TOKENS[:-1], TOKENS[3]]))
    refused(folder, "Cannot use .*source_vocabulary.json")
    source.write_text(json.dumps(TOKENS))
    found = compare(folder)
    assert not found.vocabularies.pair.is_shared
    assert [file.name for file in found.files] == [
        *("model.bin", "config.json"),
        *("source_vocabulary.json", "target_vocabulary.json"),
    ]


def write(file, version=6, spec="TransformerSpec", revision=7, variables=()):
    """Write a model.bin of variables (name, shape, type, bytes of values)."""

    def text(value):
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    parts = [struct.pack("<I", version)]
    if version > 1:
        parts += [text(spec), struct.pack("<I", revision)]
    parts.append(struct.pack("<I", len(variables)))
    for name, shape, kind, values in variables:
        size = len(values) if version > 3 else len(values) // kind
        parts += [text(name), struct.pack("<B", len(shape))]
        parts += [struct.pack("<I", n) for n in shape]
        parts += [struct.pack("<BI", kind, size), values]
    if version > 2:
        parts.append(struct.pack("<I", 0))
    file.write_bytes(b"".join(parts))


def test_variables_of_all_types_are_read(tmp_path):
    rows = np.array([[1.5, -2.0], [0.25, 3.0]], np.float32)
    bfloat16 = (rows.view(np.uint32) >> 16).astype(np.uint16)
    scale = np.array([2, 4], np.float32)
    variables = [
        ("a/weight", (2, 2), 0, rows.tobytes()),
        ("b/weight", (2, 2), 4, rows.astype(np.float16).tobytes()),
        ("c/weight", (2, 2), 5, bfloat16.tobytes()),
        ("d/weight", (2, 2), 1, np.int8([[2, 4], [6, 8]]).tobytes()),
        ("d/weight_scale", (2,), 0, scale.tobytes()),
        ("e/weight", (2, 2), 2, np.int16([[500, 4], [6, 8]]).tobytes()),
        ("eos_token", (4,), 1, b"</s>"),
        ("heads", (), 2, np.int16(8).tobytes()),
        ("flag", (), 1, b"\1"),
        ("scale", (), 0, np.float32(0.5).tobytes()),
    ]
    write(tmp_path / "model.bin", version=5, variables=variables)
    found = ctranslate2_files.read_model(tmp_path / "model.bin")
    for name in "abc":
        np.testing.assert_array_equal(
            found.tensors.take(f"{name}/weight"), rows
        )
    np.testing.assert_array_equal(
        found.tensors.take("d/weight"), [[1, 2], [1.5, 2]]
    )
    np.testing.assert_allclose(
        found.tensors.take("e/weight"), [[0.5, 0.004], [0.006, 0.008]]
    )
    take = found.attributes.take
    assert take("eos_token", "") == "</s>" and take("heads", 1) == 8
    assert take(("other", "flag"), False) is True and take("no", 3) == 3
    assert take("scale", None) == 0.5
    found.tensors.refuse_rest()
    found.attributes.refuse_rest()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_old_versions_are_read(tmp_path, version):
    name = "transformer/decoder/layer_0/masked_multi_head/conv1d_1/kernel:0"
    values = np.arange(4, dtype=np.float32)
    write(
        tmp_path / "model.bin",
        version=version,
        revision=1,
        variables=[(name, (2, 2), 4, values.tobytes())],
    )
    found = ctranslate2_files.read_model(tmp_path / "model.bin")
    path = "decoder/layer_0/self_attention/linear_1/weight"
    np.testing.assert_array_equal(found.tensors.take(path).ravel(), values)


BYTE = "a", (), 1, b"\1"


def scaled(count):
    """Return two rows of int8, and so many scales, which are 0."""
    scales = "a_scale", (count,), 0, bytes(4 * count)
    return [("a", (2, 1), 1, b"12"), scales]


@pytest.mark.parametrize(
    ("version", "variables", "message"),
    [
        (7, [BYTE], "its version is 7"),
        (6, [("a", (1,) * 4, 0, b"1234")], "a has 4 dimensions"),
        (6, [("a", (1,), 9, b"1234")], "a has the unknown data type 9"),
        (3, [("a", (1,), 3, b"123")], "a has the unknown data type 3"),
        (6, [("a", (2,), 0, b"1234")], "a has 4 bytes and the shape"),
        (6, [("a", (4,), 1, b"1234")], "a has int8 and no scale"),
        (6, [("a", (1,), 3, b"1234")], "a has int32 and no scale"),
        (6, [BYTE, BYTE], "it has a twice"),
        (6, scaled(1), r"a has 2 rows and scales \[1\]"),
        (6, scaled(2), "a scale of a is not above 0"),
    ],
)
def test_damaged_file_is_refused(version, variables, message, tmp_path):
    write(tmp_path / "model.bin", version, variables=variables)
    message = f"as a model of CTranslate2: {message}"
    with pytest.raises(errors.UserError, match=message):
        ctranslate2_files.read_model(tmp_path / "model.bin")


def test_bytes_after_the_end_are_refused(tmp_path):
    file = tmp_path / "model.bin"
    write(file)
    file.write_bytes(file.read_bytes() + b"12")
    refused(tmp_path, "2 bytes follow its end")


def test_attribute_has_one_value_of_its_type(tmp_path):
    variables = [BYTE, ("b", (), 1, b"\2"), ("heads", (), 0, b"\0\0\0@")]
    write(tmp_path / "model.bin", variables=variables)
    take = ctranslate2_files.read_model(tmp_path / "model.bin").attributes.take
    with pytest.raises(errors.UserError, match="a and b .* one meaning"):
        take(("a", "b"), 0)
    with pytest.raises(errors.UserError, match="heads in .*type int; got 2.0"):
        take("heads", 8)
