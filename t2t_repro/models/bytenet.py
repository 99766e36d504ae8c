"""ByteNet (Kalchbrenner et al. 2016, arXiv 1610.10099, version 2).

Encoder and decoder are stacks of dilated convolutions. There is no attention:
the decoder is stacked on the encoder, so that position t of the target reads
column t of the encoder. Sections in comments are those of the ByteNet paper.
"""

from collections.abc import Mapping
from typing import Any

from keras import ops

from t2t_repro.layers.convolution import DilatedStack
from t2t_repro.layers.randomness import Rng
from t2t_repro.models import seq2seq
from t2t_repro.runtime.keras_compat import Tensor


class ByteNet(seq2seq.EmbeddingSeq2Seq):
    """ByteNet: dilated convolutions, the decoder stacked on the encoder."""

    default_name = "bytenet"

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, **kwargs)
        self.encoder, self.decoder = (
            self.new_layer(
                DilatedStack,
                hparams.hidden_size,
                hparams.dilations,
                hparams.kernel_width,
                causal,
                hparams.layer_prepostprocess_dropout,
                name=name,
            )
            for name, causal in (("encoder", False), ("decoder", True))
        )

    def encode(self, inputs: Tensor, rng: Rng | None = None) -> Tensor:
        """Encode inputs [B, L] to the columns that the decoder reads.

        A sentence has a * |s| + b columns (section 3.2). Those after its end
        have the embedding of PAD as their input, as in section 6, which pads
        with special characters. Later ones are zero, and no convolution sees
        them, so that a sentence is independent of the padding of its batch.

        Returns:
            [B, a * L + b, D].
        """
        visible = seq2seq.visible_columns(inputs, self.hparams)
        padded = seq2seq.pad_columns(inputs, ops.shape(visible)[1])
        x = self.inputs_embedding(padded)
        visible = ops.cast(visible, x.dtype)[..., None]
        return self.encoder(x, visible=visible, rng=rng) * visible

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> seq2seq.HiddenStates:
        columns = self.encode(batch["inputs"], rng)
        # Section 3.2: targets may be longer than the estimate. As in version 1
        # of the paper, they read zeros in place of the missing columns.
        columns = seq2seq.pad_columns(columns, ops.shape(batch["targets"])[1])
        y = seq2seq.shift_right(self.targets_embedding(batch["targets"]))
        return seq2seq.HiddenStates(self.decoder(y + columns, rng=rng))

    def start_decoding(
        self,
        inputs: Tensor,
        num_beams: Tensor | int,
        capacity: Tensor | int,
        constants: Any,
    ) -> seq2seq.DecodingState:
        columns = self.encode(inputs)
        rings = self.decoder.empty_rings(ops.shape(inputs)[0], num_beams)
        return seq2seq.DecodingState(constants, columns, rings)

    def decode_step(
        self, ids: Tensor, step: Tensor, state: seq2seq.DecodingState
    ) -> seq2seq.StepOutputs:
        x = self.embed_previous(ids, step)
        x = x + seq2seq.take_column(state.sentences, step)[:, None]
        x, rings = self.decoder.step(x, state.hypotheses, step)
        logits = self.softmax.logits(x, state.constants)
        return seq2seq.StepOutputs(logits, state._replace(hypotheses=rings))

    def flops(self, source_length: float, target_length: float) -> float:
        hparams = self.hparams
        d, k = hparams.hidden_size // 2, hparams.kernel_width
        # Convolutions of a block: 2d -> d, k d -> d, d -> 2d.
        stack = len(hparams.dilations) * (2 + k + 2) * d * d
        columns = hparams.target_ratio * source_length + hparams.target_offset
        softmax = target_length * hparams.hidden_size * self.vocab_size
        return 2.0 * ((columns + target_length) * stack + softmax)
