"""Edited descriptions of runs, exports and clusters: read, or explained."""

import dataclasses
import json

import pytest
import tensorflow as tf
from file_strategies import edited_json, read_or_refuse
from hypothesis import example, given
from hypothesis import strategies as st
from tensorflow_serving.apis import predict_pb2

from t2t_repro import errors, hparam, registry
from t2t_repro.io import files
from t2t_repro.metrics.metric import Suite
from t2t_repro.problem import build_problem
from t2t_repro.runs import checkpoints, history, run_json
from t2t_repro.runs.run import Run
from t2t_repro.runtime import devices
from t2t_repro.server import batching, proto_predict, request_errors
from t2t_repro.serving import client, connection, requests
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.text.vocabulary_pair import Vocabularies

registry.load_definitions()
PROBLEM = build_problem("number_words_ende")
CONFIG = {
    "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:65535"]},
    "task": {"type": "worker", "index": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a folder with run.json and a vocabulary, as the trainer does."""
    folder = tmp_path_factory.mktemp("run")
    vocabularies = Vocabularies.shared(Bpe.learn(["a b c", "c d"] * 9, 268))
    vocabulary = {"size": 268, "sha256": vocabularies.sha256}
    contents = {"splits": {}, "vocabulary": vocabulary}
    files.write_json(folder / "manifest.json", contents)
    settings = run_json.settings(
        PROBLEM,
        "tiny",
        registry.build_hparams("tiny"),
        1,
        folder,
        vocabularies,
        8,
    )
    run_json.start(folder, settings, vocabularies, "one CPU")
    return folder


@pytest.fixture(scope="module")
def whole(run):
    return files.read_json(run / run_json.RUN)


def test_run_without_model_is_refused(run, whole):
    hparams = {k: v for k, v in whole["hparams"].items() if k != "model"}
    files.write_json(run / run_json.RUN, whole | {"hparams": hparams})
    message = r"run\.json is damaged: it\['hparams'\] lacks model\."
    with pytest.raises(errors.UserError, match=message):
        Run.open(run)


@given(data=st.data())
def test_edited_run_is_opened_or_explained(run, whole, data):
    content = data.draw(edited_json(whole))
    (run / run_json.RUN).write_bytes(content)
    try:
        found = Run.open(run)
        assert found.vocabularies
    except errors.UserError as error:
        assert str(run) in str(error)
        return
    assert isinstance(found.hparams, hparam.HParams)
    assert found.vocabularies.sha256 == found.settings["vocabulary_sha256"]
    again = dataclasses.replace(found.problem)
    assert again.arguments == found.problem.arguments


@given(data=st.data())
def test_edited_run_resumes_or_is_explained(run, whole, data):
    (run / run_json.RUN).write_bytes(data.draw(edited_json(whole)))
    vocabularies = Vocabularies.shared(Bpe.load(run / "vocab.model"))
    try:
        run_json.start(run, whole, vocabularies, "one CPU")
    except errors.UserError as error:
        assert str(run / run_json.RUN) in str(error)
        return
    assert Run.open(run).settings["hparams"] == whole["hparams"]


@given(edited_json({"bleu": 30.5, "checkpoints": ["averaged/ckpt-9"]}))
def test_edited_scores_are_read_or_named(run, content):
    opened = Run(run, {}, None, None)
    path = opened.translations_folder / "test.json"
    path.parent.mkdir(exist_ok=True)
    found = read_or_refuse(lambda _: opened.stored_scores(), path, content)
    assert found is None or isinstance(found["test"], dict)


@given(
    edited_json(
        {
            "settings": {},
            "checkpoints": [{"step": 9, "sha256": "a", "scores": {"ter": 1.0}}],
        }
    )
)
def test_edited_checkpoint_scores_are_shown_or_named(run, content):
    path = run / history.SCORES_FOLDER / "test.json"
    path.parent.mkdir(exist_ok=True)

    def read(path):
        stored = history.CheckpointScores(run, path.stem, {})
        return stored.table(Suite(("ter",)))

    found = read_or_refuse(read, path, content)
    assert found is None or "ter" in found


@given(edited_json(CONFIG))
@example(b"[" * 100_000)
@example(json.dumps(CONFIG | {"task": {"type": "worker", "index": True}}))
@example(json.dumps(CONFIG | {"task": {"type": "worker", "index": 1.0}}))
def test_edited_cluster_is_valid_or_explained(content):
    text = content if isinstance(content, str) else content.decode("latin-1")
    text = text.replace("\0", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CONFIG", text)
        try:
            devices.check_tf_config()
        except errors.UserError as error:
            assert "TF_CONFIG" in str(error)
            return
    config = json.loads(text)
    task = config["task"]
    assert type(task["index"]) is int
    cluster = tf.train.ClusterSpec(config["cluster"])
    assert cluster.task_address(task["type"], task["index"])


@pytest.mark.parametrize("path", ["", ",", "/", ".", "ckpt-"])
def test_checkpoint_without_a_name_is_refused(path, tmp_path):
    with pytest.raises(errors.UserError, match="There is no checkpoint"):
        checkpoints.CheckpointReader(path)
    with pytest.raises(errors.UserError, match="No checkpoint"):
        checkpoints.average([path], tmp_path)


@given(st.one_of(st.text(max_size=20), st.from_regex(r"\A[a.:\[\]]*:\d+\Z")))
@example("a:65536")
@example("a:" + "9" * 5_000)
@example("a:²")
def test_server_has_host_and_port_or_is_refused(server):
    try:
        found = client.connect(connection.Address("rest", server))
    except errors.UserError as error:
        assert repr(server) in str(error)
    else:
        assert found.host and 0 <= found.port <= 65_535


@pytest.mark.parametrize("host", ["a" * 64, "..", "é" * 70])
def test_impossible_host_name_is_refused(host):
    found = client.connect(connection.Address("rest", f"{host}:1"))
    with pytest.raises(errors.UserError, match="says no HTTP: Unicode"):
        found.translate(["a"])


SIZES = st.lists(st.integers(-2, 4), max_size=2)


@given(
    st.dictionaries(
        st.sampled_from(["inputs", "targets"]),
        st.tuples(
            st.integers(0, 22),
            SIZES,
            st.lists(st.binary(max_size=4)),
            st.one_of(st.just(b""), st.binary(max_size=9)),
        ),
    )
)
def test_any_message_gives_inputs_or_an_explained_failure(tensors):
    request = predict_pb2.PredictRequest()
    for name, (kind, sizes, values, content) in tensors.items():
        tensor = request.inputs[name]
        tensor.dtype = kind
        for size in sizes:
            tensor.tensor_shape.dim.add().size = size
        tensor.string_val.extend(values)
        tensor.tensor_content = content
    try:
        few = requests.Limits(max_batch_size=2)
        specs = {"inputs": batching.InputSpec()}
        found = proto_predict.read_inputs(request, specs, few)
        batching.check_inputs(found, few)
    except request_errors.RequestError as error:
        assert error.message
        return
    (values,) = found.values()
    assert 1 <= len(values) <= 2
    for value in values:
        value.decode("utf-8")
