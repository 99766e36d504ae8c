"""Chaos suite: honest clients translate while the server is attacked.

    python -m scripts.benchmarks.bench_chaos --export_dir=… --text=test.en

First the clients are alone. Then they are measured again beside each attack of
chaos_attacks, over the protocol that is attacked, with new versions every
second, with a full disk below the log, with few descriptors, and with a server
that is killed and restarted. The limits are: no wrong answer; no lost one,
except at the kill; a p99 of at most three times that without attack; a memory
that grows by a second model at most; a log that does not grow. Exit status 1: a
limit is exceeded. Clients, attacks and server share this machine.
"""

import concurrent.futures
import functools
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from typing import NamedTuple

import numpy as np
from absl import app, flags

from scripts.benchmarks import harness
from scripts.benchmarks.chaos_attacks import ATTACKS, ON_GRPC
from scripts.benchmarks.served import Server, expected_translations
from t2t_repro import errors
from t2t_repro.serving import client, version_folders

# Honest clients: a process of its own that measures a server under attack.
#
# Each sends one sentence at a time and pauses, so that the server is not busy
# by them alone. A server that asks for a retry (503) gets it; a connection that
# is cut is counted as lost.

_TIMEOUT = 60.0  # seconds for a request


def measure_clients(settings):
    """Run the clients; return their counts and latencies.

    Args:
        settings: "port" of a "protocol", number of "clients", "seconds", the
            mean "pause" in seconds, and the file "expected"
            {sentence: translation}.
    """
    expected = json.loads(pathlib.Path(settings["expected"]).read_text("utf-8"))
    end = time.monotonic() + settings["seconds"]
    with concurrent.futures.ThreadPoolExecutor(settings["clients"]) as pool:
        results = list(
            pool.map(
                lambda seed: _run_client(settings, expected, seed, end),
                range(settings["clients"]),
            )
        )
    total = {
        key: sum(result[key] for result in results)
        for key in ("wrong", "lost", "retries")
    }
    seconds = [value for result in results for value in result["seconds"]]
    p50, p99 = np.percentile(seconds, (50, 99)) if seconds else (0.0, 0.0)
    return {"answers": len(seconds), **total, "p50": p50, "p99": p99}


def _run_client(settings, expected, seed, end):
    generator = random.Random(seed)
    sentences = sorted(expected)
    remote = client.PROTOCOLS[settings["protocol"]](
        f"127.0.0.1:{settings['port']}", "t2t", _TIMEOUT
    )
    found = {"wrong": 0, "lost": 0, "retries": 0, "seconds": []}
    while time.monotonic() < end:
        time.sleep(generator.uniform(0, 2 * settings["pause"]))
        sentence = generator.choice(sentences)
        start = time.perf_counter()
        text = _ask(remote, sentence, found, end)
        if text is not None:
            found["seconds"].append(time.perf_counter() - start)
            found["wrong"] += text != expected[sentence]
    return found


def _ask(remote, sentence, found, end):
    """Return the translation; None if it was lost, or time is over."""
    while time.monotonic() < end + _TIMEOUT:
        try:
            ((text,), _) = remote.predict_once([sentence], _TIMEOUT)
            return text
        except client.ServerUnavailableError as error:
            cause = error.__cause__
            # Refused: there is no server for the moment, and nothing is lost.
            if isinstance(cause, OSError) and not isinstance(
                cause, ConnectionRefusedError
            ):
                found["lost"] += 1
                return None
            found["retries"] += 1
            time.sleep(0.1)
        except errors.UserError:
            found["lost"] += 1
            return None
    found["lost"] += 1
    return None


_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "Folder of the exporter.", required=True
)
_TEXT = flags.DEFINE_string(
    "text", None, "File with a sentence per line.", required=True
)
_LINES = flags.DEFINE_integer("lines", 200, "Lines of the text to use.")
_CLIENTS = flags.DEFINE_integer("clients", 50, "Honest clients.")
_PAUSE = flags.DEFINE_float(
    "pause", 2.0, "Mean seconds between two requests of a client."
)
_SECONDS = flags.DEFINE_float("seconds", 25, "Seconds of each attack.")
_ATTACKS = flags.DEFINE_list("attacks", [], "Attacks (default: all).")

