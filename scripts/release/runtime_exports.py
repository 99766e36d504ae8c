"""Small exports of every kind, which check_runtimes loads in older runtimes.

Those of the run in tests/fixtures translate number words. The others have
random weights: the models and vocabularies of tests/toys, variants of the
Transformer, and an ensemble.
"""

import dataclasses
import pathlib
from typing import NamedTuple

import keras

from t2t_repro import hparam, registry
from t2t_repro.models import building
from t2t_repro.runs.run import open_run
from t2t_repro.serving import exporting, saved_model
from t2t_repro.text.sentence_piece import Bpe, Unigram
from t2t_repro.text.vocabulary_pair import Vocabularies

TESTS = pathlib.Path(__file__).parents[2] / "tests"
SOURCES = ["two birds sing", "the cat sat on the mat", "a dog ran today"] * 5
TARGETS = ["ZWEI VÖGEL", "DIE KATZE SAẞ", "QUAKT"] * 5
# Short: models with random weights rarely end an output.
_LENGTHS = {"extra_length": 5, "max_input_length": 100}
_SMALL = {
    "hidden_size": 16,
    "filter_size": 32,
    "num_heads": 2,
    "num_hidden_layers": 1,
    "max_length": 128,
}


class Random(NamedTuple):
    """Models with random weights."""

    hparams_set: str
    vocabularies: str  # a key of _vocabularies()
    hparams: dict = {}
    models: int = 1


# Exports of the run: decode hparams, and the dtype of the weights.
OF_RUN = {
    "beam_search": ({}, "float32"),
    "float16": ({}, "float16"),
    "bfloat16": ({}, "bfloat16"),
    "greedy": ({"beam_size": 1, "raw_scores": True}, "float32"),
    "rules": (
        {"min_length": 9, "no_repeat_ngram_size": 2, "coverage_penalty": 0.2},
        "float32",
    ),
    "sampling": (
        {"sampling_temp": 1.0, "sampling_keep_top_p": 0.9},
        "float32",
    ),
    "sampling_top_k": (
        {"sampling_temp": 1.0, "sampling_keep_top_k": 9},
        "float32",
    ),
}
OF_RANDOM_WEIGHTS = {
    "ensemble": Random("tiny", "separate", models=2),
    "relative_positions": Random("transformer_relative", "shared"),
    "learned_positions": Random(
        "table3_e_learned_positions",
        "shared",
        {"restricted_attention": 3, "ffn_activation": "gelu"},
    ),
    "additive_attention": Random("base_additive", "separate"),
    "toy_gru": Random("toy_gru", "characters"),
    "toy_convolution": Random("toy_convolution", "shared"),
}


def write(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write all exports; return {name: folder of the SavedModel}."""
    registry.load_definitions(TESTS / "toys")
    run = open_run(TESTS / "fixtures" / "run" / "run")
    exports = {}
    for name, (search, dtype) in OF_RUN.items():
        exports[name] = exporting.write(
            run,
            folder / name,
            decode_hparams=hparam.DecodeHParams(**_LENGTHS | search),
            weights_dtype=dtype,
        )
    vocabularies = _vocabularies()
    for name, kind in OF_RANDOM_WEIGHTS.items():
        pair = vocabularies[kind.vocabularies]
        exports[name] = saved_model.export(
            [_build(kind, pair, seed) for seed in range(kind.models)],
            pair,
            hparam.DecodeHParams(beam_size=3, **_LENGTHS),
            folder / name,
            card={},
        )
    return exports


def _vocabularies():
    """Return {name: vocabularies}."""
    characters = registry.vocabularies["characters"].value
    shared = Bpe.learn(SOURCES + TARGETS, 320)
    return {
        "shared": Vocabularies.shared(shared),
        "separate": Vocabularies(shared, Unigram.learn(TARGETS, 277)),
        "characters": Vocabularies(
            characters.learn(SOURCES, 90), characters.learn(TARGETS, 90)
        ),
    }


def _build(kind, vocabularies, seed):
    """Build a small model with random weights."""
    hparams = registry.build_hparams(kind.hparams_set)
    names = {field.name for field in dataclasses.fields(hparams)}
    settings = {name: _SMALL[name] for name in names & _SMALL.keys()}
    if not vocabularies.is_shared and "num_heads" in names:
        settings["shared_embedding_and_softmax_weights"] = False
    hparams = dataclasses.replace(hparams, **settings | kind.hparams)
    keras.utils.set_random_seed(seed)
    return building.build(hparams, **vocabularies.sizes)
