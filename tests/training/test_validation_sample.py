"""A sample of the validation split, translated and scored."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from t2t_repro import hparam
from t2t_repro.data.corpus import Corpus, write_shard
from t2t_repro.decoding.translation import Translation
from t2t_repro.metrics.metric import Suite
from t2t_repro.models import building
from t2t_repro.training import validation
from t2t_repro.training.options import Task

WORDS = "birds cat dog mat park ran sat sing the today two".split()
TARGET = "the cat sat on the mat"  # of all sources
LONG = "the " * 40
BLEU = Suite(("bleu",))
EXACT = Suite(("exact_match",))
GREEDY = hparam.DecodeHParams(beam_size=1, extra_length=5)
SEARCH = dataclasses.replace(GREEDY, beam_size=21, sampling_temp=0.8)


def _sentence(number):
    return " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 2, 3))


@pytest.fixture(scope="module")
def corpus_of(vocabulary, tmp_path_factory):
    """Return a function of sources and one target that returns a Corpus."""
    folder = tmp_path_factory.mktemp("text")

    def make(name, inputs, target=TARGET):
        texts = {"inputs": inputs, "targets": [target] * len(inputs)}
        ids = {side: vocabulary.encode(lines) for side, lines in texts.items()}
        path = folder / f"{name}.arrow"
        write_shard(path, ids, texts, vocabulary.size)
        return Corpus([path])

    return make


@pytest.fixture
def echo(monkeypatch):
    """Yield translators that return the source in capital letters."""

    class Echo:
        def __init__(self, models, vocabularies, decode_hparams):
            self.decode_hparams = decode_hparams

        def require_side(self, is_given):
            assert not is_given

        def refresh_weights(self):
            self.is_refreshed = True

        def translate(self, lines, total, stop):
            assert self.is_refreshed
            for line in lines:
                yield Translation([line.upper()], [0.0])

    monkeypatch.setattr(validation.translate, "BatchTranslator", Echo)


def _sample(
    corpus, hparams, count, suite=BLEU, model=None, vocabularies=None, **others
):
    corpora = {"validation": corpus}
    task = Task(hparams, vocabularies, None, corpora, SEARCH, **others)
    return validation.ValidationSample(model, task, count, suite)


def test_bleu_is_cased(echo, corpus_of, one_layer):
    """Each line equals its reference, or differs in case."""
    inputs = [TARGET] * 5 + [LONG]
    corpus = corpus_of("echo", inputs, TARGET.upper())
    sample = _sample(corpus, one_layer, 3)
    assert sample._translator.decode_hparams == GREEDY
    scores = sample.measure()
    results = sample.results(scores)
    assert results["bleu"] == pytest.approx(100.0)
    assert results["bleu_sentences"] == 3
    signature = results["bleu_signature"]
    assert signature.startswith("nrefs:1|case:mixed|eff:no|")
    summary = sample.summary(scores)
    assert summary.startswith("bleu is measured on 3 of 5 sentences, by greedy")
    assert summary.endswith(signature)
    cased = _sample(corpus_of("cased", inputs), one_layer, 3)
    assert cased.measure()["bleu"].value < 1e-6


def test_metrics_receive_the_sources(echo, corpus_of, one_layer):
    """The translation has the words of the source."""
    trees = "(S (NP XX )NP (VP XX )VP )S"
    corpus = corpus_of("trees", ["it works"] * 3, trees)
    suite = Suite(("unbalanced_trees", "miscounted_trees"))
    sample = _sample(corpus, one_layer, 2, suite=suite)
    scores = sample.measure()
    assert {name: score.value for name, score in scores.items()} == {
        "unbalanced_trees": 0.0,
        "miscounted_trees": 0.0,
    }
    assert list(sample.results(scores)) == [
        f"{name}{suffix}"
        for name in suite.names
        for suffix in ("", "_sentences", "_signature")
    ]
    assert len(sample.summary(scores).splitlines()) == 2


def test_sentences_are_evenly_spaced_and_short(echo, corpus_of, one_layer):
    """So are those that are shown."""
    inputs = [f"{LONG if n == 4 else n}" for n in range(10)]
    corpus = corpus_of("spaced", inputs)
    for count, chosen in (
        (1, "0"),
        (3, "059"),
        (9, "012356789"),
        (99, "012356789"),
    ):
        sample = _sample(corpus, one_layer, count)
        assert sample._inputs == list(chosen)
        assert sample._references == [TARGET] * len(chosen)
    sample.measure()
    shown = sample.shown_translations()
    assert [row["source"] for row in shown] == list("02579")
    assert shown[0] == {"source": "0", "translation": "0", "reference": TARGET}


@pytest.mark.slow
def test_sample_uses_the_current_weights(
    corpus_of, one_layer, vocabulary, vocabularies, strategy_of
):
    """The model is on replicas in 16 bits; the search is traced once."""
    corpus = corpus_of("replicas", [_sentence(n) for n in range(6)])
    keras.utils.set_random_seed(1)
    with strategy_of(2).scope():
        model = building.build(one_layer, vocabulary.size, "mixed_bfloat16")
    sample = _sample(
        corpus, one_layer, 6, model=model, vocabularies=vocabularies
    )

    def rows():
        sample.measure()
        return sample.shown_translations()

    before = rows()
    assert rows() == before
    for weight in model.weights:
        weight.assign(np.asarray(weight)[::-1])
    assert rows() != before
    traced = sample._translator._search._function
    assert traced.cache_info().misses == 1


def test_loop_translates_the_sample_at_each_validation(
    runs, fake_steps, echo, corpus_of, vocabulary, one_layer, tmp_path, capsys
):
    """The settings of the scores are shown once."""
    corpora = {
        split: corpus_of(split, [_sentence(n) for n in range(count)])
        for split, count in (("train", 60), ("validation", 12))
    }
    fake_steps()
    others = type(runs)(one_layer, corpora, vocabulary.size)
    others.train(tmp_path, train_steps=4, eval_every=2, eval_bleu_sentences=4)
    entries = json.loads((tmp_path / "validation.json").read_text())
    assert [entry["bleu_sentences"] for entry in entries] == [4, 4]
    lines = capsys.readouterr().err.splitlines()
    shown = [index for index, line in enumerate(lines) if "  bleu " in line]
    assert [lines[i].partition(":")[0] for i in shown] == ["step 2", "step 4"]
    (signed,) = (i for i, line in enumerate(lines) if "nrefs:1" in line)
    assert signed == shown[0] + 1 and "4 of 12 sentences" in lines[signed]
    assert entries[0]["bleu_signature"] in lines[signed]


def test_scores_are_means_of_directions(echo, corpus_of, one_layer):
    """One line of the first direction equals its reference, and both of it."""
    inputs = [TARGET, "the", "the", TARGET, TARGET, "the"]
    corpus = corpus_of("directions", inputs, TARGET.upper())
    directions = {"en-de": 3, "de-en": 2, "en-fr": 1}
    sample = _sample(corpus, one_layer, 6, EXACT, directions=directions)
    results = sample.results(sample.measure())
    by_direction = {"en-de": 100 / 3, "de-en": 100.0, "en-fr": 0.0}
    assert results["exact_match_directions"] == pytest.approx(by_direction)
    assert results["exact_match"] == pytest.approx(400 / 9)
    assert results["exact_match_sentences"] == 6
    assert results["exact_match_signature"].endswith("|mean:en-de,de-en,en-fr")
