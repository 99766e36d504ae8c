"""Parameters and training cost: by arithmetic, beside the paper's figures."""

from typing import NamedTuple


class Published(NamedTuple):
    """A row of the paper's tables."""

    parameters: float  # Table 3
    flops: float  # Table 2: time x GPUs x 9.5 TFLOPS of a P100


PUBLISHED = {"base": Published(65e6, 3.3e18), "big": Published(213e6, 2.3e19)}


def parameters(hparams, vocab_size: int) -> int:
    """Trainable numbers of the model, embeddings tied."""
    d, f = hparams.hidden_size, hparams.filter_size
    attention = 4 * d * d  # Q, K, V, O without bias
    ffn = d * f + f + f * d + d
    norm = 2 * d
    encoder_layer = attention + ffn + 2 * norm
    decoder_layer = 2 * attention + ffn + 3 * norm
    layers = hparams.num_hidden_layers * (encoder_layer + decoder_layer)
    return vocab_size * d + layers


def training_flops(hparams, vocab_size: int, mean_length: int) -> float:
    """Multiplications and additions of a training, counted.

    A matrix product of m x k and k x n costs 2 m k n; the backward pass costs
    twice the forward pass. Norms, softmax and dropout are left out (about 1%).

    Args:
        hparams: HParams.
        vocab_size: V.
        mean_length: subwords of a sentence, for attention's products.
    """
    d, f, n = hparams.hidden_size, hparams.filter_size, mean_length
    projections = 4 * d * d
    mixing = 2 * n * d  # Q K^T and weights x V, per query
    encoder_layer = projections + mixing + 2 * d * f
    decoder_layer = 2 * (projections + mixing) + 2 * d * f
    layers = hparams.num_hidden_layers * (encoder_layer + decoder_layer)
    per_token = 2 * (layers + vocab_size * d)
    return 3.0 * per_token * hparams.batch_tokens * hparams.train_steps
