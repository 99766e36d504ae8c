"""Small models of each kind, for measurements of their encoders."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.models import building
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.text.vocabulary import EOS

MAX_LAYERS = 40  # of path lengths
VOCAB_SIZE = 1_024  # more than the subwords of any sentence
_FIRST_ID = 3  # after PAD, EOS and UNK


class Kind(NamedTuple):
    """A kind of model, with an encoder of any number of layers."""

    hparams_set: str
    changes: Callable  # layers, width -> hparams
    sequential: str  # operations of a layer that run one after another
    layers_at_a_time: int = 1  # layers that `layers` of `changes` counts as one


KINDS = {
    "transformer": Kind(
        "tiny",
        lambda layers, width: {
            "num_encoder_layers": layers,
            "num_decoder_layers": 1,
            "filter_size": 4 * width,
        },
        "1",
    ),
    "recurrent": Kind(
        "gnmt_tiny",
        lambda layers, width: {
            "num_encoder_layers": layers,
            "num_decoder_layers": 1,
        },
        "n",
    ),
    "convs2s": Kind(
        "convs2s_tiny",
        lambda layers, width: {
            "encoder_convolutions": f"{width}x3*{layers}",
            "decoder_convolutions": f"{width}x3",
        },
        "1",
    ),
    "bytenet": Kind(
        "bytenet_tiny",
        lambda layers, width: {"num_block_repeat": layers, "max_dilation": 16},
        "1",
        5,  # dilations of 1, 2, 4, 8, 16
    ),
    "transformer_moe": Kind(
        "transformer_moe_tiny",
        lambda layers, width: {
            "num_encoder_layers": layers,
            "num_decoder_layers": 1,
            "filter_size": 4 * width,
            "expert_filter_size": 2 * width,
            "mixture_period": 1,
        },
        "1",
    ),
}


def build(kind: Kind, layers: int, width: int) -> Seq2Seq:
    """Build a model for sentences of any length."""
    hparams = dataclasses.replace(
        registry.build_hparams(kind.hparams_set),
        hidden_size=width,
        max_length=2 * VOCAB_SIZE,
        **kind.changes(layers, width),
    )
    keras.utils.set_random_seed(1)
    return building.build(hparams, VOCAB_SIZE)


def sentence(length: int) -> np.ndarray:
    """Return different ids [length] int32, with EOS at the end."""
    ids = _FIRST_ID + np.arange(length, dtype=np.int32)
    ids[-1] = EOS
    return ids


def reach(model: Seq2Seq, most: int) -> int:
    """Return how far the encoder sees from the middle of a sentence.

    Args:
        model: a model.
        most: distance up to which it is measured.

    Returns:
        The largest distance up to which gradients are not zero, on both sides.
    """
    # Longer than the states are wide, which tells positions from other axes.
    most = max(most, model.hparams.hidden_size)
    ids = sentence(2 * most + 2)  # EOS is not among the inputs at a distance
    gradients = _embedding_gradients(model, ids, middle=most)
    sizes = np.abs(gradients[ids]).sum(-1)  # [L], since ids differ
    seen = (sizes[most::-1] > 0) & (sizes[most:-1] > 0)  # by distance
    return int(np.cumprod(seen).sum()) - 1


def _embedding_gradients(model, ids, middle):
    """Return gradients of the encoder's states at `middle`, [V, E]."""
    with tf.GradientTape() as tape:
        state = model.start_decoding(
            tf.constant(ids[None]),
            1,
            capacity=1,
            constants=model.decoding_constants(),
        )
        total = sum(
            tf.reduce_sum(tf.abs(tf.gather(leaf, middle, axis=axis)))
            for leaf in keras.tree.flatten(state.sentences)
            for axis in range(1, len(leaf.shape))
            if leaf.shape[axis] >= len(ids) and leaf.dtype.is_floating
        )
    matrices = [
        weight.value
        for weight in model.trainable_weights
        if weight.shape[0] == VOCAB_SIZE
    ]
    found = [g for g in tape.gradient(total, matrices) if g is not None]
    return np.sum([tf.convert_to_tensor(g).numpy() for g in found], axis=0)
