"""Benchmark of the embedded server: correct answers, rate and latency.

    python -m scripts.benchmarks.bench_serve --export_dir=… --text=test.en

It starts `t2t serve` on loopback. Many clients, each in a thread, request
translations of sentences of the text, one sentence a request. Each answer is
compared with the model's output in this process. The first server has no
batches (--max_batch_size=1), the second has them. The third is killed under
load and restarted on its ports. Clients and server share this machine.
"""

import concurrent.futures
import contextlib
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
from absl import flags

from scripts.benchmarks import harness
from t2t_repro.serving import client, connection

_TIMEOUT = 120  # seconds for a request, including a restart


def define_flags(lines, clients, seconds):
    """Define the flags of benchmarks of a server, with these defaults."""
    for name, text in (
        ("export_dir", "Folder of the exporter."),
        ("text", "File with a sentence per line."),
    ):
        flags.DEFINE_string(name, None, text, required=True)
    flags.DEFINE_integer("lines", lines, "Lines of the text to use.")
    flags.DEFINE_integer("clients", clients, "Clients at a time.")
    flags.DEFINE_float("seconds", seconds, "Seconds of each measurement.")


# A server, and the answers it must give.


def expected_translations() -> dict[str, str]:
    """Translate the first sentences of the sorted text in this process."""
    values = flags.FLAGS
    lines = pathlib.Path(values.text).read_text("utf-8").splitlines()
    sentences = sorted(set(map(str.strip, lines)))[: values.lines]
    translated = client.ExportedModel(values.export_dir).translate(sentences)
    return {
        sentence: translation.texts[0]
        for sentence, translation in zip(sentences, translated, strict=True)
    }


class Server:
    """A process of `t2t serve`, which can be started again on its ports."""

    def __init__(self, export_dir, *settings, launcher=(), log=None):
        """Start the server with further flags.

        `launcher` is a command that runs it, `log` a path for its messages.
        """
        self.export_dir, self.log = export_dir, log
        self.rest = self.grpc = 0  # ports: the system chooses
        self._settings, self._launcher = settings, launcher
        self.start()

    def start(self):
        """Start it, and wait until it accepts requests."""
        with contextlib.ExitStack() as stack:
            self._process = subprocess.Popen(
                [
                    *(*self._launcher, sys.executable, "-m", "t2t_repro.serve"),
                    f"--export_dir={self.export_dir}",
                    *(f"--rest_port={self.rest}", f"--grpc_port={self.grpc}"),
                    *self._settings,
                ],
                stdout=subprocess.PIPE,
                stderr=self.log and stack.enter_context(self.log.open("w")),
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


# Load on the server.


class Load:
    """Clients that send requests until end() is called."""

    def __init__(self, server, expected):
        self._expected, self._sentences = expected, sorted(expected)
        protocol, clients = flags.FLAGS.protocol, flags.FLAGS.clients
        address = connection.Address(
            protocol, f"127.0.0.1:{getattr(server, protocol)}"
        )
        self._stop = threading.Event()
        self.wrong, self.seconds = [], []
        self._pool = concurrent.futures.ThreadPoolExecutor(clients)
        self._start = time.perf_counter()
        self._running = [
            self._pool.submit(self._send_requests, address, seed)
            for seed in range(clients)
        ]

    def end(self) -> float:
        """Stop all clients; return answers per second, or raise their error."""
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


def main():
    expected = expected_translations()
    add = harness.report
    add("different translations", len(set(expected.values())), "sentences")
    single = measure(expected, "no batches", "--max_batch_size=1")
    batched = measure(expected, "batches")
    add("throughput", batched, "answers/s", "no batches", batched / single)
    restart(expected)


def measure(expected, name, *settings):
    """Return answers per second of a server with these settings."""
    server = Server(flags.FLAGS.export_dir, *settings)
    load, memory = Load(server, expected), []
    for _ in range(4):
        time.sleep(flags.FLAGS.seconds / 4)
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
    server = Server(flags.FLAGS.export_dir)
    load = Load(server, expected)
    time.sleep(flags.FLAGS.seconds / 4)
    before = len(load.seconds)
    server.stop(signal.SIGKILL)
    server.start()
    time.sleep(flags.FLAGS.seconds / 4)
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
    define_flags(lines=1000, clients=200, seconds=60)
    flags.DEFINE_enum("protocol", "rest", ["grpc", "rest"], "Of all clients.")
    harness.run_benchmark(main)
