"""Fixtures: a tiny exported model with random weights, and a server of it."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import http.client
import json
import shutil
import socket
import threading
import time
import types

import numpy as np
import pytest

SECONDS = 60  # timeout
TARGETS = ["ZWEI VÖGEL", "DIE KATZE SAẞ", "QUAKT"]


@pytest.fixture(scope="session")
def separate_vocabularies(vocabulary):
    """Return SentencePiece vocabularies of different sizes and algorithms."""
    from t2t_repro.text.sentence_piece import Unigram
    from t2t_repro.text.vocabulary_pair import Vocabularies

    lines = [*TARGETS, "DIE ZWEI DIE"] * 5
    vocabularies = Vocabularies(vocabulary, Unigram.learn(lines, 277))
    assert len(set(vocabularies.sizes.values())) == 2
    return vocabularies


@pytest.fixture(scope="session")
def build_exportable(tiny_hparams, separate_vocabularies):
    """Return a function of a seed that builds what an export needs.

    It returns a tiny model, its vocabularies and settings of a search.
    """
    import keras

    from t2t_repro import hparam
    from t2t_repro.models import building

    hparams = dataclasses.replace(
        tiny_hparams,
        num_hidden_layers=1,
        shared_embedding_and_softmax_weights=False,
    )
    search = hparam.DecodeHParams(
        beam_size=3, extra_length=3, max_input_length=40
    )

    def build(seed):
        keras.utils.set_random_seed(seed)
        model = building.build(hparams, **separate_vocabularies.sizes)
        return [model], separate_vocabularies, search

    return build


@pytest.fixture(scope="session")
def exported(build_exportable, tmp_path_factory):
    """Return a folder with version 2 of build_exportable(1) in bfloat16."""
    from t2t_repro.serving import saved_model

    folder = tmp_path_factory.mktemp("exported")
    models, vocabularies, search = build_exportable(1)
    card = {"decode_hparams": dataclasses.asdict(search)}
    saved_model.export(
        models, vocabularies, search, folder, card, "bfloat16", max_beam_size=4
    )
    (folder / "1").rename(folder / "2")
    return folder


@pytest.fixture
def export_to_ctranslate2(tiny_hparams, randomize, tmp_path):
    """Return a function that exports a random model: it, and its folder.

    Its arguments are vocabularies, a card, and changes of hparams.
    """
    from t2t_repro.hparam import DecodeHParams
    from t2t_repro.models import building
    from t2t_repro.serving import exporting

    def export(pair, card=(), **changes):
        changes = {"num_hidden_layers": 1, "max_length": 8} | changes
        hparams = dataclasses.replace(tiny_hparams, **changes)
        model, folder = building.build(hparams, **pair.sizes), tmp_path / "out"
        randomize(model)
        search = DecodeHParams(max_input_length=16, extra_length=8)
        exporting.export_ctranslate2([model], pair, search, folder, dict(card))
        return model, folder

    return export


@pytest.fixture(scope="session")
def toy_exports(tmp_path_factory):
    """Return a folder with versions 1 and 2 of a model that loads fast.

    Outputs are the inputs; scores are -1 for version 1, and -2 for version 2.
    """
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("toys")

    def save(version):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def translate(inputs):
            rows = tf.shape(inputs)
            return {
                "outputs": inputs,
                "scores": tf.fill(rows, -float(version)),
                "truncated": tf.fill(rows, False),
            }

        module = tf.Module()
        module.translate = translate
        tf.saved_model.save(module, str(folder / str(version)), translate)

    for version in (1, 2):
        save(version)
    return folder


@pytest.fixture
def export_dir(toy_exports, tmp_path):
    """Return a folder with version 1 of the toy."""
    shutil.copytree(toy_exports / "1", tmp_path / "export" / "1")
    return tmp_path / "export"


def wait_for(condition):
    """Poll a condition, which sends a request each time."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def predict_request(texts=("a",), name="t2t", signature="", version=None):
    """Return a request of gRPC for translations."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    message = predict_pb2.PredictRequest()
    message.model_spec.name = name
    message.model_spec.signature_name = signature
    if version is not None:
        message.model_spec.version.value = version
    tensor = tf.make_tensor_proto(np.array(texts, object), tf.string)
    message.inputs["inputs"].CopyFrom(tensor)
    return message


def stub_of(channel):
    """Return a stub of TensorFlow Serving's service of predictions."""
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def refusal(call, message) -> str:
    """Return code and details of the refusal of a call of gRPC."""
    import grpc

    with pytest.raises(grpc.RpcError) as refused:
        call(message, timeout=SECONDS)
    return f"{refused.value.code().name} {refused.value.details()}"


