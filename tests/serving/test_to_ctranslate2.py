"""Exports to CTranslate2 compute what the model does, or are refused."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import sentencepiece
from imported_models import log_probs
from transformer_variants import VARIANTS

from t2t_repro import errors, hparam
from t2t_repro.models import building
from t2t_repro.serving import exporting
from t2t_repro.text.sentence_piece import Bpe, Unigram
from t2t_repro.text.vocabulary import EOS, PAD, Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="the extra ctranslate2 is not installed"
)

SMALL_VALUES = {"attention_key_channels": 20, "attention_value_channels": 6}
# All supported options, several at a time.
CASES = {
    "default": VARIANTS["default"],
    "relative_sizes": VARIANTS["relative"] | VARIANTS["sizes"],
    "relative_unscaled": VARIANTS["relative"] | VARIANTS["unscaled"],
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
    | VARIANTS["hidden_eos"],
    "imported": VARIANTS["imported"],
    "gelu_sigmoid": VARIANTS["gelu_sigmoid"] | VARIANTS["learned_start"],
    "one_key_head": VARIANTS["one_key_head"],
    # CTranslate2 rotates the first components of a padded key only.
    "rotary_grouped_rms": VARIANTS["modern"]
    | {"ffn_activation": "relu", "restricted_attention": 0},
}
LINES = ["a b c d", "f", "e d c b a k l i", "l l k a b c d e f g h i j", "k"]
TARGETS = ["D C B A", "A B C D E F G H I J K", "A", "B C", "F F F"]
MAX_LENGTH = 8  # learned positions, fewer than LINES and TARGETS need
MAX_OUTPUT = 20  # subwords
LENGTHS = hparam.DecodeHParams(max_input_length=16, extra_length=8)


def test_rounded_weights_are_refused(tmp_path):
    with pytest.raises(errors.UserError, match="rounds .*dtype=bfloat16"):
        exporting.export_ctranslate2([], None, None, tmp_path, {}, "bfloat16")


@pytest.fixture(scope="module")
def vocabulary():
    return Bpe.learn([*LINES, *TARGETS] * 5, 290)


@pytest.fixture(scope="module")
def shared(vocabulary):
    return Vocabularies.shared(vocabulary)


@pytest.fixture(scope="module")
def build(tiny_hparams, randomize, vocabulary):
    """Return a function of changes of HParams that returns a random model."""

    def build(changes):
        changes = {"num_hidden_layers": 1, "max_length": MAX_LENGTH} | changes
        hparams = dataclasses.replace(tiny_hparams, **changes)
        model = building.build(hparams, vocabulary.size)
        randomize(model)
        return model

    return build


@pytest.fixture
def export(build, shared, tmp_path):
    """Return a function of changes of HParams that exports a model."""

    def export(changes):
        model, folder = build(changes), tmp_path / "folder"
        exporting.export_ctranslate2(
            [model], shared, LENGTHS, folder, {"run": 1}
        )
        return model, folder

    return export


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_log_probabilities_and_greedy_outputs_equal_the_models(
    export, vocabulary, changes
):
    model, folder = export(changes)
    theirs = ctranslate2.Translator(
        str(folder), compute_type="float32", intra_threads=1
    )
    pieces = sentencepiece.SentencePieceProcessor(
        model_file=str(folder / "vocab.model")
    )
    inputs, targets = map(vocabulary.encode, (LINES, TARGETS))
    source, target = (
        pieces.Encode(text, out_type=str) for text in (LINES, TARGETS)
    )
    scored = theirs.score_batch(source, target)
    for ids, target_ids, result in zip(inputs, targets, scored, strict=True):
        _, ours = log_probs(model, ids, target_ids)
        np.testing.assert_allclose(result.log_probs, ours, atol=1e-4)
    translated = theirs.translate_batch(
        source,
        beam_size=1,
        max_decoding_length=MAX_OUTPUT,
        # No text has PAD, but a random model may predict it.
        suppress_sequences=[[pieces.IdToPiece(PAD)]],
    )
    for ids, result in zip(inputs, translated, strict=True):
        chosen = pieces.PieceToId(result.hypotheses[0]) + [EOS]
        ours, _ = log_probs(model, ids, chosen)
        ours[:, PAD] = -np.inf
        # The best id after each prefix; the longest are cut without EOS.
        assert ours.argmax(-1).tolist()[:MAX_OUTPUT] == chosen[:MAX_OUTPUT]


def test_separate_vocabularies_score_as_the_model(
    tiny_hparams, randomize, vocabulary, tmp_path
):
    target = Unigram.learn(TARGETS * 5, 274)
    vocabularies = Vocabularies(vocabulary, target)
    hparams = dataclasses.replace(
        tiny_hparams, shared_embedding_and_softmax_weights=False
    )
    model = building.build(hparams, **vocabularies.sizes)
    randomize(model)
    folder = exporting.export_ctranslate2(
        [model], vocabularies, LENGTHS, tmp_path / "folder", {}
    )
    assert not (folder / "shared_vocabulary.json").exists()
    theirs = ctranslate2.Translator(str(folder), compute_type="float32")
    pairs = [
        side.encode(text[:1])
        for side, text in zip(vocabularies, (LINES, TARGETS), strict=True)
    ]
    pieces = [
        [side.pieces(row[:-1]) for row in rows]
        for side, rows in zip(vocabularies, pairs, strict=True)
    ]
    (result,) = theirs.score_batch(*pieces)
    ((ids,), (target_ids,)) = pairs
    _, ours = log_probs(model, ids, target_ids)
    np.testing.assert_allclose(result.log_probs, ours, atol=1e-4)


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
        (
            b"<pad> </s> <unk> a a",
            b"<pad> </s> <unk> b",
            "two of this vocabulary",
        ),
        (
            b"<pad> </s> <unk> a",
            b"<pad> <eos> <unk> b",
            r"\('<unk>', '</s>'\) of inputs and \('<unk>', '<eos>'\) of targ",
        ),
    ],
)
def test_unsupported_vocabularies_are_refused(
    build, tmp_path, source, target, message
):
    with pytest.raises(errors.UserError, match=f"CTranslate2 .*{message}"):
        exporting.export_ctranslate2(
            [build({})],
            Vocabularies(ListedVocabulary(source), ListedVocabulary(target)),
            LENGTHS,
            tmp_path / "folder",
            {},
        )
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            VARIANTS["no_norm"],
            "postprocess_sequence must be 'dan' after 'none'",
        ),
        (VARIANTS["both_norms"], "layer_postprocess_sequence .* got 'dan'"),
        (VARIANTS["additive"], "must be a dot product; got 'additive'"),
        (
            VARIANTS["restricted"],
            "hparam restricted_attention must be 0; got 2",
        ),
        (VARIANTS["swiglu"], "activation must be one of .* got 'swiglu'"),
        ({"max_relative_position": 2}, "hparam pos must be 'none'"),
        ({"pos": "buckets"}, "hparam pos must be another one"),
        (
            VARIANTS["relative"] | VARIANTS["inputs_bias"],
            "inputs_bias must be false",
        ),
        (VARIANTS["rotary"] | {"inputs_bias": True}, "inputs_bias must be"),
    ],
)
def test_unsupported_option_is_named(export, tmp_path, changes, message):
    with pytest.raises(errors.UserError, match=message):
        export(changes)
    assert not list(tmp_path.iterdir())


def test_ensemble_is_refused(shared, tmp_path):
    with pytest.raises(errors.UserError, match="no ensembles; got 2"):
        exporting.export_ctranslate2(
            [None, None], shared, LENGTHS, tmp_path / "folder", {}
        )


def test_missing_package_is_named_with_its_installation(
    build, shared, monkeypatch, tmp_path
):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(errors.UserError, match="ctranslate2 needs ctranslate2"):
        exporting.export_ctranslate2(
            [build({})], shared, LENGTHS, tmp_path / "folder", {}
        )


def test_folder_is_complete_and_never_overwritten(export, vocabulary):
    _, folder = export({})
    assert (folder / "vocab.model").read_bytes() == vocabulary.model
    card = json.loads((folder / "model_card.json").read_text())
    assert card == {"run": 1, "weights_dtype": "float32"}
    config = json.loads((folder / "config.json").read_text())
    assert config["layer_norm_epsilon"] == 1e-6
    assert {path.name for path in folder.parent.iterdir()} == {
        "folder",
        "folder.lock",
    }
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(errors.UserError, match="folder already exists"):
        export({})
    assert before == {path: path.read_bytes() for path in folder.iterdir()}
