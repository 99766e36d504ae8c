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
from t2t_repro.text.subwords import EOS

REQUESTS = pathlib.Path("assets.extra") / "tf_serving_warmup_requests"
_LENGTHS = (4, 32)  # subwords of the sentences: two, so that one is padded


def write(folder: pathlib.Path, signature_defs, subwords):
    """Writes a request for each signature, of text that the vocabulary knows.

    Args:
        folder: of a SavedModel, with assets.extra/ in it.
        signature_defs: {name: SignatureDef}, with inputs of strings [B].
        subwords: Subwords.
    """
    ids = range(EOS + 1, subwords.size)
    rows = [ids[-length:] for length in _LENGTHS]
    texts = tf.make_tensor_proto(subwords.decode(rows), tf.string)
    with tf.io.TFRecordWriter(str(folder / REQUESTS)) as file:
        for name, definition in sorted(signature_defs.items()):
            if not definition.inputs:
                continue  # TensorFlow's own initialisation
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for key in definition.inputs:
                request.inputs[key].CopyFrom(texts)
            file.write(log.SerializeToString())


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
