"""Inputs and output filter of TensorFlow Serving's PredictRequest."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2

from t2t_repro.serving import batching, checks, request_errors
from t2t_repro.serving.limits import Limits

_STRING = tf.string.as_datatype_enum


def read_inputs(
    request: predict_pb2.PredictRequest, names: Sequence[str], limits: Limits
) -> batching.Inputs:
    """Return the inputs by name.

    This does without tf.make_ndarray, which allocates whatever shape a message
    claims.

    Args:
        request: the request.
        names: names of the signature's inputs.
        limits: limits of a request.

    Raises:
        RequestError: an input is missing, is not a vector of strings, or has
            too many.
    """
    if len(request.inputs) != len(names):
        raise request_errors.invalid(_wrong_number(request.inputs, names))
    for name, tensor in request.inputs.items():
        sizes = [dim.size for dim in tensor.tensor_shape.dim]
        count = len(tensor.string_val)
        if tensor.dtype != _STRING or sizes != [count]:
            raise request_errors.invalid(
                f"{name} must be a vector of strings (DataType {_STRING}); got "
                f"DataType {tensor.dtype} of shape {sizes} with {count} "
                "strings."
            )
        checks.check_size(tensor.string_val, limits)
    return {
        name: list(tensor.string_val) for name, tensor in request.inputs.items()
    }


def _wrong_number(sent, names):
    """Return TensorFlow Serving's message for a wrong number of inputs."""
    return (
        f"input size does not match signature: {len(sent)}!={len(names)} "
        f"len({_braced(sent)}) != len({_braced(names)}). Sent extra: "
        f"{_braced(set(sent) - set(names))}. Missing but required: "
        f"{_braced(set(names) - set(sent))}."
    )


def check_output_filter(
    request: predict_pb2.PredictRequest,
    signature: meta_graph_pb2.SignatureDef,
) -> None:
    """Check that the filter names outputs of the signature, each once.

    Raises:
        RequestError: gives the name that is wrong.
    """
    seen: set[str] = set()
    for name in request.output_filter:
        if name not in signature.outputs:
            raise request_errors.invalid(
                f"output tensor alias not found in signature: {name} Outputs "
                f"expected to be in the set {_braced(signature.outputs)}."
            )
        if name in seen:
            raise request_errors.invalid(
                f"duplicate output tensor alias: {name}"
            )
        seen.add(name)


def _braced(names):
    return f"{{{','.join(sorted(names))}}}"
