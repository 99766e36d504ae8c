"""A sample of the validation split, translated and scored."""

import dataclasses

import numpy as np

from t2t_repro.data import batch_plan
from t2t_repro.decoding import translate
from t2t_repro.metrics import scores


class Sample:
    """Sentences of a corpus, evenly spaced, and what a model makes of them."""

    def __init__(
        self,
        model,
        vocabularies,
        corpus,
        hparams,
        sentences,
        decode_hparams,
        suite,
    ):
        """Choose them.

        Args:
            model: it is translated with the weights that it has then.
            vocabularies: data.vocabulary_pair.Vocabularies.
            corpus: data.corpus.Corpus, stored with its text.
            hparams: HParams; pairs longer than max_length are left out, as
                they are from the loss.
            sentences: how many, or as many as there are.
            decode_hparams: of the search, which is greedy all the same: beams
                cost as much time again each, and tell no better whether
                translations get better.
            suite: metrics.suite.Suite: the metrics that score translations.
        """
        usable = batch_plan.usable_pairs(corpus.lengths, hparams.max_length)
        count = min(sentences, len(usable))
        places = np.linspace(0, len(usable) - 1, count).round().astype(int)
        chosen = usable[places]
        inputs, targets = corpus.text("inputs"), corpus.text("targets")
        self._inputs = [inputs[i] for i in chosen]
        self._references = [targets[i] for i in chosen]
        self._of, self._metrics = len(corpus), suite.build()
        # One for all validations: the search is traced once.
        greedy = dataclasses.replace(decode_hparams, beam_size=1)
        self._translator = translate.Translator([model], vocabularies, greedy)

    def measure(self) -> dict[str, scores.Score]:
        """Translate with the weights of the moment, and score."""
        self._translator.refresh_weights()
        outputs = self._translator.translate(self._inputs)
        texts = [translation.texts[0] for translation in outputs]
        statistics = scores.count(
            self._metrics, texts, [self._references], self._inputs
        )
        return scores.aggregate(self._metrics, statistics)

    def figures(self, found: dict[str, scores.Score]) -> dict:
        """Return scores and what each is of: a score carries its settings."""
        return {
            key: value
            for name, score in found.items()
            for key, value in (
                (name, score.value),
                (f"{name}_sentences", len(self._inputs)),
                (f"{name}_signature", score.signature),
            )
        }

    def describe(self, found: dict[str, scores.Score]) -> str:
        """Return what each score is of, a human-readable line each."""
        return "\n".join(
            f"{name} is of {len(self._inputs):,} of {self._of:,} sentences, by "
            f"greedy search, of this step's weights: {score.signature}"
            for name, score in found.items()
        )
