"""Inputs and output filter of TensorFlow Serving's PredictRequest."""

import itertools
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2

from t2t_repro.server import batching, request_errors
from t2t_repro.serving.connection import Limits

_STRING = tf.string.as_datatype_enum


def read_inputs(
    request: predict_pb2.PredictRequest, names: Sequence[str], limits: Limits
) -> batching.Inputs:
    """Return the inputs by name, of a signature with these names.

    This does without tf.make_ndarray, which allocates whatever shape a message
    claims.

    Raises:
        RequestError: an input is missing, is not a vector of strings, or has
            too many.
    """
    if len(request.inputs) != len(names):
        raise request_errors.invalid(_wrong_number(request.inputs, names))
    return {
        name: _read_input(name, tensor, limits)
        for name, tensor in request.inputs.items()
    }


def _read_input(name, tensor, limits):
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    count = len(tensor.string_val)
    has_shape = len(sizes) == 1 if tensor.tensor_content else sizes == [count]
    if tensor.dtype != _STRING or not has_shape:
        raise request_errors.invalid(
            f"{name} must be a vector of strings (DataType {_STRING}); got "
            f"DataType {tensor.dtype} of shape {sizes} with {count} strings."
        )
    batching.check_size(range(*sizes), limits)
    try:
        return strings(tensor)
    except ValueError as error:
        raise request_errors.invalid(
            f"{name} has a tensor_content that is not {sizes[0]} strings: "
            "their lengths as varints, then their bytes."
        ) from error


def check_output_filter(
    request: predict_pb2.PredictRequest, signature: meta_graph_pb2.SignatureDef
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


def strings(tensor: tensor_pb2.TensorProto) -> list[bytes]:
    """Return the strings of a vector, which may be in two fields.

    As in TensorFlow, tensor_content comes first. It has the length of each
    string as a varint of at most 32 bits, then the bytes of all
    (core/platform/tensor_coding.cc, DecodeStringList).

    Raises:
        ValueError: tensor_content has another form.
    """
    content = tensor.tensor_content
    if not content:
        return list(tensor.string_val)
    lengths, end = [], 0
    for _ in range(tensor.tensor_shape.dim[0].size):
        begin, end = end, end + 1
        while content[end - 1 : end] >= b"\x80":
            end += 1
        digits = content[begin:end][:6]
        length = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(digits))
        if len(digits) > 5 or length >= 1 << 32:
            raise ValueError("a length has more than 32 bits")
        lengths.append(length)
    if end + sum(lengths) != len(content):
        raise ValueError("the lengths are not those of the content")
    ends = itertools.accumulate(lengths, initial=end)
    return [content[a:b] for a, b in itertools.pairwise(ends)]


def _wrong_number(sent, names):
    """Return TensorFlow Serving's message for a wrong number of inputs."""
    return (
        f"input size does not match signature: {len(sent)}!={len(names)} "
        f"len({_braced(sent)}) != len({_braced(names)}). Sent extra: "
        f"{_braced(set(sent) - set(names))}. Missing but required: "
        f"{_braced(set(names) - set(sent))}."
    )


def _braced(names):
    return f"{{{','.join(sorted(names))}}}"
