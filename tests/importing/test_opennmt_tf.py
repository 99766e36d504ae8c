"""Models of OpenNMT-tf against its formulas in numpy; refused ones."""

import imported_models
import numpy as np
import opennmt_tf_models as models
import pytest

from t2t_repro import errors
from t2t_repro.importing import opennmt_tf
from t2t_repro.text.sentence_piece import Bpe

ROWS = len(models.SOURCE) + 1, len(models.TARGET) + 1
SAME = {"source": models.TARGET}
VARIANTS = {
    "default": ({}, {}),
    "post_norm": ({"pre_norm": False}, {}),
    "no_biases": ({"bias": False}, {}),
    "target_tied": ({"kernel": False}, {}),
    "all_tied": ({"kernel": False, "one_embedding": True}, SAME),
    "inputs_tied": ({"one_embedding": True}, SAME),
    "learned_positions": ({"learned": True}, {}),
    "gelu": ({}, {"more": "ffn_activation=onmt.layers.gelu"}),
    "source_eos": (
        {},
        {"data": "  source_sequence_controls: {start: false, end: true}\n"},
    ),
}


def _theirs(tokens):
    """Return OpenNMT-tf's id of each of ours: PAD, EOS, then the others."""
    return np.array([0, 2, 1, *range(3, len(tokens) + 1)])


@pytest.mark.parametrize("name", imported_models.few(VARIANTS))
def test_logits_equal_opennmt_tfs_formulas(name, tmp_path):
    structure, files = VARIANTS[name]
    source = files.get("source", models.SOURCE)
    rows = len(source) + 1, ROWS[1]
    tensors = models.arrays(rows, **structure)
    models.write(tmp_path, tensors, **files)
    found = opennmt_tf.read(tmp_path)
    (inputs,) = found.vocabularies.source.encode(["the cat of . <unk> a dog"])
    (targets,) = found.vocabularies.target.encode(["a dog sat . . ."])
    theirs, theirs_target = _theirs(source), _theirs(models.TARGET)
    seen = inputs if name == "source_eos" else inputs[:-1]
    expected = models.logits(
        tensors, theirs[seen], theirs_target[targets], gelu=name == "gelu"
    )[:, theirs_target]
    actual = imported_models.logits(found, inputs, targets)
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert found.search == {"beam_size": 5, "alpha": 0.6, "min_length": 0}
    shared = found.hparams["shared_embedding_and_softmax_weights"]
    assert shared == (name == "all_tied")


def test_unknown_token_is_the_last_even_if_its_name_is_taken(tmp_path):
    models.write(tmp_path, models.arrays(ROWS))
    source = opennmt_tf.read(tmp_path).vocabularies.source
    (ids,) = source.encode(["<unk> other"])
    assert source.pieces(ids) == ["<unk>", "<<unk>>", "</s>"]
    assert source.unknown == source.size - 1


def test_catalog_and_averaged_checkpoints_folder(tmp_path):
    models.write(tmp_path, models.arrays(ROWS))
    (tmp_path / "model_description.py").write_text(
        "from opennmt import models\n"
        'model = lambda: models.get_model_from_catalog("TransformerTiny")\n'
    )
    average = tmp_path / "avg"
    average.mkdir()
    for file in tmp_path.glob("ckpt-9*"):
        file.rename(average / file.name)
    found = opennmt_tf.read(average)
    assert found.hparams["num_heads"] == 2


@pytest.mark.parametrize("is_named", [False, True])
def test_sentence_piece_beside_segments_text(is_named, tmp_path):
    model = Bpe.learn(["the cat sat on the mat"] * 9, 280)
    pieces = [model.pieces([i])[0] for i in range(3, model.size)]
    tokens = [*models.FIRST, *pieces]
    rows = (len(tokens) + 1,) * 2
    data = ""
    if is_named:
        data = "".join(
            f"  {side}_tokenization:\n    type: OpenNMTTokenizer\n    params: "
            "{mode: none, sp_model_path: x/sp.model}\n"
            for side in ("source", "target")
        )
    tensors = models.arrays(rows)
    models.write(tmp_path, tensors, tokens, tokens, data)
    (tmp_path / "sp.model").write_bytes(model.model)
    found = opennmt_tf.read(tmp_path)
    assert found.vocabulary_type == "mapped_sentence_piece"
    (ids,) = found.vocabularies.source.encode(["the cat"])
    (expected,) = model.encode(["the cat"])
    assert found.vocabularies.source.pieces(ids[:-1]) == model.pieces(
        expected[:-1]
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("maximum_relative_position=20", "maximum_relative_position in .* omi"),
        ("ffn_activation=my.tanh", "ffn_activation in .* got 'my.tanh'"),
        ("dropout=x", "dropout in .* must be a number"),
        ("position_encoder_class=Mine", "position_encoder_class in"),
    ],
)
def test_argument_without_counterpart_is_refused(more, message, tmp_path):
    models.write(tmp_path, models.arrays(ROWS), more=more)
    with pytest.raises(errors.UserError, match=message):
        opennmt_tf.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("model = lambda: get_model_from_catalog('GPT2Small')", "GPT2Small"),
        ("model = None", "the model in .* one call, .*; got 'none'"),
        (
            "def model():\n"
            "    if small: return models.Transformer(num_heads=1)\n"
            "    return models.Transformer(num_heads=2)",
            "got '2 calls, on lines 2, 3'",
        ),
        ("class Mine(Transformer): pass\nmodel = Mine", "write .* this form"),
        ("model = (", "Cannot read .*model_description"),
        ("model = Transformer(1, 2, 3)", "with named arguments; got 3"),
    ],
)
def test_other_description_is_refused(content, message, tmp_path):
    models.write(tmp_path, models.arrays(ROWS))
    (tmp_path / "model_description.py").write_text(content)
    with pytest.raises(errors.UserError, match=message):
        opennmt_tf.read(tmp_path)


