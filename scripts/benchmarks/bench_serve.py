"""Benchmark of the embedded server: correct answers, rate and latency.

    python -m scripts.benchmarks.bench_serve --export_dir=… --text=test.en

It starts `t2t serve` on loopback. Many clients, each in a thread, request
translations of sentences of the text, one sentence a request. Each answer is
compared with the model's output in this process. The first server has no
batches (--max_batch_size=1), the second has them. The third is killed under
load and restarted on its ports. Clients and server share this machine.
"""

import concurrent.futures
import random
import signal
import threading
import time

import numpy as np
from absl import app, flags

from scripts.benchmarks import harness, served
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
    expected = served.expected_translations(
        _EXPORT_DIR.value, _TEXT.value, _LINES.value
    )
    add = harness.report
    add("different translations", len(set(expected.values())), "sentences")
    single = measure(expected, "no batches", "--max_batch_size=1")
    batched = measure(expected, "batches")
    add("throughput", batched, "answers/s", "no batches", batched / single)
    restart(expected)
    harness.print_json()


def measure(expected, name, *settings):
    """Return answers per second of a server with these settings."""
    server = served.Server(_EXPORT_DIR.value, *settings)
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
    server = served.Server(_EXPORT_DIR.value)
    load = Load(server, expected)
    time.sleep(_SECONDS.value / 4)
    before = len(load.seconds)
    server.stop(signal.SIGKILL)
    server.start()
    time.sleep(_SECONDS.value / 4)
    rate = load.end()
    server.stop()
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
