"""Models of fairseq against its formulas in numpy; refused ones."""

import argparse
import os

import fairseq_models as models
import imported_models
import numpy as np
import pytest

from t2t_repro import errors
from t2t_repro.importing import arrays, fairseq

PRE_NORM = models.both(normalize_before=True)
VARIANTS = {
    "tied": {},
    "all_tied": {},
    "apart": {},
    "old_names": {"encoder_embed_path": None, "relu_dropout": 0.1},
    "pre_norm": PRE_NORM
    | {"activation_fn": "gelu", "decoder_ffn_embed_dim": 9},
    "learned_positions": models.both(learned_pos=True)
    | {"layernorm_embedding": True},
    "no_positions": {
        "no_token_positional_embeddings": True,
        "no_scale_embedding": True,
        "activation_fn": "swish",
    },
    "tanh": {"activation_fn": "gelu_accurate"},
}
# What the matrices are shared with; of others, nothing is.
TIED = {"tied": "targets", "pre_norm": "targets"}
TIED |= {"all_tied": "all", "tanh": "all"}


@pytest.mark.parametrize("name", imported_models.few(VARIANTS))
def test_logits_equal_fairseqs_formulas(name, tmp_path):
    tied, old = TIED.get(name, ""), name == "old_names"
    args = models.arguments(**VARIANTS[name])
    sizes = (models.SIZES[0],) * 2 if tied == "all" else models.SIZES
    state = models.state(args, sizes, tied, old)
    models.write_vocabularies(tmp_path, shared=tied == "all")
    checkpoint = {"args": args, "model": state}
    found = fairseq.convert(checkpoint, tmp_path / "model.pt", "none")
    lines = "the cat on cats ☃.", "a cat"
    inputs, targets = imported_models.encode(found, *lines)
    # Theirs begin with <s>, <pad>, </s>; ours with <pad>, </s>, <s>.
    theirs = np.array([1, 2, 0, *range(3, sizes[1])])
    reference = models.Model(args, state, old=old)
    expected = reference.logits(theirs[inputs], theirs[targets[:-1]])[:, theirs]
    actual = imported_models.logits(found, inputs, targets)
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert found.vocabularies.languages == ("en", "de")
    assert found.vocabularies.kind == "bpe_codes"
    shared = found.hparams["shared_embedding_and_softmax_weights"]
    assert shared == found.vocabularies.pair.is_shared == (tied == "all")


def test_settings_may_be_in_cfg(tmp_path):
    args = models.arguments()
    flat = {k: v for k, v in args.items() if not k.endswith("_lang")}
    flat |= {"_name": flat.pop("arch"), "decoder": {"layerdrop": 0}}
    flat.pop("encoder_layers")
    flat["encoder"] = {"layers": 2}
    config = {
        "model": flat,
        "task": {"source_lang": "en", "target_lang": "de"},
        "tokenizer": {"_name": "moses"},
    }
    models.write_vocabularies(tmp_path)
    checkpoint = {"cfg": config, "model": models.state(args)}
    found = fairseq.convert(checkpoint, tmp_path / "model.pt")
    assert found.hparams["num_encoder_layers"] == 2
    assert found.vocabularies.languages == ("en", "de")
    source = found.vocabularies.pair.source
    (ids,) = source.encode(["cat. "])  # Moses splits off the full stop
    assert source.pieces(ids[:-1]) == ["cat", "."]
    assert source.join([ids[:-1]]) == ["cat."]


def _inert(state):
    found = arrays.Inert("an argument")
    found.__setstate__(state)
    return found


def test_objects_become_their_content_or_attributes():
    """The state of a container of OmegaConf names its container again."""
    config = _inert({"_content": {"arch": _inert({"_val": "transformer"})}})
    config.state["_parent"] = config
    array = _inert((1, (3,), b"bytes"))
    checkpoint = {"cfg": config, "args": _inert({"a": [1]}), "scores": [array]}
    checkpoint["again"] = checkpoint
    found = arrays.plain(checkpoint, {})
    assert found.pop("again") is found
    assert found == {
        "cfg": {"arch": "transformer"},
        "args": {"a": [1]},
        "scores": [array],
    }


@pytest.fixture
def saved(tmp_path):
    """Return a function that writes a checkpoint with an extra_state."""
    torch = pytest.importorskip("torch", reason="the extra pytorch is absent")

    def save(**extra):
        args = argparse.Namespace(**models.arguments(tokenizer="moses"))
        state = models.state(models.arguments())
        checkpoint = {
            "args": args,
            "model": {k: torch.from_numpy(v) for k, v in state.items()},
            "extra_state": extra,
        }
        models.write_vocabularies(tmp_path)
        torch.save(checkpoint, tmp_path / "checkpoint_best.pt")
        return tmp_path

    return save


def test_arrays_of_a_validation_are_no_part_of_the_model(saved):
    folder = saved(counts=[np.arange(3)], best=np.float64(2), meter={"a": 1})
    found = fairseq.read(folder)
    assert found.hparams["hidden_size"] == models.SIZE
    assert "encoder.version" in found.left_over


def test_object_with_code_is_named_and_not_run(saved, tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    folder = saved(object=Hostile())
    with pytest.raises(errors.UserError) as error:
        fairseq.read(folder)
    message = str(error.value)
    assert f"Python objects: {os.mkdir.__module__}.mkdir. They" in message
    assert "weights_only" not in message and "\x1b" not in message
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("content", [b"", b"no pickle", b"PK\x03\x04"])
def test_file_that_is_no_checkpoint_is_called_unreadable(content, tmp_path):
    pytest.importorskip("torch", reason="the extra pytorch is absent")
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(errors.UserError, match="cannot be read"):
        fairseq.read(tmp_path)


def test_languages_that_the_settings_lack_are_those_of_the_flag(tmp_path):
    models.write_vocabularies(tmp_path)
    args = models.arguments(source_lang=None, target_lang=None)
    checkpoint = {"args": args, "model": models.state(args)}
    file = tmp_path / "model.pt"
    found = fairseq.convert(checkpoint, file, "none", "en-de")
    assert found.vocabularies.languages == ("en", "de")


def test_copies_of_fairseq_0_12_are_ignored(tmp_path):
    arrays = {"encoder.layers.0.fc1_weight": {"ones": (2, 2)}}
    imported_models.write_fairseq(tmp_path, arrays=arrays)()


def test_file_of_another_program_is_refused(tmp_path):
    for checkpoint, message in (
        ({"weights": 1}, r"neither args nor cfg.model, but \['weights"),
        ({"args": models.arguments()}, "has no weights under `model`"),
    ):
        with pytest.raises(errors.UserError, match=message):
            fairseq.convert(checkpoint, tmp_path / "model.pt")
