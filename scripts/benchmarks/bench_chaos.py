"""Chaos suite: honest clients translate while the server is attacked.

    python -m scripts.benchmarks.bench_chaos --export_dir=… --text=test.en

First the clients are alone. Then they are measured again beside each attack of
chaos_attacks, over the protocol that is attacked, with a full disk below the
log, with few descriptors, with new versions every second, and with a server
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
from absl import flags

from scripts.benchmarks import bench_serve, harness
from scripts.benchmarks.chaos_attacks import ATTACKS
from t2t_repro import errors
from t2t_repro.serving import client, connection, version_folders

CALM = {"rest": "no attack", "grpc": "no attack on gRPC"}
# Settings of servers that are attacked on their own.
OWN_SERVERS: dict[str, dict] = {
    "full disk": {"log": pathlib.Path("/dev/full")},
    # TensorFlow uses a part of the descriptors.
    "few descriptors": {
        "launcher": ("bash", "-c", 'ulimit -n 160; exec "$@"', "bash")
    },
    "new versions": {},
    "killed and restarted": {},
}
MAX_LOG_KB = 256.0
_TIMEOUT = 60.0  # seconds for a request


class Limits(NamedTuple):
    """Limits of a measurement."""

    p99_ratio: float = 3.0  # to that without attack
    growth_mb: float = 200.0
    may_lose: bool = False


LIMITS = {
    # A load of tiny takes 220 MB, most of it for the graph in Python.
    "new versions": Limits(growth_mb=300.0),
    "killed and restarted": Limits(p99_ratio=np.inf, may_lose=True),
}


def measure_clients(settings):
    """Run honest clients; return their counts and latencies.

    Each sends one sentence at a time and pauses, so that the server is not busy
    by them alone.

    Args:
        settings: "port" of a "protocol", number of "clients", "seconds", the
            mean "pause" in seconds, and the file "expected"
            {sentence: translation}.
    """
    expected = json.loads(pathlib.Path(settings["expected"]).read_text("utf-8"))
    end = time.monotonic() + settings["seconds"]
    run = functools.partial(_run_client, settings, expected, end)
    with concurrent.futures.ThreadPoolExecutor(settings["clients"]) as pool:
        clients = list(pool.map(run, range(settings["clients"])))
    seconds = sum((one.pop("seconds") for one in clients), [])
    p50, p99 = np.percentile(seconds or [np.inf], (50, 99))
    found = {key: sum(one[key] for one in clients) for key in clients[0]}
    return {"answers": len(seconds), **found, "p50": p50, "p99": p99}


def _run_client(settings, expected, end, seed):
    generator, sentences = random.Random(seed), sorted(expected)
    address = f"127.0.0.1:{settings['port']}"
    remote = client.connect(
        connection.Address(settings["protocol"], address),
        connection.Options(timeout_secs=_TIMEOUT, wait_secs=0),
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
    """Return the translation, after retries; None: it is lost."""
    while time.monotonic() < end + _TIMEOUT:
        try:
            return remote.translate([sentence])[0].texts[0]
        except errors.UserError as error:
            unavailable = error.__cause__
        # A server that asks for a retry gets it, and one that refuses the
        # connection is not there for the moment. A cut connection is a loss.
        cut = getattr(unavailable, "__cause__", None)
        if not isinstance(unavailable, client.ServerUnavailableError) or (
            isinstance(cut, OSError)
            and not isinstance(cut, ConnectionRefusedError)
        ):
            break
        found["retries"] += 1
        time.sleep(0.1)
    found["lost"] += 1
    return None


class Chaos:
    """The suite: its figures, and the limits that they exceed."""

    def __init__(self, expected: pathlib.Path):
        """Write a file {sentence: translation} for the clients."""
        translations = bench_serve.expected_translations()
        expected.write_text(json.dumps(translations))
        self._expected = str(expected)
        self._calm_p99: dict[str, float] = {}  # by protocol
        self.exceeded: list[str] = []

    def measure(self, name, server, disturb, protocol="rest"):
        """Measure the honest clients beside an attack; check the limits.

        `disturb` is called with the server and an Event in a thread, and ends
        soon after the event is set.
        """
        before, stop = server.memory_mb(), threading.Event()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            peak = pool.submit(_peak_memory_mb, server, stop)
            disturbing = pool.submit(disturb, server, stop)
            try:
                found = harness.measure_in_process(
                    "scripts.benchmarks.bench_chaos",
                    "clients",
                    port=getattr(server, protocol),
                    protocol=protocol,
                    clients=flags.FLAGS.clients,
                    seconds=flags.FLAGS.seconds,
                    pause=flags.FLAGS.pause,
                    expected=self._expected,
                )
            finally:
                stop.set()
        disturbing.result()
        growth_mb = max(peak.result() - before, 0.0)
        log_kb = server.log.stat().st_size / 1024
        ratio = found["p99"] / self._calm_p99.setdefault(protocol, found["p99"])
        for key in ("answers", "wrong", "lost", "retries"):
            harness.report(f"{name}: {key}", found[key], "")
        harness.report(f"{name}: p50", found["p50"], "s")
        harness.report(f"{name}: p99", found["p99"], "s", CALM[protocol], ratio)
        harness.report(f"{name}: growth of memory", growth_mb, "MB")
        harness.report(f"{name}: log", log_kb, "KB")
        limits = LIMITS.get(name, Limits())
        for excess, what in (
            (found["wrong"], "wrong answers"),
            (found["lost"] and not limits.may_lose, "lost answers"),
            (ratio > limits.p99_ratio, "p99"),
            (growth_mb > limits.growth_mb, "memory"),
            (log_kb > MAX_LOG_KB, "log"),
        ):
            if excess:
                self.exceeded.append(f"{name}: {what}")


def _peak_memory_mb(server, stop):
    """Return the highest memory of a server until an event is set."""
    peak = 0.0
    while not stop.wait(0.2):
        peak = max(peak, server.memory_mb())
    return peak


# What disturbs a server until an event is set.


def run_attack(name, server, stop):
    """Run an attack of chaos_attacks in a process."""
    module = "scripts.benchmarks.chaos_attacks"
    port = getattr(server, ATTACKS[name].protocol)
    process = subprocess.Popen(
        [sys.executable, "-m", module, name, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    stop.wait()
    count, _ = process.communicate("")
    harness.report(f"{name}: attacks", int(count), "")


def publish_versions(server, stop):
    """Copy the newest version of the export to a newer one each second."""
    folder = server.export_dir
    first = newest = version_folders.newest_version(folder)
    while not stop.wait(1.0):
        shutil.copytree(folder / str(first), folder / "next.tmp")
        newest += 1
        (folder / "next.tmp").rename(folder / str(newest))
        if newest - first > 2:
            shutil.rmtree(folder / str(newest - 2))
    harness.report("new versions: published", newest - first, "")


def restart(server, stop):
    """Kill the server under load, and start it again on its ports."""
    metrics, answered = f"http://127.0.0.1:{server.rest}/metrics", False
    while not answered and not stop.wait(0.2):
        text = urllib.request.urlopen(metrics).read()
        answered = b't2t_requests_total{code="OK"' in text
    stop.wait(flags.FLAGS.seconds / 2)
    server.stop(signal.SIGKILL)
    server.start()


DISTURBANCES = {name: functools.partial(run_attack, name) for name in ATTACKS}
DISTURBANCES |= {
    "new versions": publish_versions,
    "killed and restarted": restart,
}


def define_flags():
    bench_serve.define_flags(lines=200, clients=50, seconds=25)
    flags.adopt_module_key_flags(bench_serve)
    flags.DEFINE_float(
        "pause", 2.0, "Mean seconds between two requests of a client."
    )
    flags.DEFINE_list("attacks", list(DISTURBANCES), "Attacks.")
    flags.register_validator(
        "attacks",
        lambda names: DISTURBANCES.keys() >= set(names),
        f"Each must be one of {', '.join(DISTURBANCES)}.",
    )


def main():
    chosen = {name: DISTURBANCES[name] for name in flags.FLAGS.attacks}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        # A copy, since versions are added.
        shutil.copytree(flags.FLAGS.export_dir, folder / "export")
        chaos, log = Chaos(folder / "expected.json"), folder / "log"
        server = bench_serve.Server(folder / "export", log=log)
        for protocol, calm in CALM.items():
            chaos.measure(calm, server, lambda _, stop: stop.wait(), protocol)
            for name in [n for n in chosen if n not in OWN_SERVERS]:
                if ATTACKS[name].protocol == protocol:
                    chaos.measure(name, server, chosen[name], protocol)
        server.stop()
        for name in [n for n in chosen if n in OWN_SERVERS]:
            settings = {"log": log} | OWN_SERVERS[name]
            server = bench_serve.Server(folder / "export", **settings)
            chaos.measure(name, server, chosen[name])
            server.stop()
    for excess in chaos.exceeded:
        print(f"Beyond its limit: {excess}")
    return bool(chaos.exceeded)


if __name__ == "__main__":
    define_flags()
    harness.run_benchmark(main, {"clients": measure_clients})
