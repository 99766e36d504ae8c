"""Exports to CTranslate2 compute what the model does, or are refused."""

import json
import types

import pytest
from ctranslate2_specs import assert_same_outputs
from transformer_variants import VARIANTS

from t2t_repro import errors
from t2t_repro.hparam import DecodeHParams
from t2t_repro.serving import exporting
from t2t_repro.text.sentence_piece import Bpe, Unigram
from t2t_repro.text.vocabulary import PAD, Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies

SMALL_VALUES = {"attention_key_channels": 20, "attention_value_channels": 6}
# All supported options, several at a time.
CASES = {
    "default": VARIANTS["default"],
    "relative": VARIANTS["relative"] | VARIANTS["sizes"] | VARIANTS["unscaled"],
    "pre_norm_apart_gelu": VARIANTS["pre_norm"]
    | VARIANTS["apart"]
    | VARIANTS["gelu"]
    | VARIANTS["deep_encoder"],
    "learned_tied_silu": VARIANTS["learned"]
    | VARIANTS["targets_tied"]
    | VARIANTS["silu"]
    | VARIANTS["biases"],
    "timing_deep_decoder": VARIANTS["timing"]
    | VARIANTS["deep_decoder"]
    | SMALL_VALUES,
    "no_positions": VARIANTS["no_positions"]
    | VARIANTS["inputs_bias"]
    | VARIANTS["hidden_eos"]
    | VARIANTS["gelu_sigmoid"]
    | VARIANTS["learned_start"],
    "imported": VARIANTS["imported"],
    "one_key_head": VARIANTS["one_key_head"],
    # CTranslate2 rotates the first components of a padded key only.
    "rotary_grouped_rms": VARIANTS["modern"]
    | {"ffn_activation": "relu", "restricted_attention": 0},
}
FAST = "default", "pre_norm_apart_gelu", "no_positions", "rotary_grouped_rms"
# Some need more positions than the 8 that are learned.
LINES = ["a b c d", "f", "e d c b a k l i", "l l k a b c d e f g h i j", "k"]
TARGETS = ["D C B A", "A B C D E F G H I J K", "A", "B C", "F F F"]


def test_rounded_weights_and_settings_of_a_search_are_refused(tmp_path):
    run = types.SimpleNamespace(search=DecodeHParams(rules="forbid"))
    arguments = run, tmp_path, "ctranslate2", None, DecodeHParams()
    with pytest.raises(errors.UserError, match="rounds .*dtype=bfloat16"):
        exporting.write(*arguments, "bfloat16")
    with pytest.raises(errors.UserError, match="with rules. Omit them"):
        exporting.write(*arguments)


@pytest.fixture(scope="module")
def vocabulary():
    return Bpe.learn([*LINES, *TARGETS] * 5, 290)


@pytest.fixture(scope="module")
def shared(vocabulary):
    return Vocabularies.shared(vocabulary)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            CASES[name], id=name, marks=() if name in FAST else pytest.mark.slow
        )
        for name in CASES
    ],
)
def test_log_probabilities_and_greedy_outputs_equal_the_models(
    export_to_ctranslate2, shared, changes
):
    model, folder = export_to_ctranslate2(shared, **changes)
    # No text has PAD, but a random model may predict it.
    search = {"atol": 1e-4, "suppress_sequences": [shared.target.pieces([PAD])]}
    assert_same_outputs(folder, model, shared, LINES, TARGETS, **search)


def test_separate_vocabularies_give_the_outputs_of_the_model(
    export_to_ctranslate2, vocabulary
):
    pair = Vocabularies(vocabulary, Unigram.learn(TARGETS * 5, 274))
    changes = {"shared_embedding_and_softmax_weights": False}
    model, folder = export_to_ctranslate2(pair, **changes)
    assert not (folder / "shared_vocabulary.json").exists()
    search = {"atol": 1e-4, "suppress_sequences": [pair.target.pieces([PAD])]}
    assert_same_outputs(folder, model, pair, LINES, TARGETS, **search)


class ListedVocabulary(Vocabulary):
    """A vocabulary whose bytes list its subwords."""

    unknown = 2

    @property
    def size(self):
        return len(self.pieces(()))

    def pieces(self, ids):
        return self.model.decode().split()


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"<pad> </s> <unk> a a", b"<pad> </s> <unk> b", "two of this vocab"),
        (
            b"<pad> </s> <unk> a",
            b"<pad> <eos> <unk> b",
            r"\('<unk>', '</s>'\) of inputs and \('<unk>', '<eos>'\) of targ",
        ),
    ],
)
def test_unsupported_vocabularies_are_refused(
    export_to_ctranslate2, tmp_path, source, target, message
):
    pair = Vocabularies(ListedVocabulary(source), ListedVocabulary(target))
    with pytest.raises(errors.UserError, match=f"CTranslate2 .*{message}"):
        export_to_ctranslate2(pair, shared_embedding_and_softmax_weights=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (VARIANTS["no_norm"], "sequence must be 'dan' after 'none'"),
        (VARIANTS["both_norms"], "layer_postprocess_sequence .* got 'dan'"),
        (VARIANTS["additive"], "must be a dot product; got 'additive'"),
        (VARIANTS["restricted"], "restricted_attention must be 0; got 2"),
        (VARIANTS["swiglu"], "activation must be one of .* got 'swiglu'"),
        ({"max_relative_position": 2}, "hparam pos must be 'none'"),
        ({"pos": "buckets"}, "hparam pos must be another one"),
        (VARIANTS["relative"] | {"inputs_bias": True}, "inputs_bias must be f"),
    ],
)
def test_unsupported_option_is_named(
    export_to_ctranslate2, shared, tmp_path, changes, message
):
    with pytest.raises(errors.UserError, match=message):
        export_to_ctranslate2(shared, **changes)
    assert not list(tmp_path.iterdir())


def test_ensemble_is_refused(shared, tmp_path):
    with pytest.raises(errors.UserError, match="no ensembles; got 2"):
        exporting.export_ctranslate2([None, None], shared, None, tmp_path, {})


def test_folder_is_whole_and_never_overwritten(export_to_ctranslate2, shared):
    _, folder = export_to_ctranslate2(shared, {"run": 1})
    assert (folder / "vocab.model").read_bytes() == shared.source.model
    card = json.loads((folder / "model_card.json").read_text())
    assert card == {"run": 1, "weights_dtype": "float32"}
    config = json.loads((folder / "config.json").read_text())
    assert config["layer_norm_epsilon"] == 1e-6
    names = {path.name for path in folder.parent.iterdir()}
    assert names == {folder.name, f"{folder.name}.lock"}
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(errors.UserError, match="out already exists"):
        export_to_ctranslate2(shared)
    assert before == {path: path.read_bytes() for path in folder.iterdir()}
