"""Generic test of a layer: shapes, dtypes and names."""

import keras
import numpy as np
from keras import ops


def run_layer_test(layer_class, init_kwargs, inputs, expected_shape, dtype):
    """Build, call and check a layer.

    Args:
        layer_class: class of a keras.layers.Layer.
        init_kwargs: its arguments, without name and dtype.
        inputs: tuple of arrays, the arguments of the call; floats are cast to
            the compute dtype.
        expected_shape: shape of the first output.
        dtype: Keras dtype policy.

    Returns:
        The layer, built.
    """
    layer = layer_class(**init_kwargs, name="tested", dtype=dtype)
    inputs = [_cast(array, layer.compute_dtype) for array in inputs]
    outputs = layer(*inputs)
    assert layer.built
    first = keras.tree.flatten(outputs)[0]
    assert tuple(first.shape) == tuple(expected_shape)
    output_dtype = keras.backend.standardize_dtype(first.dtype)
    assert output_dtype == keras.DTypePolicy(dtype).compute_dtype
    assert all(np.isfinite(array).all() for array in _numpy(outputs))
    _check_names(layer)
    for weight in layer.weights:
        assert weight.dtype == "float32", weight.path
    return layer


def _cast(array, dtype):
    array = np.asarray(array)
    if array.dtype.kind == "f":
        return ops.cast(ops.convert_to_tensor(array, "float32"), dtype)
    return ops.convert_to_tensor(array)


def _numpy(outputs):
    """Convert a nest of tensors to a list of float32 arrays."""
    return [
        ops.convert_to_numpy(ops.cast(tensor, "float32"))
        for tensor in keras.tree.flatten(outputs)
    ]


def _check_names(layer):
    """Check that sublayers have their attributes' names, and paths differ."""
    for sublayer in layer._layers:
        assert getattr(layer, sublayer.name, None) is sublayer, sublayer.name
        _check_names(sublayer)
    paths = [weight.path for weight in layer.weights]
    assert len(set(paths)) == len(paths)
    assert all(f"{layer.name}/" in path for path in paths), paths
