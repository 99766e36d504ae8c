"""TensorFlow Serving's classification and regression, which exports refuse.

Classify, Regress and MultiInference need such signatures, and an export has
none. Each request is refused, with the code and message of TensorFlow Serving.
"""

from collections.abc import Iterable, Mapping
from typing import NoReturn

import grpc
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import inference_pb2

from t2t_repro.server import json_predict, request_errors

CLASSIFY = tf.saved_model.CLASSIFY_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME
_DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY

_Signatures = Mapping[str, meta_graph_pb2.SignatureDef]


def refuse(method: str, name: str, signatures: _Signatures) -> NoReturn:
    """Refuse a request for classification or regression.

    Args:
        method: CLASSIFY or REGRESS.
        name: name of the signature; "": the default.
        signatures: signatures of the model.

    Raises:
        RequestError: states why the signature does not fit the method.
    """
    name = name or _DEFAULT
    if name not in signatures:
        raise request_errors.invalid(
            f"No signature was found with the name: {name}"
        )
    _check(method, signatures[name])
    raise _unsupported(name)


def refuse_tasks(
    tasks: Iterable[inference_pb2.InferenceTask], signatures: _Signatures
) -> NoReturn:
    """Refuse a MultiInference request, which has a task for each signature.

    Raises:
        RequestError: states the fault of the first wrong task.
    """
    models, names = set(), set()
    for task in tasks:
        name = task.model_spec.signature_name or _DEFAULT
        models.add(task.model_spec.name)
        if "" in models:
            raise request_errors.invalid(
                "Found ModelSpec with an empty model name."
            )
        if len(models) > 1:
            raise request_errors.invalid(
                "All ModelSpecs in a MultiInferenceRequest must access the "
                "same model name."
            )
        if name in names:
            raise request_errors.invalid(
                f"Duplicate evaluation of signature: {name}"
            )
        names.add(name)
        if name not in signatures:
            raise request_errors.invalid(
                f"Requested signature not found in model graph: {name}"
            )
        if task.method_name not in (CLASSIFY, REGRESS):
            raise request_errors.RequestError(
                grpc.StatusCode.UNIMPLEMENTED,
                f"Unsupported signature method_name: {task.method_name}",
            )
        _check(task.method_name, signatures[name])
    raise _unsupported(", ".join(sorted(names)))


def _check(method, signature):
    """Require the inputs and outputs of a method."""
    inputs, outputs = set(signature.inputs), set(signature.outputs)
    if len(inputs) != 1:
        raise request_errors.invalid("Expected one input Tensor.")
    if method == CLASSIFY:
        kind = "classification"
        if len(outputs) > 2 or not outputs:
            raise request_errors.invalid(
                f"Expected one or two output Tensors, found {len(outputs)}"
            )
    else:
        kind = "regression"
        if len(outputs) != 1:
            raise request_errors.invalid("Expected one output Tensor.")
    if inputs != {tf.saved_model.CLASSIFY_INPUTS}:  # also REGRESS_INPUTS
        raise request_errors.invalid(
            f"No {kind} inputs found in SignatureDef: {signature}"
        )
    if method == CLASSIFY and not outputs & {
        tf.saved_model.CLASSIFY_OUTPUT_CLASSES,
        tf.saved_model.CLASSIFY_OUTPUT_SCORES,
    }:
        raise request_errors.invalid(
            "Expected classification signature outputs to contain at least "
            f'one of "classes" or "scores". Signature was: {signature}'
        )
    if method == REGRESS and outputs != {tf.saved_model.REGRESS_OUTPUTS}:
        raise request_errors.invalid(
            f"No regression outputs found in SignatureDef: {signature}"
        )


def _unsupported(names):
    """Return the error of signatures that would fit the method."""
    return request_errors.RequestError(
        grpc.StatusCode.UNIMPLEMENTED,
        f"This server does not run signatures on tf.Examples; got {names}.",
    )


# TensorFlow Serving's JSON of classification and regression.
#
#     {"context": {…}, "examples": [{name: value, …}, …]}
#
# An export has no signature for it (see example_signatures). So the values need
# no conversion: whatever they are, the signature is refused.

# rapidjson's names; those of booleans are their values.
_TYPES = {
    type(None): "Null",
    list: "Array",
    str: "String",
    int: "Number",
    float: "Number",
}


def read_signature(body: bytes) -> str:
    """Return the name of the signature; check that the examples are objects.

    Raises:
        RequestError: the body or an example has another form.
    """
    signature, content = json_predict.parse_body(body, ("context", "examples"))
    if "context" in content:
        _check_example(content["context"])
    if "examples" not in content:
        # TensorFlow Serving names classify for regress, too.
        raise request_errors.invalid(
            "When method is classify, key 'examples' is expected and was not "
            "found"
        )
    examples = content["examples"]
    if not isinstance(examples, list):
        raise request_errors.invalid(
            "Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise request_errors.invalid("'examples' value is an empty array")
    for example in examples:
        _check_example(example)
    return signature


def _check_example(value):
    if not isinstance(value, dict):
        kind = _TYPES.get(type(value), str(value))
        raise request_errors.invalid(
            f"Example must be JSON object but got JSON {kind}"
        )