MAX_LOG_KB = 256.0
EXPORT = "export"  # in the temporary folder
_CALM = {"rest": "no attack", "grpc": "no attack on gRPC"}
SOME_HALF_REQUESTS = "some half requests"
_VERSION_SECS = 1.0  # between two new versions
_DESCRIPTORS = 160  # of a process, of which TensorFlow uses a part


class Limits(NamedTuple):
    """Limits of a measurement."""

    p99_ratio: float | None = 3.0  # to that without attack; None: no limit
    growth_mb: float = 200.0
    may_lose: bool = False


# A load of tiny takes 220 MB, most of it for the graph in Python.
_TWO_MODELS = Limits(growth_mb=300.0)


class Chaos:
    """The suite: its figures, and the limits that they exceed."""

    def __init__(self, folder: pathlib.Path, expected: pathlib.Path):
        """Prepare the suite.

        Args:
            folder: temporary folder.
            expected: file {sentence: translation}.
        """
        self._folder, self._expected = folder, expected
        self.export_dir = folder / EXPORT
        self._calm_p99: dict[str, float] = {}  # by protocol
        self.exceeded: list[str] = []

    def start_server(self, **settings):
        """Start a server whose log is a file, unless `settings` name one."""
        self._log = self._folder / "log"
        with self._log.open("w") as log:
            return Server(self.export_dir, **{"stderr": log, **settings})

    def measure(self, name, server, disturb=None, limits=None, protocol="rest"):
        """Measure the honest clients beside an attack; check the limits.

        Args:
            name: of the attack.
            server: the server.
            disturb: a function of an Event, called in a thread: it ends soon
                after the event is set.
            limits: limits that are wider than usual.
            protocol: of the clients.
        """
        before, stop, peak = server.memory_mb(), threading.Event(), [0.0]

        def watch():
            while not stop.wait(0.2):
                peak[0] = max(peak[0], server.memory_mb())

        threads = [threading.Thread(target=watch)]
        if disturb:
            threads.append(threading.Thread(target=disturb, args=(stop,)))
        for thread in threads:
            thread.start()
        found = harness.measure_in_process(
            "scripts.benchmarks.bench_chaos",
            "clients",
            port=getattr(server, protocol),
            protocol=protocol,
            clients=_CLIENTS.value,
            seconds=_SECONDS.value,
            pause=_PAUSE.value,
            expected=str(self._expected),
        )
        stop.set()
        for thread in threads:
            thread.join()
        found["growth"] = max(peak[0] - before, 0.0)
        self._report(name, found, protocol, limits or Limits())

    def _report(self, name, found, protocol, limits):
        calm_p99 = self._calm_p99.setdefault(protocol, found["p99"])
        ratio, growth = found["p99"] / calm_p99, found["growth"]
        log_kb = self._log.stat().st_size / 1024
        add = harness.report
        for key in ("answers", "wrong", "lost", "retries"):
            add(f"{name}: {key}", found[key], "")
        add(f"{name}: p50", found["p50"], "s")
        add(f"{name}: p99", found["p99"], "s", _CALM[protocol], ratio)
        add(f"{name}: growth of memory", growth, "MB")
        add(f"{name}: log", log_kb, "KB")
        for excess, what in (
            (found["wrong"], "wrong answers"),
            (found["lost"] and not limits.may_lose, "lost answers"),
            (limits.p99_ratio and ratio > limits.p99_ratio, "p99"),
            (growth > limits.growth_mb, "memory"),
            (log_kb > MAX_LOG_KB, "log"),
        ):
            if excess:
                self.exceeded.append(f"{name}: {what}")


