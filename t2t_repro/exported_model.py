"""Exported models from Python: translate, score and show attention."""

import pathlib
from collections.abc import Iterable

from t2t_repro import errors
from t2t_repro.decoding.attention_trace import AttentionTrace
from t2t_repro.decoding.translation import Translation
from t2t_repro.models.seq2seq import AttentionWeights
from t2t_repro.serving import limits, local_client
from t2t_repro.text import parallel_files


class ExportedModel:
    """Exported model, whose search has the settings of its export."""

    def __init__(self, folder: pathlib.Path):
        """Load a version, or the newest version of an export folder."""
        self._client = local_client.LocalClient(folder)

    def translate(
        self,
        lines: Iterable[str],
        n_best: int = 1,
        target_language: str = "",
        distinct: bool = False,
    ) -> list[Translation]:
        """Translate lines.

        Args:
            lines: one sentence each. Longer ones than max_input_length are
                cut, as TensorFlow Serving cuts them.
            n_best: translations of each line, at most the export's beams.
            target_language: of a many-to-many model, as for Model.
            distinct: whether to drop, before the n best are chosen, beams with
                the text of a better one.

        Returns:
            The translations of each line, best first.
        """
        lines = require_lines(lines)
        signature = "n_best" if n_best > 1 else "serving_default"
        lines = self._client.add_tags(lines, target_language)
        translations = []
        for outputs in self._run(signature, lines):
            # [B], or [B, W] of n_best.
            texts = outputs["outputs"].reshape(len(outputs["outputs"]), -1)
            scores = outputs["scores"].reshape(texts.shape)
            require_beams(n_best, texts.shape[1])
            translations += [
                Translation.of_beams([text.decode() for text in row], beams)
                for row, beams in zip(texts, scores.tolist(), strict=True)
            ]
        if distinct:
            translations = [found.distinct() for found in translations]
        return [found.best(n_best) for found in translations]

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        target_language: str = "",
    ) -> list[float]:
        """Return the log-probability of a given translation of each source."""
        sources, targets = require_pairs(sources, targets)
        sources = self._client.add_tags(sources, target_language)
        return [
            score
            for outputs in self._run("score", sources, targets)
            for score in outputs["scores"].tolist()
        ]

    def attention(self, line: str, target_language: str = "") -> AttentionTrace:
        """Translate a line, and return the cross-attention weights.

        They are the mean of the heads, as one head: [layers, 1, T, L].
        """
        lines = require_lines([line])
        (line,) = self._client.add_tags(lines, target_language)
        (outputs,) = self._run("attention", [line])
        source, target = (
            [piece.decode() for piece in outputs[f"{side}_pieces"][0]]
            for side in ("source", "target")
        )
        weights = AttentionWeights(
            encoder=None, decoder=None, cross=outputs["weights"][0][:, None]
        )
        (text,) = outputs["outputs"]
        return AttentionTrace(line, text.decode(), source, target, weights)

    def _run(self, signature, *columns):
        """Yield the outputs of batches of rows."""
        rows = list(zip(*columns, strict=True))
        texts = [" ".join(row) for row in rows]
        done = 0
        for batch in limits.split(texts, limits.Limits()):
            part = rows[done : done + len(batch)]
            yield self._client.run(signature, *zip(*part, strict=True))
            done += len(batch)


def require_beams(n_best: int, beam_size: int) -> None:
    """Require that a search has `n_best` outputs."""
    if not 1 <= n_best <= beam_size:
        raise errors.UserError(
            f"n_best must be from 1 to beam_size={beam_size}; got {n_best}. "
            "Say beam_size=…, too, or export with more beams."
        )


def require_lines(lines: Iterable[str]) -> list[str]:
    """Return lines as a list; refuse one string, and what is no string."""
    if isinstance(lines, str):
        raise errors.UserError(
            f"Expected a list of lines; got the string {lines[:80]!r}. Write "
            "it as a list of one line."
        )
    found = list(lines)
    parallel_files.require_text(found)
    return found


def require_pairs(
    sources: Iterable[str], targets: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return sources and targets as lists; refuse other numbers of targets."""
    pairs = require_lines(sources), require_lines(targets)
    counts = tuple(map(len, pairs))
    if counts[0] != counts[1]:
        raise errors.UserError(
            f"Each source needs a target; got {counts[0]:,} sources and "
            f"{counts[1]:,} targets."
        )
    return pairs
