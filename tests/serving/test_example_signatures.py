"""Refusals of signatures that take tf.Examples."""

import pytest
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import inference_pb2

from t2t_repro.server import examples, request_errors

CLASSIFY, REGRESS = examples.CLASSIFY, examples.REGRESS


def definition(inputs, outputs):
    message = meta_graph_pb2.SignatureDef()
    for name in inputs:
        message.inputs[name].SetInParent()
    for name in outputs:
        message.outputs[name].SetInParent()
    return message


@pytest.mark.parametrize(
    ("method", "inputs", "outputs", "message"),
    [
        (CLASSIFY, ["x"], ["scores"], "No classification inputs found in"),
        (CLASSIFY, ["inputs"], ["x", "y"], 'at least one of "classes" or'),
        (CLASSIFY, ["inputs"], ["scores"], "on tf.Examples; got s."),
        (REGRESS, ["x"], ["outputs"], "No regression inputs found in"),
        (REGRESS, ["inputs"], ["x"], "No regression outputs found in"),
        (REGRESS, ["inputs"], ["outputs"], "on tf.Examples; got s."),
    ],
)
def test_signatures_of_other_models(method, inputs, outputs, message):
    signatures = {"s": definition(inputs, outputs)}
    with pytest.raises(request_errors.RequestError, match=message):
        examples.refuse(method, "s", signatures)
    task = inference_pb2.InferenceTask(method_name=method)
    task.model_spec.name, task.model_spec.signature_name = "t2t", "s"
    with pytest.raises(request_errors.RequestError, match=message):
        examples.refuse_tasks([task], signatures)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["t2t", ""], "Found ModelSpec with an empty model name."),
        (["t2t", "x"], "must access the same model name."),
        (["t2t", "t2t"], "Duplicate evaluation of signature: serving_default"),
    ],
)
def test_second_task_is_checked(names, message):
    tasks = [inference_pb2.InferenceTask(method_name=REGRESS) for _ in names]
    for task, name in zip(tasks, names, strict=True):
        task.model_spec.name = name
    signatures = {"serving_default": definition(["inputs"], ["outputs"])}
    with pytest.raises(request_errors.RequestError, match=message):
        examples.refuse_tasks(tasks, signatures)
