"""Process of bench_engine that generates a corpus, and prints one object."""

import pathlib
import time

from scripts.benchmarks import harness
from t2t_repro.data import engines, generate
from t2t_repro.data.filtering import PairFilters
from t2t_repro.text import parallel_files

FILTERS = "max_words:character_ratio=9:letters:different:unique"


def measure_generate(settings):
    """Return the speed of filtering and encoding, and the peak memory."""
    paths = [pathlib.Path(path) for path in settings["text"]]
    spec = generate.Spec(
        0,
        [pathlib.Path(settings["vocabulary"])],
        filters=PairFilters(FILTERS, ("en", "de")),
    )
    start, cpu = time.perf_counter(), time.process_time()
    generate.generate(
        pathlib.Path(settings["folder"]),
        {"train": lambda: parallel_files.read_pairs(*paths)},
        spec,
        {},
        engines.create(
            settings["engine"], engines.ThreadEngine(settings["num_workers"])
        ),
    )
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    num_pairs = settings["num_pairs"]
    return {
        "pairs/s": num_pairs / seconds,
        "pairs/s of CPU": num_pairs / cpu,
        "MB": harness.peak_megabytes(),
    }


if __name__ == "__main__":
    harness.run_measurement({"generate": measure_generate})
