"""Layers of fairseq's Transformers, whose names Hugging Face has, too.

Old versions of fairseq have one array for the projections of queries,
keys and values, and numbers in place of the names of norms.
"""

import numpy as np

from t2t_repro.importing import weights
from t2t_repro.importing.arrays import Tensors


def read(
    tensors: Tensors, path: str, is_decoder: bool, size: int, width: int
) -> weights.Layer:
    """Read a layer of the encoder or of the decoder.

    Args:
        tensors: arrays of the model.
        path: name of the layer, as "encoder.layers.0".
        is_decoder: whether it has cross-attention.
        size: D.
        width: F.

    Raises:
        UserError: an array is missing, or has another shape.
    """

    def dense(name, inputs, outputs):
        kernel = tensors.take(f"{path}.{name}.weight", outputs, inputs)
        bias = tensors.take(f"{path}.{name}.bias", outputs)
        return weights.Dense(kernel.T, bias)

    def norm(name, old_number):
        old = f"{path}.layer_norms.{old_number}"
        at = old if f"{old}.weight" in tensors else f"{path}.{name}"
        return weights.Norm(
            tensors.take(f"{at}.weight", size), tensors.take(f"{at}.bias", size)
        )

    def attention(name):
        at = f"{path}.{name}"
        output = dense(f"{name}.out_proj", size, size)
        if f"{at}.in_proj_weight" not in tensors:
            inner = [dense(f"{name}.{k}_proj", size, size) for k in "qkv"]
            return weights.Attention(*inner, output)
        kernels = tensors.take(f"{at}.in_proj_weight", 3 * size, size)
        biases = tensors.take(f"{at}.in_proj_bias", 3 * size)
        inner = [
            weights.Dense(kernel.T, bias)
            for kernel, bias in zip(
                np.split(kernels, 3), np.split(biases, 3), strict=True
            )
        ]
        return weights.Attention(*inner, output)

    return weights.Layer(
        attention("self_attn"),
        norm("self_attn_layer_norm", 0),
        dense("fc1", size, width),
        dense("fc2", width, size),
        norm("final_layer_norm", 2 if is_decoder else 1),
        attention("encoder_attn") if is_decoder else None,
        norm("encoder_attn_layer_norm", 1) if is_decoder else None,
    )
