"""Formats in which decoder writes translations."""

import json
from collections.abc import Callable

from t2t_repro.decoding.translation import Translation

_DIGITS = 6  # after the point of a score


def text(number: int, source: str, translation: Translation) -> str:
    """Return all outputs of a sentence on one line, as in tensor2tensor."""
    return "\t".join(translation.texts)


def tsv(number: int, source: str, translation: Translation) -> str:
    """Return a line for each output: sentence, rank, score, text."""
    pairs = zip(translation.texts, translation.scores, strict=True)
    return "\n".join(
        f"{number}\t{rank}\t{score:.{_DIGITS}f}\t{output}"
        for rank, (output, score) in enumerate(pairs, 1)
    )


def jsonl(number: int, source: str, translation: Translation) -> str:
    """Return a JSON object of the sentence and its outputs."""
    pairs = zip(translation.texts, translation.scores, strict=True)
    outputs = [
        {"text": output, "score": round(score, _DIGITS)}
        for output, score in pairs
    ]
    values = {"sentence": number, "source": source, "translations": outputs}
    return json.dumps(values, ensure_ascii=False)


# Functions of the number of a sentence, from 1, the line and its translation.
FORMATS: dict[str, Callable[[int, str, Translation], str]] = {
    "text": text,
    "tsv": tsv,
    "jsonl": jsonl,
}
