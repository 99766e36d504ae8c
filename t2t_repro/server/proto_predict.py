"""Inputs and output filter of TensorFlow Serving's PredictRequest."""

import itertools

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2

from t2t_repro.server import batching, request_errors
from t2t_repro.serving.requests import Limits

_STRING = tf.string.as_datatype_enum


def input_specs(signature: meta_graph_pb2.SignatureDef) -> batching.Specs:
    """Return the inputs of a signature by name."""
    specs = {}
    for name, info in sorted(signature.inputs.items()):
        default = None
        if name in signature.defaults:
            array = tf.make_ndarray(signature.defaults[name])
            default = array.ravel().tolist()[0]
        dtype = tf.as_dtype(info.dtype).name
        # A graph of another program that reads other types refuses strings.
        dtype = dtype if dtype in batching.KINDS else "string"
        specs[name] = batching.InputSpec(dtype, default)
    return specs


def read_inputs(
    request: predict_pb2.PredictRequest, specs: batching.Specs, limits: Limits
) -> batching.Inputs:
    """Return the inputs by name; optional ones may be missing.

    The claimed shape is checked first: tf.make_ndarray allocates any.

    Raises:
        RequestError: an input is missing or unknown, is not a vector of its
            type, or has too many values.
    """
    missing = len(specs) - len(request.inputs)
    has_optional = len(batching.required(specs)) < len(specs)
    if missing < 0 or (missing and not has_optional):
        raise request_errors.invalid(_wrong_number(request.inputs, specs))
    batching.check_names(request.inputs, specs)
    return {
        name: _read_input(name, tensor, specs[name].dtype, limits)
        for name, tensor in request.inputs.items()
    }


def _read_input(name, tensor, dtype, limits):
    sizes = [dim.size for dim in tensor.tensor_shape.dim]
    expected, is_text = tf.as_dtype(dtype).as_datatype_enum, dtype == "string"
    count = len(tensor.string_val)
    has_shape = len(sizes) == 1
    if is_text and not tensor.tensor_content:
        has_shape = sizes == [count]
    kind = batching.KINDS[dtype]
    if tensor.dtype != expected or not has_shape:
        raise request_errors.invalid(
            f"{name} must be a vector of {kind} (DataType {expected}); got "
            f"DataType {tensor.dtype} of shape {sizes}"
            f"{f' with {count} strings' if is_text else ''}."
        )
    batching.check_size(range(*sizes), limits)
    try:
        return values(tensor)
    except ValueError as error:
        where = " in tensor_content" * bool(tensor.tensor_content)
        form = ": their lengths as varints, then their bytes" * is_text
        raise request_errors.invalid(
            f"{name} must have {sizes[0]} {kind}{where}{form}."
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


def values(tensor: tensor_pb2.TensorProto) -> list[batching.Value]:
    """Return the elements of a vector of a size that has been checked.

    Strings may be in two fields. As in TensorFlow, tensor_content comes first.
    It has the length of each string as a varint of at most 32 bits, then the
    bytes of all (core/platform/tensor_coding.cc, DecodeStringList).

    Raises:
        ValueError: it has another number of elements, or content of another
            form.
    """
    if tensor.dtype != _STRING:
        return tf.make_ndarray(tensor).tolist()
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
