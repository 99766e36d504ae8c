"""Reranking by a model of the reverse direction: the noisy channel."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t2t_repro import errors
from t2t_repro.decoding.reranking import Reranker
from t2t_repro.decoding.translation import Translation
from t2t_repro.hparam import DecodeHParams
from t2t_repro.runs import checkpoint_files
from t2t_repro.runs.run import Run
from t2t_repro.text import languages, long_lines

# Subwords of a line, which may have many sentences: it is scored as a whole.
_WHOLE = 1_000_000


class NoisyChannel(Reranker):
    """Log-probability plus weighted ones of a reverse run, and of words.

    The score of a translation y of x is log p(y|x) + weight log p(x|y) +
    length words(y), as in Ng et al. 2019 (arXiv 1907.06616) without a language
    model. The text is what both models read: the reverse run has the same
    problem with its languages swapped, or one that normalizes alike.
    """

    needs_log_probs = True

    def __init__(
        self, run: str, weight: float = 1.0, length: float = 0.0
    ) -> None:
        """Open the folder of the reverse run, without its weights.

        Raises:
            UserError: there is no run, or its problem has several directions.
        """
        self._run, self._weight, self._length = Run.open(run), weight, length
        if self._run.problem.target_languages:
            raise errors.UserError(
                f"The problem of the run {run} is for several directions, of "
                "which the noisy channel cannot choose one. Name a run whose "
                "problem has one direction."
            )
        self._paths = self._run.checkpoints()

    def require_direction(self, source: str, target: str) -> None:
        problem, given = self._run.problem, (source, target)
        own = problem.target_language, problem.source_language
        if any(own) and (
            [*map(languages.two_letters, own)]
            != [*map(languages.two_letters, given)]
        ):
            raise errors.UserError(
                f"The run {self._run.output_dir} of the noisy channel scores "
                f"translations from {own[0]} to {own[1]} alone; got "
                f"{'-'.join(filter(None, given)) or 'several directions'}. "
                "Name a run of the reverse direction, or choose one of several "
                "directions."
            )

    @functools.cached_property
    def _translator(self):
        from t2t_repro.decoding.translate import BatchTranslator

        return BatchTranslator(
            self._run.models(self._paths),
            self._run.vocabularies,
            DecodeHParams(max_input_length=_WHOLE),
            num_shards=1,
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"checkpoints_sha256": checkpoint_files.checksums(self._paths)}

    def score(self, source: str, candidates: Translation) -> Iterable[float]:
        (scores,) = self.score_all([source], [candidates])
        return scores

    def score_all(
        self, sources: Sequence[str], candidates: Sequence[Translation]
    ) -> Iterable[Iterable[float]]:
        pairs = list(
            dict.fromkeys(
                (text, source)
                for source, found in zip(sources, candidates, strict=True)
                for text in found.texts
            )
        )
        totals = (score.total for score in self._translator.score(pairs))
        backward = dict(zip(pairs, totals, strict=True))
        return [
            [
                log_prob
                + self._weight * backward[text, source]
                + self._length * len(long_lines.words(text))
                for text, log_prob in zip(
                    found.texts, found.scores, strict=True
                )
            ]
            for source, found in zip(sources, candidates, strict=True)
        ]
