"""Parameters and training cost, by arithmetic."""

from typing import NamedTuple


class Spent(NamedTuple):
    """What a training has cost so far."""

    steps: int
    parameters: int
    counted: float | None  # FLOPs, of training_flops; None: lengths unknown
    seconds: float | None  # of the steps; None: not recorded
    sustained: float | None  # FLOP/s of all devices; None: not said

    @property
    def estimated(self) -> float | None:
        """FLOPs as Table 2 has them: time x devices x sustained FLOP/s."""
        if self.seconds is None or self.sustained is None:
            return None
        return self.seconds * self.sustained

    @property
    def rate(self) -> float | None:
        """Counted FLOPs in each second of all devices."""
        if not self.seconds or self.counted is None:
            return None
        return self.counted / self.seconds


def spent(
    hparams,
    vocab_size: int,
    mean_length: float | None,
    steps: int,
    seconds: float | None,
    sustained: float | None,
) -> Spent:
    """Of a training that has come to `steps`; see Spent for the others."""
    counted = None
    if mean_length:
        of_a_token = training_flops_per_token(hparams, vocab_size, mean_length)
        counted = of_a_token * hparams.batch_tokens * steps
    return Spent(
        steps, parameters(hparams, vocab_size), counted, seconds, sustained
    )


def parameters(hparams, vocab_size: int) -> int:
    """Trainable numbers of the model."""
    d, f = hparams.hidden_size, hparams.filter_size
    keys, values = _widths(hparams)
    attention = 2 * d * keys + 2 * d * values  # Q and K, V and O, no bias
    if hparams.attention_type == "additive":
        attention += keys  # a vector for each head
    ffn = d * f + f + f * d + d
    before = hparams.layer_preprocess_sequence == "n"
    after = "n" in hparams.layer_postprocess_sequence
    norms = (before + after) * 2 * d  # of a sublayer
    encoder_layer = attention + ffn + 2 * norms
    decoder_layer = 2 * attention + ffn + 3 * norms
    if hparams.max_relative_position:
        # Vectors for offsets -M … M, shared by the heads of self-attention.
        offsets = 2 * hparams.max_relative_position + 1
        relative = offsets * (keys + values) // hparams.num_heads
        encoder_layer += relative
        decoder_layer += relative
    layers = hparams.num_hidden_layers * (encoder_layer + decoder_layer)
    final_norms = before * 2 * 2 * d
    matrices = 1 if hparams.shared_embedding_and_softmax_weights else 3
    positions = 2 * hparams.max_length * d if hparams.pos == "emb" else 0
    return matrices * vocab_size * d + positions + layers + final_norms


def training_flops(hparams, vocab_size: int, mean_length: float) -> float:
    """Multiplications and additions of a whole training, counted.

    Padding is left out where batch_unit is "real_tokens".
    """
    of_a_token = training_flops_per_token(hparams, vocab_size, mean_length)
    return of_a_token * hparams.batch_tokens * hparams.train_steps


def training_flops_per_token(
    hparams, vocab_size: int, mean_length: float
) -> float:
    """Multiplications and additions of one step, for each target token.

    A matrix product of m x k and k x n costs 2 m k n, masked or not; the
    backward pass costs twice the forward pass. Norms, softmax and dropout are
    left out (about 1%), and so is attention from one sentence of a packed row
    to another, which is masked. Each target token stands for one of the
    source, too.

    Args:
        hparams: HParams.
        vocab_size: V.
        mean_length: subwords of a sentence, for attention's products.
    """
    d, f, n = hparams.hidden_size, hparams.filter_size, mean_length
    keys, values = _widths(hparams)
    projections = 2 * d * keys + 2 * d * values
    # Of a query: Q K^T and weights x V. Additive attention adds, takes a tanh
    # and multiplies by a vector where a dot product only multiplies.
    per_key = 2 if hparams.attention_type == "additive" else 1
    mixing = n * (per_key * keys + values)
    # Relative positions: the same products with offsets' keys and values.
    offsets = n * (keys + values) if hparams.max_relative_position else 0
    encoder_layer = projections + mixing + offsets + 2 * d * f
    decoder_layer = 2 * (projections + mixing) + offsets + 2 * d * f
    layers = hparams.num_hidden_layers * (encoder_layer + decoder_layer)
    forward = 2 * (layers + vocab_size * d)
    return 3.0 * forward


def _widths(hparams):
    """Channels of keys and of values, of all heads together."""
    return (
        hparams.attention_key_channels or hparams.hidden_size,
        hparams.attention_value_channels or hparams.hidden_size,
    )
