"""Loops of layers whose gradients every backend computes."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from t2t_repro.runtime.types import Tensor


def repeat(
    body: Callable[[Tensor, Any], Any], count: Tensor, state: Any
) -> Any:
    """Return the state after `count` calls of body(index, state).

    JAX has gradients only of loops whose number of steps is static. XLA on
    TensorFlow has them only where `maximum_iterations` bounds the number.

    Args:
        body: function of the index [] int32, from 0, and the state.
        count: number of calls.
        state: tuple of tensors, whose shapes stay the same.
    """
    if keras.backend.backend() == "jax":
        return ops.fori_loop(0, count, body, state)
    return ops.while_loop(
        lambda index, state: index < count,
        lambda index, state: (index + 1, body(index, state)),
        (ops.convert_to_tensor(0, "int32"), state),
        maximum_iterations=count,
    )[1]
