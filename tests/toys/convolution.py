"""Convolutional model without attention, which tests the model interface.

Position t of the decoder reads column t of the encoder, as in ByteNet (arXiv
1610.10099), which bounds the length of outputs. A noisy gate with an auxiliary
loss mixes experts for each position (arXiv 1701.06538).
"""

import dataclasses

import keras
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.io.fields import at_least, setting
from t2t_repro.layers import embedding, randomness
from t2t_repro.models import seq2seq
from t2t_repro.registry import hparams_sets, models


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvolutionHParams(HParams):
    """Settings of the convolutional model."""

    kernel_width: int = setting(at_least(2))
    num_experts: int = setting(at_least(1))
    target_ratio: int = setting(at_least(1), default=3)
    balance_weight: float = setting(at_least(0), default=0.1)


@models.register("toy_convolution", hparams=ConvolutionHParams)
class Convolution(seq2seq.Seq2Seq):
    """Convolutions with a mixture of experts, and no attention."""

    def __init__(self, hparams, vocab_size, **kwargs):
        super().__init__(hparams, vocab_size, **kwargs)
        size, settings = hparams.hidden_size, {"dtype": self.dtype_policy}
        self.inputs_embedding = embedding.Embedding(
            self.source_vocab_size, size, name="inputs_embedding", **settings
        )
        self.embedding = embedding.Embedding(
            vocab_size, size, name="embedding", **settings
        )
        # A dense layer on flattened windows [.., k, D] is a convolution.
        self.encoder, self.decoder = (
            keras.layers.Dense(size, activation="relu", name=name, **settings)
            for name in ("encoder", "decoder")
        )
        self.experts = keras.layers.Dense(
            size * hparams.num_experts, name="experts", **settings
        )
        self.gate = keras.layers.Dense(
            hparams.num_experts, use_bias=False, name="gate", **settings
        )

    @property
    def output_layer(self):
        return self.embedding

    def max_output_lengths(self, input_lengths):
        return self.hparams.target_ratio * input_lengths

    def _encode(self, inputs, length):
        """Encode ids [B, L] to columns [B, length, D], one per target."""
        mask = ops.cast(inputs > 0, self.compute_dtype)[..., None]
        x = self.inputs_embedding(inputs) * mask
        k = self.hparams.kernel_width
        padded = ops.pad(x, ((0, 0), (k // 2, k - 1 - k // 2), (0, 0)))
        x = self.encoder(self._windows(padded)) * mask
        more = ops.maximum(length - ops.shape(x)[1], 0)
        return ops.pad(x, ((0, 0), (0, more), (0, 0)))[:, :length]

    def _windows(self, x):
        """Return the windows […, N, k * D] of x […, N + k - 1, D]."""
        k = self.hparams.kernel_width
        count = ops.shape(x)[-2] - k + 1
        return ops.concatenate(
            [x[..., i : i + count, :] for i in range(k)], axis=-1
        )

    def _mix(self, x, rng=None):
        """Return mixed experts [B, …, D] and gates [B, …, E] of x [B, …, D]."""
        logits = ops.cast(self.gate(x), "float32")
        if rng is not None:
            stream = randomness.stream_id(f"{self.gate.path}/noise")
            logits = logits + randomness.normal(rng, stream, ops.shape(logits))
        gates = ops.softmax(logits)
        experts = ops.reshape(self.experts(x), (*ops.shape(x), -1))
        weighted = experts * ops.cast(gates, x.dtype)[..., None, :]
        return x + ops.sum(weighted, -1), gates

    def hidden_states(self, batch, rng=None):
        targets = batch["targets"]
        columns = self._encode(batch["inputs"], ops.shape(targets)[1])
        k = self.hparams.kernel_width
        y = ops.pad(self.embedding(targets), ((0, 0), (k, 0), (0, 0)))[:, :-1]
        x = self.decoder(self._windows(y)) + columns
        states, gates = self._mix(x, rng)
        real = ops.cast(batch["targets_segment"] > 0, "float32")
        # The loss is minimal if all experts have the same share.
        uneven = ops.sum(ops.square(gates), -1) * real
        total = self.hparams.balance_weight * ops.sum(uneven)
        balance = seq2seq.AuxiliaryLoss("balance", total, "target_tokens")
        return seq2seq.HiddenStates(states, (balance,))

    def start_decoding(self, inputs, num_beams, capacity, constants):
        batch, length = ops.shape(inputs)
        columns = self._encode(inputs, self.hparams.target_ratio * length)
        shape = (batch, num_beams, self.hparams.kernel_width - 1)
        past = ops.zeros((*shape, self.hparams.hidden_size), columns.dtype)
        return seq2seq.DecodingState((), columns, past)

    def decode_step(self, ids, step, state):
        y = self.embedding(ids)[:, :, None]
        y = y * ops.cast(step > 0, y.dtype)
        window = ops.concatenate(
            [state.hypotheses, ops.cast(y, state.hypotheses.dtype)], axis=2
        )
        column = ops.take(state.sentences, step, axis=1)[:, None]
        x = self.decoder(self._windows(window))[:, :, 0] + column
        logits = self.embedding.logits(self._mix(x)[0])
        state = state._replace(hypotheses=window[:, :, 1:])
        return seq2seq.StepOutputs(logits, state)

    def flops(self, source_length, target_length):
        d, k = self.hparams.hidden_size, self.hparams.kernel_width
        experts = self.hparams.num_experts
        per_target = k * d * d + experts * d * (d + 1) + d * self.vocab_size
        return 2.0 * (source_length * k * d * d + target_length * per_target)


@hparams_sets.register("toy_convolution", parent="tiny")
def toy_convolution(parent):
    """The convolutional model with the training settings of `tiny`."""
    return ConvolutionHParams.like(
        parent,
        model="toy_convolution",
        batching="bucketed",
        hidden_size=32,
        kernel_width=3,
        num_experts=2,
    )
