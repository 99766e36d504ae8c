"""Benchmark of the embedded server: correct answers, rate and latency.

    python -m scripts.benchmarks.bench_serve --export_dir=… --text=test.en

It starts `t2t serve` on loopback. Many clients, each in a thread, request
translations of sentences of the text, one sentence a request. Each answer is
compared with the model's output in this process. The first server has no
batches (--max_batch_size=1), the second has them. The third is killed under
load and restarted on its ports. Clients and server share this machine.
"""

import concurrent.futures
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
from absl import app, flags

from scripts.benchmarks import harness
from t2t_repro.serving import client, connection

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "Folder of the exporter.", required=True
)
_TEXT = flags.DEFINE_string(
    "text", None, "File with a sentence per line.", required=True
)
_LINES = flags.DEFINE_integer("lines", 1000, "Lines of the text to use.")
_CLIENTS = flags.DEFINE_integer("clients", 200, "Client threads.")
_SECONDS = flags.DEFINE_float("seconds", 60, "Seconds of load on each server.")
_PROTOCOL = flags.DEFINE_enum(
    "protocol", "rest", ["grpc", "rest"], "Protocol of all clients."
)

_TIMEOUT = 120  # seconds for a request, including a restart


class Server:
    """A process of `t2t serve`, which accepts requests."""

    def __init__(self, *settings, rest_port=0, grpc_port=0):
        """Start it with further flags; port 0 lets the system choose."""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "t2t_repro.serve"),
                f"--export_dir={_EXPORT_DIR.value}",
                *(f"--rest_port={rest_port}", f"--grpc_port={grpc_port}"),
                *settings,
            ],
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        line = self._process.stdout.readline()
        found = re.search(r"port (\d+); gRPC: port (\d+)", line)
        if not found:
            raise SystemExit("The server did not start.")
        self.rest, self.grpc = map(int, found.groups())

    def stop(self, number=signal.SIGTERM) -> int:
        """Send a signal; return the exit status."""
        self._process.send_signal(number)
        return self._process.wait()

    def memory_mb(self) -> float:
        """Return the memory of all its processes in MB, each page once."""
        return sum(map(_memory_kb, _processes(self._process.pid))) / 1024


def _processes(process):
    """Return the ids of a process and of its descendants."""
    found = [process]
    for child in _read(f"/proc/{process}/task/{process}/children").split():
        found += _processes(child)
    return found


def _memory_kb(process):
    """Return the memory of a process, with its part of shared pages."""
    text = _read(f"/proc/{process}/smaps_rollup")
    found = re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _read(path):
    """Return the text of a file in /proc; "" if its process has ended."""
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


class Load:
    """Clients that send requests until end() is called."""

    def __init__(self, server, expected):
        self._expected, self._sentences = expected, sorted(expected)
        address = connection.Address(
            _PROTOCOL.value, f"127.0.0.1:{getattr(server, _PROTOCOL.value)}"
        )
        self._stop = threading.Event()
        self.wrong, self.seconds = [], []
        self._pool = concurrent.futures.ThreadPoolExecutor(_CLIENTS.value)
        self._start = time.perf_counter()
        self._running = [
            self._pool.submit(self._send_requests, address, seed)
            for seed in range(_CLIENTS.value)
        ]

    def end(self) -> float:
        """Stop all clients; return answers per second.

        Raises:
            Exception: the first error of a client.
        """
        self._stop.set()
        for running in self._running:
            running.result()
        return len(self.seconds) / (time.perf_counter() - self._start)

    def _send_requests(self, address, seed):
        options = connection.Options(timeout_secs=_TIMEOUT, wait_secs=_TIMEOUT)
        remote = client.connect(address, options)
        generator = random.Random(seed)
        while not self._stop.is_set():
            sentence = generator.choice(self._sentences)
            start = time.perf_counter()
            (translation,) = remote.translate([sentence])
            self.seconds.append(time.perf_counter() - start)
            if translation.texts[0] != self._expected[sentence]:
                self.wrong.append((sentence, translation.texts[0]))


def main(_):
    harness.print_machine()
    text = pathlib.Path(_TEXT.value).read_text("utf-8")
    sentences = sorted(set(map(str.strip, text.splitlines())))[: _LINES.value]
    translated = client.ExportedModel(_EXPORT_DIR.value).translate(sentences)
    expected = {
        sentence: translation.texts[0]
        for sentence, translation in zip(sentences, translated, strict=True)
    }
    add = harness.report
    add("different translations", len(set(expected.values())), "sentences")
    single = measure(expected, "no batches", "--max_batch_size=1")
    batched = measure(expected, "batches")
    add("throughput", batched, "answers/s", "no batches", batched / single)
    restart(expected)
    harness.print_json()


def measure(expected, name, *settings):
    """Return answers per second of a server with these settings."""
    server = Server(*settings)
    load, memory = Load(server, expected), []
    for _ in range(4):
        time.sleep(_SECONDS.value / 4)
        memory.append(server.memory_mb())
    rate = load.end()
    status = server.stop()
    report(name, load, rate)
    harness.report(f"{name}: memory at 1/4", memory[0], "MB")
    harness.report(f"{name}: memory at the end", memory[-1], "MB")
    harness.report(f"{name}: exit status after SIGTERM", status, "")
    return rate


def restart(expected):
    """Kill the server under load, and start another in its place."""
    server = Server()
    load = Load(server, expected)
    time.sleep(_SECONDS.value / 4)
    before = len(load.seconds)
    server.stop(signal.SIGKILL)
    again = Server(rest_port=server.rest, grpc_port=server.grpc)
    time.sleep(_SECONDS.value / 4)
    rate = load.end()
    again.stop()
    report("killed and started again", load, rate)
    after = len(load.seconds) - before
    harness.report("killed and started again: after it", after, "answers")


def report(name, load, rate):
    """Report rate, latencies and wrong answers."""
    add = harness.report
    add(f"{name}: answers", len(load.seconds), "")
    add(f"{name}: wrong answers", len(load.wrong), "")
    for sentence, answer in load.wrong[:5]:
        print(f"  {sentence} -> {answer}")
    add(f"{name}: rate", rate, "answers/s")
    for percent in (50, 99):
        seconds = float(np.percentile(load.seconds, percent))
        add(f"{name}: latency p{percent}", seconds, "s")


if __name__ == "__main__":
    app.run(main)
