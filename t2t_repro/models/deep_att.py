"""Deep-Att (Zhou et al. 2016, arXiv 1606.04199): deep LSTMs with attention.

All but the stacks is as in the model "recurrent": the query of the attention is
the bottom decoder layer's output of the previous step.
"""

from t2t_repro.models import deep_att_stack
from t2t_repro.models.recurrent import Recurrent


class DeepAtt(Recurrent):
    """Deep-Att, in the variants of DeepAttHParams."""

    default_name = "deep_att"

    def _new_encoder(self) -> deep_att_stack.Encoder:
        return deep_att_stack.Encoder(
            self.hparams, name="encoder", dtype=self.dtype_policy
        )

    def _new_decoder(self) -> deep_att_stack.Decoder:
        return deep_att_stack.Decoder(
            self.hparams, name="decoder", dtype=self.dtype_policy
        )

    def flops(self, source_length: float, target_length: float) -> float:
        h, size = self.hparams, self.hparams.hidden_size
        gates = self.decoder.bottom.cell.num_gates * size
        keys = h.attention_size or size
        # Each layer multiplies its input and its previous output by matrices.
        upper = gates * (gates // 2 + 2 * size)
        column = gates * 2 * size + (h.num_encoder_layers - 1) * upper
        width = 2 * (gates + size)
        context = width // 4
        source = 2 * column + width * context + context * keys
        target = gates * (2 * size + context)
        target += (h.num_decoder_layers - 1) * upper
        # As in the model "recurrent".
        pair = (2 if h.attention_type == "additive" else 1) * keys + context
        target += size * keys + source_length * pair + size * self.vocab_size
        return 2.0 * (source_length * source + target_length * target)
