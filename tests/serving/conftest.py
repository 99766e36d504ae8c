"""A tiny model with random weights, exported once, and a server around it."""

import asyncio
import dataclasses
import http.client
import json
import shutil
import threading

import pytest

SECONDS = 60  # what takes longer hangs


@pytest.fixture(scope="session")
def parts(tiny_hparams, vocabularies):
    """A function of a seed -> what the exporter takes: a tiny model's parts."""
    import keras

    from t2t_repro import hparam
    from t2t_repro.models import building

    hparams = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
    search = hparam.DecodeHParams(
        beam_size=3, extra_length=3, max_input_length=40
    )

    def make(seed):
        keras.utils.set_random_seed(seed)
        model = building.build(hparams, **vocabularies.sizes)
        return [model], vocabularies, search

    return make


@pytest.fixture(scope="session")
def exported(parts, tmp_path_factory):
    """A folder with version 2 of parts(1), whose weights are bfloat16."""
    from t2t_repro.serving import saved_model

    folder = tmp_path_factory.mktemp("exported")
    models, vocabularies, search = parts(1)
    card = {"decode_hparams": dataclasses.asdict(search)}
    saved_model.export(models, vocabularies, search, folder, card, "bfloat16")
    (folder / "1").rename(folder / "2")
    return folder


@pytest.fixture(scope="session")
def toys(tmp_path_factory):
    """A folder with versions 1 and 2 of a model that loads at once.

    It says what it is told, with scores of -1 and of -2.
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
        tf.saved_model.save(
            module,
            str(folder / str(version)),
            signatures={"serving_default": translate},
        )

    for version in (1, 2):
        save(version)
    return folder


@pytest.fixture
def export_dir(toys, tmp_path):
    """A folder with version 1 of the toy alone."""
    shutil.copytree(toys / "1", tmp_path / "export" / "1")
    return tmp_path / "export"


@pytest.fixture
def publish(toys, export_dir):
    """Puts version 2 into export_dir, as the exporter does: in one rename."""

    def put():
        shutil.copytree(toys / "2", export_dir / "2.tmp")
        (export_dir / "2.tmp").rename(export_dir / "2")

    return put


@pytest.fixture(scope="session")
def local(exported):
    """A function of a signature and its inputs: its arrays, by name."""
    import tensorflow as tf

    signatures = tf.saved_model.load(str(exported / "2")).signatures

    def ask(signature, **inputs):
        tensors = {k: tf.constant(v) for k, v in inputs.items()}
        found = signatures[signature](**tensors)
        return {name: array.numpy() for name, array in found.items()}

    return ask


class Embedded:
    """A server in a thread of this process."""

    def __init__(self, export_dir, ports=(0, 0), **settings):
        from t2t_repro.serving import limits, service

        self.service = service.Service(
            export_dir, "t2t", limits.Limits(**settings)
        )
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
        """Begins to stop, and does not wait for it."""
        self._loop.call_soon_threadsafe(self._stop.set)

    def _run(self):
        asyncio.run(self._serve())

    async def _serve(self):
        from t2t_repro.serving import server

        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        wanted = server.Ports(*self.ports)
        async with server.running(
            self.service, "127.0.0.1", wanted, SECONDS, poll_secs=0.02
        ) as self.ports:
            self._ready.set()
            await self._stop.wait()

    def http(self, method, path, body=None, **headers):
        """(status, what the JSON says) of a request."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.ports.rest, timeout=SECONDS
        )
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
            if response.headers.get_content_type() == "application/json":
                content = json.loads(content)
            return response.status, content
        finally:
            connection.close()

    def predict(self, body, path="/v1/models/t2t:predict"):
        """POST."""
        return self.http("POST", path, body)


@pytest.fixture(scope="session")
def embedded():
    """Embedded; each test may want other limits."""
    return Embedded


@pytest.fixture(scope="session")
def server(exported, embedded):
    """One that serves version 2 to tests that leave it as it was."""
    with embedded(exported) as running:
        yield running


@pytest.fixture
def gate(monkeypatch):
    """Holds the model until gate.open is set; gate.entered: it was asked."""
    from t2t_repro.serving import versions

    run = versions.Model.run

    class Gate:
        open = threading.Event()
        entered = threading.Semaphore(0)

    def held(model, *arguments):
        Gate.entered.release()
        assert Gate.open.wait(SECONDS)
        return run(model, *arguments)

    def close():
        """After loading, which warms up."""
        monkeypatch.setattr(versions.Model, "run", held)

    Gate.close = staticmethod(close)
    yield Gate
    Gate.open.set()
