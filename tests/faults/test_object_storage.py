"""Commands whose folders are in an object store, which is moto's S3 server."""

import json
import os
import re

import pytest
from forked import ok

from t2t_repro import errors
from t2t_repro.io import storage

moto_server = pytest.importorskip("moto.server")
s3fs = pytest.importorskip("s3fs")
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
LINE = "a b c d e f\n"
URL = "s3://bucket/work"
DATA = (f"--raw_dir={URL}/raw", f"--data_dir={URL}/data")


@pytest.fixture(scope="module")
def server():
    """Start a server of S3 on loopback; return its environment."""
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield CREDENTIALS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    server.stop()


class Machines:
    """Commands on machines with empty caches, and the same store."""

    def __init__(self, commands, env, folder, monkeypatch):
        self.commands, self.env, self.folder = commands, env, folder
        self._monkeypatch = monkeypatch
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        self.store = s3fs.S3FileSystem(use_listings_cache=False)

    def use(self, name):
        """Use the cache of a machine, from now on."""
        cache = self.folder / name
        self.env = self.env | {"T2T_CACHE": str(cache)}
        self._monkeypatch.setenv("T2T_CACHE", str(cache))
        return cache

    def run(self, name, *flags, **settings):
        """Run a command that succeeds; return its output."""
        return ok(self.commands.forked(name, *flags, env=self.env, **settings))

    def train(self, *flags, **settings):
        """Train in the store; return the result."""
        return self.commands.train(
            f"{URL}/run", *DATA, *flags, env=self.env, **settings
        )


@pytest.mark.slow
def test_run_in_an_object_store_equals_a_local_one(
    commands, server, trained, assert_same_run, tmp_path, monkeypatch
):
    machines = Machines(commands, server, tmp_path, monkeypatch)
    machines.store.mkdir("bucket")
    machines.store.put(f"{commands.folder}/raw/", f"{URL}/raw/", recursive=True)
    # Data.
    machines.use("first")
    flags = commands.data_flags()[:2]
    machines.run("datagen", *flags, *DATA)
    (manifest,) = machines.store.glob(f"{URL}/data/*/manifest.json")
    contents = json.loads(machines.store.cat(manifest))
    local = json.loads((commands.data() / "manifest.json").read_bytes())
    assert contents["splits"] == local["splits"]
    assert contents["sources"]["test"] == [{"raw_dir": f"{URL}/raw"}]
    # Training on three machines: one is killed, the next is stopped.
    machines.use("killed")
    killed = machines.train(fault="SIGKILL step 10")
    assert killed.returncode == -9, killed.stderr
    assert "The data is there: s3://bucket/work/data/" in killed.stdout
    machines.use("stopped")
    stopped = machines.train(fault="SIGTERM step 2")
    assert stopped.returncode == 143, stopped.stderr
    continuing = r"Continuing from .*/stopped/s3/.*/ckpt-[48]\."
    assert re.search(continuing, stopped.stdout)
    last = machines.use("last")
    printed = ok(machines.train())
    assert re.search(rf"Continuing from {last}/s3/.*/ckpt-(6|10)\.", printed)
    # What another machine finds is that of a local run.
    machines.use("reader")
    run = storage.download(storage.local_path(f"{URL}/run"))
    (run / "checkpoints" / ".t2t.objects").unlink()
    assert_same_run(run, trained)
    assert "Finished after step 12" in (run / "train.log").read_text()
    # Average, export, serve: each on its own machine.
    machines.use("average")
    machines.run(
        "avg_checkpoints", f"--output_dir={URL}/run", "--num_last_checkpoints=2"
    )
    machines.use("exporter")
    flags = f"--output_dir={URL}/run", f"--export_dir={URL}/export"
    printed = machines.run("exporter", *flags)
    assert f"Exported {URL}/export/1." in printed
    machines.use("server")
    decoded = machines.run("decoder", flags[0], stdin=LINE)
    with commands.forked.serve(f"{URL}/export", env=machines.env) as server:
        body = {"inputs": [LINE.strip()]}
        answer = server.ask(":predict", body)["outputs"]["outputs"]
    assert answer == [decoded.strip()]


def test_missing_bucket_and_login_are_explained(server, tmp_path, monkeypatch):
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("T2T_CACHE", str(tmp_path))
    folder = storage.local_path("s3://no-such-bucket/run")
    with pytest.raises(errors.UserError, match="that the bucket exists"):
        storage.download(folder)
    (folder / "run.json").write_text("settings")
    with pytest.raises(errors.UserError, match="that the bucket exists"):
        storage.upload(folder)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(errors.UserError, match="NoCredentials.*the login, "):
        storage.names(folder)
    s3fs.S3FileSystem.clear_instance_cache()