def health_of(channel):
    """Return the name of the state of health over gRPC."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    answer = health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(), timeout=SECONDS
    )
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


@pytest.fixture(scope="session")
def loaded(exported):
    """Return version 2, loaded in this process."""
    from t2t_repro.serving import client

    return client.ExportedModel(exported)


@pytest.fixture(scope="session")
def local(loaded):
    """Return a function that runs a signature and returns output arrays."""
    import tensorflow as tf

    signatures = loaded._model.signatures

    def run(signature, **inputs):
        tensors = {k: tf.constant(v) for k, v in inputs.items()}
        outputs = signatures[signature](**tensors)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return run


@pytest.fixture(scope="session")
def versions_fork_server(forked):
    """Yield the fork server of all servers in this process.

    This process cannot be forked, as TensorFlow runs in it.
    """
    from t2t_repro.server import version_process

    control, its_control = socket.socketpair()
    with its_control:
        process = forked.fork_server(its_control)
    with control:
        yield version_process.ForkServer(control)
    process.join(SECONDS)
    assert process.exitcode == 0


class Embedded:
    """A server in a thread of this process."""

    def __init__(
        self,
        forks,
        export_dir,
        ports=(0, 0),
        retries=(5, 60.0),
        server=(),
        **settings,
    ):
        """Prepare a server.

        `ports` and `retries` have the values of Ports and Retries, `server`
        further fields of server_settings.Settings, `settings` those of Limits.
        """
        from t2t_repro.server import service, versions
        from t2t_repro.serving import requests

        self.service = service.Service(
            export_dir,
            "t2t",
            requests.Limits(**settings),
            forks,
            versions.Retries(*retries),
        )
        self._settings = dict(server)
        self.ports = ports  # 0 until it runs
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(SECONDS)
        return self

    def __exit__(self, *_):
        self.stop()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def stop(self):
        """Begin to stop, without waiting."""
        self._loop.call_soon_threadsafe(self._stop.set)

    def _run(self):
        asyncio.run(self._serve())

    async def _serve(self):
        from t2t_repro.server import server_settings
        from t2t_repro.server.server import running

        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        settings = server_settings.Settings(
            ports=server_settings.Ports(*self.ports),
            grace_secs=SECONDS,
            poll_secs=0.02,
        )._replace(**self._settings)
        async with running(self.service, settings) as self.ports:
            self._ready.set()
            await self._stop.wait()

    def ask(self, method, path, body=None, port=None, **headers):
        """Send a request; return the response and its content."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", port or self.ports.rest, timeout=SECONDS
        )
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response, response.read()

    def http(self, method, path, body=None, **headers):
        """Send a request; return the status and the content, JSON parsed."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        response, content = self.ask(method, path, body, **headers)
        if response.headers.get_content_type() == "application/json":
            content = json.loads(content)
        return response.status, content

    def predict(self, body, path="/v1/models/t2t:predict"):
        """Post a request for predictions."""
        return self.http("POST", path, body)

    def metric(self, line):
        """Return the value of a metric, or 0."""
        _, text = self.http("GET", "/metrics")
        for found in text.decode().splitlines():
            name, _, value = found.rpartition(" ")
            if name == line:
                return float(value)
        return 0.0

    def url(self, protocol, name="t2t"):
        """Return the URL of a model, over "grpc" or "rest"."""
        if protocol == "grpc":
            return f"grpc://127.0.0.1:{self.ports.grpc}/{name}"
        return f"http://127.0.0.1:{self.ports.rest}/v1/models/{name}"

    def channel(self, *options):
        """Return a channel of gRPC."""
        import grpc

        return grpc.insecure_channel(f"127.0.0.1:{self.ports.grpc}", options)


@pytest.fixture(scope="session")
def embedded(versions_fork_server):
    """Return a function like Embedded, for tests with limits of their own."""
    return functools.partial(Embedded, versions_fork_server)


@pytest.fixture
def serve(embedded, export_dir):
    """Return a function of settings of an Embedded of the toy."""
    return functools.partial(embedded, export_dir)


@pytest.fixture(scope="session")
def server(exported, embedded):
    """Yield a server of version 2, for tests that do not change it."""
    with embedded(exported) as running:
        yield running


@pytest.fixture(scope="session")
def channel(server):
    """Yield a gRPC channel to the server."""
    with server.channel() as channel:
        yield channel


@pytest.fixture
def gate(monkeypatch):
    """Yield a gate before the model, which `hold` closes around its block."""
    from t2t_repro.server import versions

    run = versions.LoadedVersion.run
    opened, entered = threading.Event(), threading.Semaphore(0)

    async def held(model, *arguments):
        entered.release()
        assert await asyncio.to_thread(opened.wait, SECONDS)
        return await run(model, *arguments)

    @contextlib.contextmanager
    def hold(call=None):
        """Close the gate for a block, before which a call has reached it."""
        monkeypatch.setattr(versions.LoadedVersion, "run", held)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = call and pool.submit(call)
            try:
                assert not call or entered.acquire(timeout=SECONDS)
                yield waiting
            finally:
                opened.set()

    return types.SimpleNamespace(open=opened, hold=hold)
