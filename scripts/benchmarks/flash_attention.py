"""Flash attention of JAX in the attention layers of a model.

Keras's TensorFlow backend has no flash attention, and commands run on it. This
is therefore an option of bench_gpu, not of hparams.
"""

import functools

import jax

from t2t_repro import errors
from t2t_repro.layers.attention import DotProduct, MultiHeadAttention
from t2t_repro.runtime import keras_compat


def install(model, implementation):
    """Replace the attention of every layer of a model.

    The layers then return None instead of attention weights, which flash
    attention does not store.

    Args:
        model: a model on Keras's JAX backend.
        implementation: of jax.nn.dot_product_attention: "cudnn" on GPUs in 16
            bits; "xla" computes the same without flash attention.

    Raises:
        UserError: the kernel cannot compute the attention of a layer.
    """
    for layer in keras_compat.all_layers(model):
        if isinstance(layer, MultiHeadAttention):
            _check(layer, implementation)
            layer.attend = functools.partial(_attend, implementation)


def _check(layer, implementation):
    """Refuse what the kernel does not compute."""
    unsupported = {
        f"attention_type={layer.attention_type}": type(layer.compatibility)
        is not DotProduct,
        "relative positions": type(layer) is not MultiHeadAttention,
        # cuDNN draws its own random numbers, which depend on the device.
        f"attention_dropout={layer.dropout_rate}": layer.dropout_rate > 0,
        "float32": implementation == "cudnn"
        and layer.compute_dtype == "float32",
    }
    for setting, found in unsupported.items():
        if found:
            raise errors.UserError(
                "Flash attention computes scaled dot products in 16 bits "
                "without dropout of attention weights and without relative "
                f"positions; got {setting}. Omit --flash_attention."
            )


def _attend(implementation, query, key, value, mask, rng=None):
    """Compute what MultiHeadAttention.attend() does, without weights."""
    by_position = [x.transpose(0, 2, 1, 3) for x in (query, key, value)]
    context = jax.nn.dot_product_attention(
        *by_position, mask=mask, implementation=implementation
    )
    return context.transpose(0, 2, 1, 3), None
