"""What is measured every so many steps: loss, and BLEU of a sample."""

import dataclasses

import numpy as np

from t2t_repro.data import plan as plans
from t2t_repro.decoding import translate
from t2t_repro.reports import bleu
from t2t_repro.training.history import History


class Sample:
    """Sentences of a corpus, evenly spaced, and what a model makes of them."""

    def __init__(
        self, model, subwords, corpus, hparams, sentences, decode_hparams
    ):
        """Chooses them.

        Args:
            model: it is translated with the weights that it has then.
            subwords: Subwords.
            corpus: data.corpus.Corpus, stored with its text.
            hparams: HParams; pairs longer than max_length are left out, as
                they are from the loss.
            sentences: how many, or as many as there are.
            decode_hparams: of the search, which is greedy all the same: beams
                cost as much time again each, and tell no better whether
                translations get better.
        """
        usable = plans.usable_pairs(corpus.lengths, hparams.max_length)
        count = min(sentences, len(usable))
        places = np.linspace(0, len(usable) - 1, count).round().astype(int)
        chosen = usable[places]
        inputs, targets = corpus.text("inputs"), corpus.text("targets")
        self._inputs = [inputs[i] for i in chosen]
        self._references = [targets[i] for i in chosen]
        self._of = len(corpus)
        # One for all validations: the search is traced once.
        greedy = dataclasses.replace(decode_hparams, beam_size=1)
        self._translator = translate.Translator([model], subwords, greedy)

    def figures(self) -> dict:
        """BLEU, and what it is of: a score carries its settings."""
        self._translator.take_weights()
        outputs = self._translator.translate(self._inputs)
        texts = [translation.texts[0] for translation in outputs]
        score, signature = bleu.corpus_bleu(texts, self._references)
        return {
            "bleu": score,
            "bleu_sentences": len(texts),
            "bleu_signature": signature,
        }

    def describe(self, figures: dict) -> str:
        """What figures()'s BLEU is, for people."""
        return (
            f"bleu is of {figures['bleu_sentences']:,} of {self._of:,} "
            "sentences, by greedy search, of this step's weights: "
            f"{figures['bleu_signature']}"
        )


class Evaluation:
    """Measures, shows and remembers how a training does on another split."""

    def __init__(self, validation, sample, output_dir, first_step):
        """Takes up the history of the run.

        Args:
            validation: Validation.
            sample: Sample, or None: no BLEU.
            output_dir: of the run.
            first_step: steps that are done already.
        """
        self._validation, self._sample = validation, sample
        self._history = History(output_dir, first_step)
        self._described = False

    def run(self, step, show):
        """Measures after `step`, and tells `show`, a Progress."""
        show.check()
        with show.pause():
            figures = self._validation.figures()
            if not self._sample:
                show.validation_done(step, figures)
            else:
                found = self._sample.figures()
                show.validation_done(step, figures | {"bleu": found["bleu"]})
                if not self._described:
                    show.say(self._sample.describe(found))
                self._described = True
                figures |= found
            self._history.add(step, figures)

    def no_longer_improves(self, patience, show) -> bool:
        """Whether the best of all is at least `patience` old; says so."""
        if not self._history.stopped_improving(patience):
            return False
        show.say(
            f"The validation loss has not improved for {patience} evaluations."
        )
        return True
