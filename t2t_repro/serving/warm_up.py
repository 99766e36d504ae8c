"""Warm-up requests: a version runs them before it serves.

The first requests of a graph are slow, because they trace and allocate. Both
TensorFlow Serving and t2t_repro.serve read warm-up requests from the same file.
"""

import pathlib
from collections.abc import Iterator, Mapping

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from t2t_repro import errors
from t2t_repro.text.vocabulary import EOS
from t2t_repro.text.vocabulary_pair import Vocabularies

REQUESTS = pathlib.Path("assets.extra") / "tf_serving_warmup_requests"
_LENGTHS = (4, 32)  # subwords of the sentences: two, so that one is padded


def write(
    folder: pathlib.Path,
    signature_defs: Mapping[str, meta_graph_pb2.SignatureDef],
    vocabularies: Vocabularies,
) -> None:
    """Write a request for each signature.

    Args:
        folder: folder of a SavedModel, which contains assets.extra/.
        signature_defs: signatures by name; their inputs are strings [B].
        vocabularies: vocabularies that decode text for "inputs" and "targets".
    """
    texts = {
        "inputs": _texts(vocabularies.source),
        "targets": _texts(vocabularies.target),
    }
    with tf.io.TFRecordWriter(str(folder / REQUESTS)) as file:
        for name, definition in sorted(signature_defs.items()):
            if not definition.inputs:
                continue  # TensorFlow's initialization
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for key in definition.inputs:
                request.inputs[key].CopyFrom(texts[key])
            file.write(log.SerializeToString())


def _texts(vocabulary):
    """Return sentences of the highest ids, which are rare subwords."""
    ids = range(EOS + 1, vocabulary.size)
    rows = [ids[-length:] for length in _LENGTHS]
    return tf.make_tensor_proto(vocabulary.decode(rows), tf.string)


def read(folder: pathlib.Path) -> Iterator[predict_pb2.PredictRequest]:
    """Yield the requests in a version's folder; none without the file.

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
