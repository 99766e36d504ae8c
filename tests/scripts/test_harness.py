"""Benchmark harness: tokens of a batch."""

import numpy as np

from scripts.benchmarks import harness
from t2t_repro.data import batch_plan, corpus


def test_num_tokens_counts_both_sides_without_padding(tmp_path):
    ids = {
        "inputs": [[5, 1], [6, 1], [3, 1]],
        "targets": [[7, 8, 1], [9, 1], [1]],
    }
    corpus.write_shard(tmp_path / "a.arrow", ids, {}, 100)
    batch = batch_plan.PlannedBatch(
        np.array([0, 1]), np.array([0, 0]), 2, (6, 6)
    )
    pairs = corpus.Corpus([tmp_path / "a.arrow"])
    assert harness.num_tokens(pairs, batch) == 9