def attack(name, server):
    """Return a function for Chaos.measure() that runs an attack."""

    def run(stop):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "scripts.benchmarks.chaos_attacks"),
                *(name, str(server.grpc if name in ON_GRPC else server.rest)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        stop.wait()
        count, _ = process.communicate("")
        harness.report(f"{name}: attacks", int(count), "")

    return run


def publish_versions(folder, stop):
    """Copy the newest version of an export to a newer one again and again."""
    first = newest = version_folders.newest_version(folder)
    while not stop.wait(_VERSION_SECS):
        shutil.copytree(folder / str(first), folder / "next.tmp")
        newest += 1
        (folder / "next.tmp").rename(folder / str(newest))
        if newest - first > 2:
            shutil.rmtree(folder / str(newest - 2))
    harness.report("new versions: published", newest - first, "")


def main(_):
    harness.print_machine()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        # A copy, since the suite adds versions.
        shutil.copytree(_EXPORT_DIR.value, root / EXPORT)
        chaos = Chaos(root, _write_expected(root / "expected.json"))
        wanted = _ATTACKS.value or [*ATTACKS, *SPECIAL]
        server = chaos.start_server()
        over_rest = set(ATTACKS) - {*ON_GRPC, SOME_HALF_REQUESTS}
        for protocol, attacks in (("rest", over_rest), ("grpc", ON_GRPC)):
            chosen = [name for name in wanted if name in attacks]
            if chosen or protocol == "rest":
                chaos.measure(_CALM[protocol], server, protocol=protocol)
            for name in chosen:
                run = attack(name, server)
                chaos.measure(name, server, run, protocol=protocol)
        server.stop()
        for name, measure in SPECIAL.items():
            if name in wanted:
                measure(chaos)
    for excess in chaos.exceeded:
        print(f"Beyond its limit: {excess}")
    harness.print_json()
    sys.exit(bool(chaos.exceeded))


def _write_expected(path):
    expected = expected_translations(
        _EXPORT_DIR.value, _TEXT.value, _LINES.value
    )
    path.write_text(json.dumps(expected))
    return path


def measure_new_versions(chaos):
    """Measure a server that loads a version after the other."""
    server = chaos.start_server()
    publish = functools.partial(publish_versions, chaos.export_dir)
    chaos.measure("new versions", server, publish, _TWO_MODELS)
    server.stop()


def measure_full_disk(chaos):
    """Measure a server whose log cannot be written, under mistakes."""
    with open("/dev/full", "w") as full:
        server = chaos.start_server(stderr=full)
    chaos.measure("full disk", server, attack("mistakes", server))
    server.stop()


def measure_few_descriptors(chaos):
    """Measure a server with few descriptors, under half requests."""
    limit = f"ulimit -n {_DESCRIPTORS}; exec " + '"$@"'
    server = chaos.start_server(launcher=("bash", "-c", limit, "bash"))
    chaos.measure("few descriptors", server, attack(SOME_HALF_REQUESTS, server))
    server.stop()


def _answers(server):
    """Return whether a server has answered a prediction."""
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{server.rest}/metrics")
    return b't2t_requests_total{code="OK"' in metrics.read()


def measure_restart(chaos):
    """Measure clients whose server is killed, and restarted on its ports."""
    server = chaos.start_server()

    def restart(stop):
        while not stop.wait(0.2) and not _answers(server):
            pass
        stop.wait(_SECONDS.value / 2)
        server.stop(signal.SIGKILL)
        again = chaos.start_server(rest_port=server.rest, grpc_port=server.grpc)
        server.process = again.process

    chaos.measure(
        "killed and restarted", server, restart, Limits(None, may_lose=True)
    )
    server.stop()


SPECIAL = {
    "new versions": measure_new_versions,
    "full disk": measure_full_disk,
    "few descriptors": measure_few_descriptors,
    "killed and restarted": measure_restart,
}

if __name__ == "__main__":
    if harness.is_probe():
        harness.run_measurement({"clients": measure_clients})
    else:
        app.run(main)
