"""Small corpora, generated from lines of a few words, and a run on one."""

import random

import pytest

from t2t_repro import registry
from t2t_repro.data import corpus, engines, generate
from t2t_repro.data.settings import CorpusSettings
from t2t_repro.problem import build_problem
from t2t_repro.runs import run_json


def draw_pairs(count, seed=0):
    """Draw lines of short words, and their reversals."""
    choices = random.Random(seed)
    words = ["an", "bed", "can", "dan", "ebb", "fad"]
    sizes = choices.choices(range(2, 7), k=count)
    lines = [" ".join(choices.choices(words, k=size)) for size in sizes]
    return [(line, line[::-1]) for line in lines]


def write_ids(path, pairs, vocab_size, texts=()):
    """Write a shard of pairs of ids, and perhaps of text; return its path."""

    def sides(pairs):
        return {
            side: [pair[i] for pair in pairs]
            for i, side in enumerate(corpus.SIDES)
        }

    texts = sides(texts) if texts else {}
    corpus.write_shard(path, sides(pairs), texts, vocab_size)
    return path


def generate_corpus(
    folder,
    train,
    test=(("an", "na"),),
    engine=None,
    shard_pairs=generate.SHARD_PAIRS,
    chunk_pairs=3,
    **settings,
):
    """Generate a corpus of pairs and return its manifest.

    `train` may be a function that reads other pairs at each call. `settings`
    are fields of CorpusSettings.
    """
    splits = {
        "train": train if callable(train) else lambda: iter(train),
        "test": lambda: iter(test),
    }
    settings = {"vocab_size": 300, "max_length": 30} | settings
    engine = engine or engines.ThreadEngine(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "CHUNK_PAIRS", chunk_pairs)
        return generate.generate(
            folder,
            splits,
            CorpusSettings(**settings),
            {"problem": "toy"},
            engine,
            shard_pairs,
        )


def start_run(folder, data, vocabularies):
    """Begin a run on the data of a folder, as the trainer does."""
    problem = build_problem("number_words_ende")
    hparams = registry.build_hparams("tiny")
    settings = run_json.settings(
        problem, "tiny", hparams, 1, data, vocabularies, 8
    )
    run_json.start(folder, settings, vocabularies, "one CPU")


def read_files(folder):
    """Return {name: bytes} of the files in a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
