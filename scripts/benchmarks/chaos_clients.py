"""Honest clients: the process that measures a server under attack.

Each sends one sentence at a time and pauses, so that the server is not busy by
them alone. A server that asks for a retry (503) gets it; a connection that is
cut is counted as lost.
"""

import concurrent.futures
import json
import pathlib
import random
import time

import numpy as np

from scripts.benchmarks import harness
from t2t_repro import errors
from t2t_repro.serving import client

_TIMEOUT = 60.0  # seconds for a request


def measure(settings):
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


if __name__ == "__main__":
    harness.run_measurement({"clients": measure})
