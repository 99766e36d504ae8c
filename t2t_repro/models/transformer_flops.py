"""Number of multiplications and additions of the Transformer."""

from typing import Any


def flops(
    hparams: Any, vocab_size: int, source_length: float, target_length: float
) -> float:
    """Return multiplications and additions of one pair's forward pass.

    A matrix product of m x k and k x n costs 2 m k n, masked or not. The count
    omits norms, softmax and dropout (about 1%), and the masked attention
    between sentences of a packed row.

    Args:
        hparams: TransformerHParams.
        vocab_size: V of the targets.
        source_length: L, subwords of the input with EOS.
        target_length: T, subwords of the target with EOS.
    """
    d, keys = hparams.hidden_size, hparams.attention_key_channels
    keys = keys or d
    values = hparams.attention_value_channels or d
    # Gated activations need three matrices, others two.
    ffn = (3 if hparams.ffn_activation.endswith("glu") else 2) * (
        d * hparams.filter_size
    )
    # Cost of a query and a key: Q K^T and weights x V. Additive attention adds,
    # takes a tanh and multiplies by a vector in place of the dot product.
    pair = (2 if hparams.attention_type == "additive" else 1) * keys + values
    # Relative positions: the same products with vectors of distances.
    self_pair = pair + (keys + values) * bool(hparams.max_relative_position)
    queries, memory = d * (keys + values), d * (keys + values)
    encoder_layer = source_length * (
        queries + memory + source_length * self_pair + ffn
    )
    decoder_layer = (
        target_length * (queries + memory + target_length * self_pair + ffn)
        + target_length * (queries + source_length * pair)
        + source_length * memory
    )
    layers = (
        hparams.encoder_layers * encoder_layer
        + hparams.decoder_layers * decoder_layer
    )
    return 2.0 * (layers + target_length * vocab_size * d)
