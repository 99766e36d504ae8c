"""Small corpora, generated from a few words."""

import pytest

from t2t_repro.data import engines, generate


@pytest.fixture
def generate_corpus(monkeypatch):
    """A function that generates a corpus of "train" and "test"."""
    monkeypatch.setattr(engines, "CHUNK_PAIRS", 3)

    def run(folder, train, test=(("an", "na"),), workers=1, **settings):
        splits = {
            # A function reads other pairs at each call.
            "train": train if callable(train) else lambda: iter(train),
            "test": lambda: iter(test),
        }
        engine = settings.pop("engine", engines.ThreadEngine(workers))
        shard_pairs = settings.pop("shard_pairs", generate.SHARD_PAIRS)
        spec = generate.Spec(**{"vocab_size": 300, "max_length": 30} | settings)
        return generate.generate(
            folder, splits, spec, {"problem": "toy"}, engine, shard_pairs
        )

    return run
