"""Standalone probe: operations of a TensorFlow runtime, and outputs of exports.

    python -I scripts/release/runtime_probe.py < request.json

The request has "exports", {name: folder}, and "batches", lists of sentences.
The last line that the probe prints is JSON. Strings in both stand for bytes, in
Latin-1. It needs only TensorFlow and TF Text: scripts.release.check_runtimes
runs it in older runtimes, in which this project is not installed.
"""

import json
import sys

import tensorflow as tf
import tensorflow_text
from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.client import pywrap_tf_session  # lists all operations


def list_features():
    """List operations, their attributes, and the dtypes that these admit.

    Examples are "Range", "Range.Tidx" and "Range.Tidx=DT_INT32".
    """
    buffer = pywrap_tf_session.TF_GetAllOpList()
    registered = op_def_pb2.OpList.FromString(
        pywrap_tf_session.TF_GetBuffer(buffer)
    )
    features = []
    for op in registered.op:
        features.append(op.name)
        for attr in op.attr:
            features.append(f"{op.name}.{attr.name}")
            features += [
                f"{op.name}.{attr.name}={types_pb2.DataType.Name(dtype)}"
                for dtype in attr.allowed_values.list.type
            ]
    return features


def outputs(folder, batches):
    """Return {signature: outputs of each batch}, or {"error": message}.

    Targets, where a signature has them, are the sentences in reverse order.
    """
    try:
        model = tf.saved_model.load(folder)
        return {
            name: [_run(signature, batch) for batch in batches]
            for name, signature in model.signatures.items()
        }
    except Exception as error:  # TensorFlow raises many types
        return {"error": f"{type(error).__name__}: {error}"}


def _run(signature, batch):
    """Return {output: its values} of a signature."""
    texts = [text.encode("latin-1") for text in batch]
    inputs = {"inputs": texts, "targets": texts[::-1]}
    _, parameters = signature.structured_input_signature
    results = signature(
        **{name: tf.constant(inputs[name]) for name in parameters}
    )
    return {
        name: _to_json(tensor.numpy().tolist())
        for name, tensor in results.items()
    }


def _to_json(value):
    """Convert the bytes in nested lists to strings."""
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def main():
    request = json.load(sys.stdin)
    results = {
        "tensorflow": tf.__version__,
        "tensorflow_text": tensorflow_text.__version__,
        "graph_def_version": tf.version.GRAPH_DEF_VERSION,
        "features": list_features(),
        "outputs": {
            name: outputs(folder, request["batches"])
            for name, folder in request["exports"].items()
        },
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
