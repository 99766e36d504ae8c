"""Reranking: minimum Bayes risk by brute force, and what translators return."""

import types

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf

from t2t_repro import errors, hparam, problem
from t2t_repro.decoding import reranking, score, translate
from t2t_repro.decoding.reranking import Reranker
from t2t_repro.decoding.translation import Translation
from t2t_repro.evaluation import noisy_channel
from t2t_repro.runs.run import Run
from t2t_repro.serving import exporting

CANDIDATES = Translation(
    [
        "the cat sat on the mat",
        "a cat sat on the mat today",
        "the dog ran",
        "a cat sat on the mat today",
    ],
    [-1.0, -2.0, -3.0, -4.0],
)
LINES = ["two birds sing", "", "the cat sat on the mat"]


@pytest.mark.parametrize(
    ("settings", "utility", "sign"),
    [
        ("mbr", sacrebleu.sentence_chrf, 1),
        ("mbr:metric=bleu", sacrebleu.sentence_bleu, 1),
        ("mbr:metric=ter", sacrebleu.sentence_ter, -1),  # errors
    ],
)
def test_minimum_bayes_risk_is_the_mean_over_all_candidates(
    settings, utility, sign
):
    """sacreBLEU's own functions of sentences, of every pair."""
    texts = CANDIDATES.texts
    means = [
        sign * np.mean([utility(a, [b]).score for b in texts]) for a in texts
    ]
    order = sorted(range(len(texts)), key=lambda k: -means[k])
    reranker = reranking.build(hparam.DecodeHParams(rerank=settings))
    (found,) = reranker.rerank([""], [CANDIDATES])
    assert found.texts == [texts[k] for k in order]
    assert found.scores == pytest.approx([means[k] for k in order])
    different = Translation([*"abcdefghijklmno"], [0.0] * 15)
    (found,) = reranker.rerank([""], [different])
    assert found.texts == different.texts  # of equal means


class Longest(Reranker):
    """Most characters."""

    needs_log_probs = True

    def score(self, source, candidates):
        self.seen = source, candidates
        return [len(text) for text in candidates.texts]


@pytest.fixture
def longest(registries):
    registries.rerankers.register("longest")(Longest)


@pytest.mark.parametrize(
    "sampling_temp", [0.0, pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_translators_rerank_all_outputs_of_a_line(
    longest, translator_of, sampling_temp
):
    settings = {"sampling_temp": sampling_temp, "beam_size": 4}
    beams = list(translator_of(**settings, return_beams=True).translate(LINES))
    every = translator_of(**settings, return_beams=True, rerank="longest")
    one = translator_of(**settings, rerank="longest")
    found = list(every.translate(LINES))
    for line, before, after in zip(LINES, beams, found, strict=True):
        if not line:
            assert after == before
            continue
        assert after.texts == sorted(before.texts, key=len, reverse=True)
        assert after.scores == [len(text) for text in after.texts]
    best = list(one.translate(LINES))
    assert best == [translation.best(1) for translation in found]
    source, candidates = every.reranker.seen
    raw = translator_of(**settings, return_beams=True, raw_scores=True)
    assert candidates == list(raw.translate(LINES))[LINES.index(source)]


def test_reranker_reads_sentences_as_the_model_does(
    longest, model, vocabularies
):
    hparams = hparam.DecodeHParams(beam_size=2, rerank="longest")
    translator = translate.BatchTranslator(
        [model], vocabularies, hparams, split=lambda line: line.lower().split()
    )
    list(translator.translate(["Two  BIRDS"]))
    assert translator.reranker.seen[0] == "two birds"


def test_noisy_channel_adds_scores_of_a_reverse_model_and_words(
    translator_of, vocabularies, model, monkeypatch
):
    reverse = types.SimpleNamespace(
        problem=problem.scoring_problem(("de", "en")),
        output_dir="rev",
        checkpoints=lambda: [],
        models=lambda paths: [model],
        vocabularies=vocabularies,
    )
    opened = types.SimpleNamespace(open={"rev": reverse}.get)
    monkeypatch.setattr(noisy_channel, "Run", opened)

    def reverse_log_prob(source, text):
        ids, targets = (
            score.pad_rows(vocabulary.encode([line]))
            for vocabulary, line in zip(
                vocabularies, (text, source), strict=True
            )
        )
        return tf.reduce_sum(score.subword_log_probs([model], ids, targets))

    settings = {"return_beams": True, "beam_size": 3}
    beams = translator_of(**settings, raw_scores=True).translate(LINES)
    text = "channel:run=rev:weight=0.5:length=20"
    found = translator_of(**settings, rerank=text).translate(LINES)
    for line, before, after in zip(LINES, beams, found, strict=True):
        expected = {
            text: log_prob
            + 0.5 * reverse_log_prob(line, text).numpy()
            + 20 * len(text.split())
            for text, log_prob in zip(before.texts, before.scores, strict=True)
            if line
        }
        if line:
            ranked = sorted(expected, key=expected.__getitem__, reverse=True)
            assert after.texts == ranked
            scores = [expected[text] for text in ranked]
            assert after.scores == pytest.approx(scores, rel=1e-5)
    channel = reranking.build(hparam.DecodeHParams(4, rerank=text))
    channel.require_direction("en_US", "deu")
    with pytest.raises(
        errors.UserError, match="from en to de alone; got fr-de"
    ):
        channel.require_direction("fr", "de")


def test_attention_is_that_of_the_reranked_translation(longest, translator_of):
    translator = translator_of(beam_size=4, rerank="longest")
    (expected,) = translator.translate(LINES[:1])
    assert translator.attention(LINES[0]).outputs == expected.text


@pytest.mark.parametrize(
    "values", [[1.0], [1.0, np.nan, 0.0, 0.0], None, ["a", "b", "c", "d"]]
)
def test_scores_of_another_number_or_none_are_refused(values):
    class Wrong(Reranker):
        def score(self, source, candidates):
            return values

    with pytest.raises(errors.UserError, match="Wrong must return a number"):
        Wrong().rerank([""], [CANDIDATES])


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("mrb", "Unknown reranker 'mrb'. Did you mean 'mbr'"),
        ("mbr:metric=chrff", "Unknown metric 'chrff'"),
        ("mbr:metric=length_ratio", "cannot rerank"),
        ("mbr:metric=bits_per_byte", "cannot compare any two"),
        ("mbr:metric=bracketing_f1", "cannot rerank"),
        ("mbr:metric=aer", "cannot compare any two"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, complaint):
    with pytest.raises(errors.UserError, match=complaint):
        reranking.build(hparam.DecodeHParams(rerank=settings))


def test_alignments_and_exports_are_refused(tmp_path):
    hparams = hparam.DecodeHParams(rerank="mbr")
    with pytest.raises(errors.UserError, match="alignments.*got rerank=mbr"):
        reranking.build(hparams, is_aligned=True)
    run = Run(tmp_path, {}, problem.scoring_problem(("en", "de")), None)
    with pytest.raises(errors.UserError, match="export.*got rerank=mbr"):
        exporting.write(run, decode_hparams=hparams)


def test_one_candidate_cannot_be_reranked():
    with pytest.raises(errors.UserError, match="empty where beam_size is 1"):
        hparam.DecodeHParams(beam_size=1, rerank="mbr")
