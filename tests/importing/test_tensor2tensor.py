"""Models of tensor2tensor against its formulas in numpy; refused ones."""

import imported_models
import numpy as np
import pytest
import tensor2tensor_models as models

from t2t_repro import errors
from t2t_repro.importing import tensor2tensor
from t2t_repro.text.t2t_subwords import T2TSubwords

VOCABULARY, V = models.VOCABULARY, models.SIZES[0]
OTHER = models.subwords("dogs", "cats_")
APART = {"shared_embedding_and_softmax_weights": False}
VARIANTS = {
    "post_norm": models.settings(),
    "pre_norm": models.settings("pre"),
    "apart": models.settings("pre", **APART),
    "inputs_and_targets_shared": models.settings(
        **APART, shared_embedding=True
    ),
    "learned_positions": models.settings(pos="emb", max_length=6),
    "no_positions": models.settings(pos=None, num_encoder_layers=1),
    "sizes": models.settings(
        attention_key_channels=4, attention_value_channels=12
    ),
    "unscaled": models.settings(
        multiply_embedding_mode="none", use_target_space_embedding=False
    ),
}
LINE = "the cat sat on 2 mats."


def _convert(hparams, tensors, tmp_path, **vocabularies):
    vocabularies = vocabularies or {"subwords": VOCABULARY}
    models.write(tmp_path, hparams, tensors, **vocabularies)
    return tensor2tensor.read(tmp_path)


def _difference(found, hparams, tensors, sizes, **options):
    inputs, targets = imported_models.encode(found, LINE, "a dog sat.")
    actual = imported_models.logits(found, inputs, targets)
    model = models.Model(hparams, sizes, tensors, **options)
    expected = model.logits(inputs, targets[:-1])
    assert actual.shape == expected.shape
    return np.abs(actual - expected).max()


@pytest.mark.parametrize("name", imported_models.few(VARIANTS))
def test_logits_equal_tensor2tensors_formulas(name, tmp_path):
    hparams = VARIANTS[name]
    tensors = models.arrays(hparams)
    found = _convert(hparams, tensors, tmp_path)
    assert _difference(found, hparams, tensors, (V, V)) < 1e-4


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (OTHER, "translate_ende_wmt32k_rev"),
        (VOCABULARY.replace(b"dog", b"got"), "translate_deen_reviews"),
    ],
)
def test_two_vocabularies_follow_the_languages_of_flags(
    other, problem, tmp_path
):
    sizes = T2TSubwords(other).size, V
    hparams = models.settings()
    tensors = models.arrays(hparams, sizes)
    (tmp_path / "flags.txt").write_text(f"--a=b\n--problem={problem}\n")
    found = _convert(hparams, tensors, tmp_path, en=VOCABULARY, de=other)
    assert found.vocabularies.languages == ("de", "en")
    assert _difference(found, hparams, tensors, sizes) < 1e-4


def test_vocab_divisor_gives_ids_without_text(tmp_path):
    hparams = models.settings(vocab_divisor=16)
    rows = -(-V // 16) * 16
    assert rows > V
    tensors = models.arrays(hparams, (rows, rows))
    found = _convert(hparams, tensors, tmp_path)
    assert found.vocabularies.pair.target.join([[2, rows - 1, 2]]) == ["thethe"]
    assert _difference(found, hparams, tensors, (rows, rows)) < 1e-4


OLD = {"optimizer_adafactor_beta1"}
TABLE = "training/transformer/body/target_space_embedding/kernel"


def _old(**changes):
    """Return settings of a version whose problems choose the vector."""
    hparams = models.settings(**changes)
    return {k: v for k, v in hparams.items() if k not in OLD}


def _with_moments(tensors, row):
    moments = np.zeros((32, models.SIZE), np.float32)
    moments[row] = 1e-8
    return tensors | {f"{TABLE}/Adam": moments, f"{TABLE}/Adam_1": moments}


@pytest.mark.parametrize("way", ["stated", "moments"])
def test_target_space_of_an_old_version_is_found(way, tmp_path):
    hparams = _old(**{"target_space_id": 8} if way == "stated" else {})
    tensors = models.arrays(hparams)
    stored = tensors if way == "stated" else _with_moments(tensors, 8)
    stored |= {"global_step": np.int64(7)}
    found = _convert(hparams, stored, tmp_path)
    options = {"target_space": 8}
    assert _difference(found, hparams, tensors, (V, V), **options) < 1e-4


@pytest.mark.parametrize(
    ("hparams", "trained", "vocabulary", "message"),
    [
        (_old(), None, VOCABULARY, '"target_space_id" to .*json'),
        (models.settings(), 3, VOCABULARY, r"never trained, .* \[3\] were"),
        (models.settings(), None, OTHER, r"has 0 matrices .*subwords"),
    ],
    ids=["unknown target space", "untrained", "another vocabulary"],
)
def test_files_that_do_not_fit_are_refused(
    tmp_path, hparams, trained, vocabulary, message
):
    tensors = models.arrays(hparams)
    if trained:
        tensors = _with_moments(tensors, trained)
    with pytest.raises(errors.UserError, match=message):
        _convert(hparams, tensors, tmp_path, subwords=vocabulary)


def test_checkpoint_of_several_is_that_of_the_state_file(tmp_path):
    hparams = models.settings()
    tensors = models.arrays(hparams)
    models.write(tmp_path, hparams, tensors, subwords=VOCABULARY)
    later = models.arrays(hparams, seed=2)
    models.save(tmp_path / "model.ckpt-9", later)
    with pytest.raises(errors.UserError, match="has 2 checkpoints"):
        tensor2tensor.read(tmp_path)
    state = 'model_checkpoint_path: "/elsewhere/model.ckpt-9"\n'
    (tmp_path / "checkpoint").write_text(state)
    for path, expected in (
        (tmp_path, later),
        (tmp_path / "model.ckpt-7.index", tensors),
        (tmp_path / "model.ckpt-7", tensors),
    ):
        found = tensor2tensor.read(path)
        np.testing.assert_array_equal(
            found.weights["inputs_bias"],
            expected["transformer/body/target_space_embedding/kernel"][0],
        )
    with pytest.raises(errors.UserError, match="There is no checkpoint"):
        tensor2tensor.read(tmp_path / "model.ckpt-8")
