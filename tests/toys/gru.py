"""Recurrent model with attention, which tests the model interface.

Encoder and decoder are one layer of gated recurrent units each (Cho et al.
2014). The decoder's states attend to the encoder's (Luong et al. 2015,
"general").
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
class GruHParams(HParams):
    """Settings of the recurrent model."""

    attention_size: int = setting(at_least(1))
    embedding_dropout: float = 0.0


class Cell(keras.layers.Layer):
    """Gated recurrent unit: x […, D], state […, D] -> next state […, D]."""

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.state_size = size
        settings = {"dtype": self.dtype_policy}
        self.gates = keras.layers.Dense(2 * size, name="gates", **settings)
        self.candidate = keras.layers.Dense(size, name="candidate", **settings)

    def build(self, x_shape):
        for dense in (self.gates, self.candidate):
            dense.build((None, x_shape[-1] + self.state_size))

    def call(self, x, states):
        (state,) = states
        gates = ops.sigmoid(self.gates(ops.concatenate([x, state], -1)))
        update, reset = ops.split(gates, 2, axis=-1)
        new = ops.concatenate([x, reset * state], -1)
        state = update * state + (1 - update) * ops.tanh(self.candidate(new))
        return state, [state]


@models.register("toy_gru", hparams=GruHParams)
class Gru(seq2seq.Seq2Seq):
    """Gated recurrent units with attention."""

    attention_kinds = ("cross",)

    def __init__(self, hparams, vocab_size, **kwargs):
        super().__init__(hparams, vocab_size, **kwargs)
        size, settings = hparams.hidden_size, {"dtype": self.dtype_policy}
        self.inputs_embedding = embedding.Embedding(
            self.source_vocab_size, size, name="inputs_embedding", **settings
        )
        self.embedding = embedding.Embedding(
            vocab_size, size, use_bias=True, name="embedding", **settings
        )
        self.dropout = randomness.Dropout(
            hparams.embedding_dropout, name="dropout", **settings
        )
        self.encoder, self.decoder = (
            keras.layers.RNN(
                Cell(size, name="cell", **settings),
                return_sequences=True,
                name=name,
                **settings,
            )
            for name in ("encoder", "decoder")
        )
        self.query, self.key = (
            keras.layers.Dense(
                hparams.attention_size, use_bias=False, name=name, **settings
            )
            for name in ("query", "key")
        )
        self.output_projection = keras.layers.Dense(
            size, activation="tanh", name="output_projection", **settings
        )

    @property
    def output_layer(self):
        return self.embedding

    def _encode(self, inputs, rng=None):
        x = self.dropout(self.inputs_embedding(inputs), rng=rng)
        memory = self.encoder(x)  # [B, L, D]; padding comes last
        return memory, self.key(memory), inputs > 0

    def _attend(self, states, memory, keys, mask):
        """Attend from states [B, T, D] to memory [B, L, D]."""
        logits = ops.einsum("bta,bla->btl", self.query(states), keys)
        logits = ops.where(mask[:, None], ops.cast(logits, "float32"), -1e9)
        weights = ops.softmax(logits)
        context = ops.matmul(ops.cast(weights, memory.dtype), memory)
        x = self.output_projection(ops.concatenate([states, context], -1))
        return x, weights

    def _run(self, batch, rng=None):
        source = self._encode(batch["inputs"], rng)
        y = self.embedding(batch["targets"])
        y = ops.pad(y, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        return self._attend(self.decoder(y), *source)

    def hidden_states(self, batch, rng=None):
        return seq2seq.HiddenStates(self._run(batch, rng)[0])

    def attention_weights(self, batch):
        weights = self._run(batch)[1]
        return seq2seq.AttentionWeights(cross=weights[None, :, None])

    def start_decoding(self, inputs, num_beams, capacity, constants):
        source = self._encode(inputs)
        shape = (ops.shape(inputs)[0], num_beams, self.hparams.hidden_size)
        states = ops.zeros(shape, self.compute_dtype)
        return seq2seq.DecodingState((), source, states)

    def decode_step(self, ids, step, state):
        x = ops.where(step > 0, self.embedding(ids), 0)  # [B, W, D]
        states, _ = self.decoder.cell(x, [state.hypotheses])
        y, weights = self._attend(states, *state.sentences)
        state = state._replace(hypotheses=states)
        return seq2seq.StepOutputs(self.embedding.logits(y), state, weights)

    def flops(self, source_length, target_length):
        d, a = self.hparams.hidden_size, self.hparams.attention_size
        source = source_length * (6 * d * d + d * a)
        attention = d * a + source_length * (a + d)
        target = target_length * (8 * d * d + attention + d * self.vocab_size)
        return 2.0 * (source + target)


@hparams_sets.register("toy_gru", parent="tiny")
def toy_gru(parent):
    """The recurrent model with the training settings of `tiny`."""
    return GruHParams.like(
        parent,
        model="toy_gru",
        batching="bucketed",
        hidden_size=32,
        attention_size=16,
        embedding_dropout=0.1,
    )