TOKENIZER = "  source_tokenization: {type: %s}\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (TOKENIZER % "CharacterTokenizer", "source_tokenization in .* Space"),
        ("  source_tokenization: no.yml\n", "There is no .*no.yml"),
        (
            "  source_sequence_controls: {start: true}\n",
            "source_sequence_controls.start in .* must be false",
        ),
        (
            "  target_sequence_controls: {end: false}\n",
            "target_sequence_controls.end in .* must be true",
        ),
        ("  target_vocabulary: 3\n", "target_vocabulary in .* path of a file"),
        ("params: {length_penalty: -1}\n", "length_penalty in .* from 0 to"),
        ("params: {coverage_penalty: 1}\n", "coverage_penalty in .* must be 0"),
        ("params: {sampling_topk: 0}\n", "sampling_topk in .* must be 1"),
        ("params: {minimum_decoding_length: x}\n", "length in .* from 0 to"),
        ("  : [", "Cannot read .*data.yml"),
    ],
)
def test_setting_of_the_data_is_refused(data, message, tmp_path):
    models.write(tmp_path, models.arrays(ROWS), data=data)
    with pytest.raises(errors.UserError, match=message):
        opennmt_tf.read(tmp_path)


def test_shortest_output_counts_eos(tmp_path):
    data = "params: {minimum_decoding_length: 3}\n"
    models.write(tmp_path, models.arrays(ROWS), data=data)
    assert opennmt_tf.read(tmp_path).search["min_length"] == 4


def test_sentence_piece_on_one_side_is_refused(tmp_path):
    data = (TOKENIZER % "SpaceTokenizer") + (
        "  target_tokenization: {model: sp.model}\n"
    )
    models.write(tmp_path, models.arrays(ROWS), data=data)
    (tmp_path / "sp.model").write_bytes(b"")
    with pytest.raises(errors.UserError, match="on both sides, or none"):
        opennmt_tf.read(tmp_path)


def test_two_sentence_piece_models_must_be_named(tmp_path):
    models.write(tmp_path, models.arrays(ROWS))
    for name in ("a.model", "b.spm"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(errors.UserError, match="has 2 SentencePiece models"):
        opennmt_tf.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.yml", b"[]", "settings by their names; got list"),
        ("data.yml", b"a: 1", "no settings under `data`"),
        ("src.vocab", b"a\nb\n", "<blank>, <s>, </s> first"),
        ("src.vocab", b"\xff", "Cannot read .*src.vocab"),
    ],
)
def test_bad_file_is_named(name, content, message, tmp_path):
    models.write(tmp_path, models.arrays(ROWS))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(errors.UserError, match=message):
        opennmt_tf.read(tmp_path)


def test_missing_description_is_explained(tmp_path):
    models.write(tmp_path, models.arrays(ROWS))
    (tmp_path / "model_description.py").unlink()
    with pytest.raises(errors.UserError, match="get_model_from_catalog"):
        opennmt_tf.read(tmp_path)


def test_one_embedding_for_two_sizes_is_refused(tmp_path):
    tensors = models.arrays(ROWS, one_embedding=True)
    models.write(tmp_path, tensors)
    with pytest.raises(errors.UserError, match="equal, as the embedding"):
        opennmt_tf.read(tmp_path)


def test_empty_table_of_positions_is_refused(tmp_path):
    tensors = models.arrays(ROWS, learned=True)
    name = f"model/encoder/position_encoder/position_embedding{models.END}"
    tensors[name] = tensors[name][:1]
    models.write(tmp_path, tensors)
    with pytest.raises(errors.UserError, match="must be two rows; got 1"):
        opennmt_tf.read(tmp_path)


@pytest.mark.parametrize(
    "pattern", ["embedding", "encoder/layers", "decoder/layer_norm/beta"]
)
def test_missing_array_is_named(pattern, tmp_path):
    tensors = models.arrays(ROWS)
    kept = {k: v for k, v in tensors.items() if pattern not in k}
    models.write(tmp_path, kept)
    with pytest.raises(errors.UserError, match="has no array model/"):
        opennmt_tf.read(tmp_path)
