"""Tests of the check of a model's rules, by models that break one each."""

import dataclasses

import keras
import numpy as np
import page_definitions
import pytest
from keras import ops

from t2t_repro import errors, registry
from t2t_repro.models import building
from t2t_repro.models.seq2seq import AuxiliaryLoss, HiddenStates
from t2t_repro.models.transformer import Transformer
from t2t_repro.training import model_check


class TargetSeen(Transformer):
    def hidden_states(self, batch, rng=None):
        seen = self.targets_embedding(batch["targets"])
        return HiddenStates(super().hidden_states(batch, rng).states + seen)


class PositionsOfTheRow(Transformer):
    def hidden_states(self, batch, rng=None):
        positions = ops.cumsum(ops.ones_like(batch["targets"]), axis=1) - 1
        batch = batch | {"targets_position": positions}
        return super().hidden_states(batch, rng)


class MeanOfTheRow(Transformer):
    def hidden_states(self, batch, rng=None):
        embedded = self.inputs_embedding(batch["inputs"])
        mean = ops.mean(embedded, axis=1, keepdims=True)
        return HiddenStates(super().hidden_states(batch, rng).states + mean)


class NumbersOfThePass(Transformer):
    def hidden_states(self, batch, rng=None):
        x = super().hidden_states(batch, rng).states
        if rng is None:
            return HiddenStates(x)
        noise = np.random.default_rng(x.shape[0]).normal(size=x.shape[1:])
        return HiddenStates(x + ops.cast(noise, x.dtype))


class Infinite(Transformer):
    def hidden_states(self, batch, rng=None):
        x = super().hidden_states(batch, rng).states
        return HiddenStates(self.decoder.layers[0].ffn.norm(x) / 0.0)


class UnusedWeight(Transformer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.unused = self.add_weight(name="unused", shape=(4,))


class InputsChangedInSteps(Transformer):
    def start_decoding(self, inputs, *args):
        last = self.source_vocab_size - 1
        return super().start_decoding(
            ops.where(inputs == last, 2, inputs), *args
        )


class BeamsKeptInPlace(Transformer):
    def reorder_beams(self, state, parents):
        return state


class StateNeverCompacted(Transformer):
    def compact_state(self, state):
        return state


class LossOfTheBatch(Transformer):
    def hidden_states(self, batch, rng=None):
        x = super().hidden_states(batch, rng).states
        loss = AuxiliaryLoss("size", ops.mean(x**2), "target_tokens")
        return HiddenStates(x, (loss,))


class ConditionOfPython(Transformer):
    def decode_step(self, ids, step, state):
        return super().decode_step(ids, step if step > 0 else 0, state)


class LayerOfTheStep(Transformer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.late = keras.layers.Dense(4, name="late")

    def start_decoding(self, *args):
        self.late(ops.zeros((1, 4)))
        return super().start_decoding(*args)


class LayerOfEachCall(Transformer):
    def hidden_states(self, batch, rng=None):
        x = super().hidden_states(batch, rng).states
        return HiddenStates(keras.layers.Dense(x.shape[-1], name="new")(x))


class OneVocabulary(Transformer):
    def __init__(self, hparams, vocab_size, source_vocab_size=None, **kwargs):
        super().__init__(hparams, vocab_size, **kwargs)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (TargetSeen, "logits depend on earlier targets alone"),
        (PositionsOfTheRow, "the same logits in a packed row as in its own"),
        (MeanOfTheRow, "the same logits alone as in a batch with padding"),
        (NumbersOfThePass, "random numbers are a function of the row"),
        (Infinite, "logits are finite"),
        (UnusedWeight, "it does not depend on transformer/unused"),
        (InputsChangedInSteps, r"logits of decode_step\(\).*at step 0"),
        (BeamsKeptInPlace, r"logits of decode_step\(\).*at step 2"),
        (LossOfTheBatch, "a sum over rows, .*; size of two pairs"),
        (ConditionOfPython, r"are ops.where, .*a Python `bool` is not allowed"),
        (LayerOfTheStep, r"weights are made .*; late/kernel, late/bias app"),
        (LayerOfEachCall, "layers are made by .*; transformer/new is none"),
        (StateNeverCompacted, r"logits of decode_step\(\).*at step 2"),
    ],
)
def test_rule_that_a_model_breaks_is_named(register_model, cls, message):
    with pytest.raises(errors.UserError, match=f"'mine' breaks .*{message}"):
        model_check.check(register_model(cls))


def test_model_that_ignores_source_vocab_size_is_refused(register_model):
    hparams = register_model(OneVocabulary)
    model_check.check(hparams)
    with pytest.raises(errors.UserError, match="30 is refused, .*source_vocab"):
        model_check.check(hparams, separate=True)


def test_layer_whose_outputs_differ_is_named(toys, monkeypatch):
    gru = registry.models["toy_gru"].value
    step = gru.decode_step
    monkeypatch.setattr(
        gru,
        "decode_step",
        lambda self, ids, t, state: step(self, ids, 1, state),
    )
    with pytest.raises(errors.UserError, match="first in the layer gru/query"):
        model_check.check(registry.build_hparams("toy_gru"))


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
def test_sublayers_of_the_page_follow_the_rules_in_16_bits():
    page_definitions.register("parts")
    hparams = dataclasses.replace(
        registry.build_hparams("tiny_parts"), num_hidden_layers=1
    )
    model_check.check(hparams, "mixed_bfloat16")
    paths = {weight.path for weight in building.build(hparams, 20).weights}
    assert "transformer/decoder/layer_0/ffn/feed_forward/inner/kernel" in paths
    assert "transformer/decoder/layer_0/cross_attention/norm/gain" in paths
