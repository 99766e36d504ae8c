"""Models of OpenNMT-tf against its formulas in numpy; refused ones."""

import imported_models
import numpy as np
import opennmt_tf_models as models
import pytest

from t2t_repro.importing import opennmt_tf
from t2t_repro.text.sentence_piece import Bpe

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
    rows = len(source) + 1, models.ROWS[1]
    tensors = models.arrays(rows, **structure)
    models.write(tmp_path, tensors, **files)
    found = opennmt_tf.read(tmp_path)
    lines = "the cat of . <unk> a dog", "a dog sat . . ."
    inputs, targets = imported_models.encode(found, *lines)
    theirs, theirs_target = _theirs(source), _theirs(models.TARGET)
    seen = inputs if name == "source_eos" else inputs[:-1]
    ids, chosen = theirs[seen], theirs_target[targets]
    structure = structure | {"gelu": name == "gelu"}
    reference = models.Model(tensors, **structure)
    expected = reference.logits(ids, chosen[:-1])[:, theirs_target]
    actual = imported_models.logits(found, inputs, targets)
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert found.search == {"beam_size": 5, "alpha": 0.6, "min_length": 0}
    shared = found.hparams["shared_embedding_and_softmax_weights"]
    assert shared == (name == "all_tied")


def test_unknown_token_is_the_last_even_if_its_name_is_taken(tmp_path):
    found = imported_models.write_opennmt_tf(tmp_path)()
    source = found.vocabularies.pair.source
    (ids,) = source.encode(["<unk> other"])
    assert source.pieces(ids) == ["<unk>", "<<unk>>", "</s>"]
    assert source.unknown == source.size - 1


def test_catalog_and_averaged_checkpoints_folder(tmp_path):
    code = 'model = lambda: models.get_model_from_catalog("TransformerTiny")'
    files = {"model_description.py": f"from opennmt import models\n{code}\n"}
    imported_models.write_opennmt_tf(tmp_path, files=files)
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
    assert found.vocabularies.kind == "mapped_sentence_piece"
    source = found.vocabularies.pair.source
    (ids,) = source.encode(["the cat"])
    (expected,) = model.encode(["the cat"])
    assert source.pieces(ids[:-1]) == model.pieces(expected[:-1])


def test_shortest_output_counts_eos(tmp_path):
    data = "params: {minimum_decoding_length: 3}\n"
    found = imported_models.write_opennmt_tf(tmp_path, data=data)()
    assert found.search["min_length"] == 4
