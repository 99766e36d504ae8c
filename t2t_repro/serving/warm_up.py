"""Warm-up requests: a version answers them before it takes others.

The first requests of a graph trace and allocate, and are not to be a user's.
They lie in TensorFlow Serving's file, and t2t_repro.serve takes them from
there as TensorFlow Serving does.
"""

import pathlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from t2t_repro import errors
from t2t_repro.text.vocabulary import EOS

REQUESTS = pathlib.Path("assets.extra") / "tf_serving_warmup_requests"
_LENGTHS = (4, 32)  # subwords of the sentences: two, so that one is padded


def write(folder: pathlib.Path, signature_defs, vocabularies):
    """Write a request for each signature, of text that vocabularies know.

    Args:
        folder: of a SavedModel, with assets.extra/ in it.
        signature_defs: {name: SignatureDef}, with inputs of strings [B].
        vocabularies: of "inputs" and of "targets".
    """
    texts = {
        "inputs": _texts(vocabularies.source),
        "targets": _texts(vocabularies.target),
    }
    with tf.io.TFRecordWriter(str(folder / REQUESTS)) as file:
        for name, definition in sorted(signature_defs.items()):
            if not definition.inputs:
                continue  # TensorFlow's own initialisation
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for key in definition.inputs:
                request.inputs[key].CopyFrom(texts[key])
            file.write(log.SerializeToString())


def _texts(vocabulary):
    """Return sentences of the highest ids, which are rare, as a tensor."""
    ids = range(EOS + 1, vocabulary.size)
    rows = [ids[-length:] for length in _LENGTHS]
    return tf.make_tensor_proto(vocabulary.decode(rows), tf.string)


def read(folder: pathlib.Path) -> Iterator[predict_pb2.PredictRequest]:
    """The requests of a version's folder; none where it has no such file.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / REQUESTS
    if not path.exists():
        return
    try:
        for record in tf.data.TFRecordDataset(str(path)):
            log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
            yield log.predict_log.request
    except tf.errors.DataLossError as error:
        raise errors.UserError(
            f"{path} is damaged: {error.message}. Export the model again, or "
            "remove the file."
        ) from error
