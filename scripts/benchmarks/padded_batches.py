"""Batches of pairs of similar lengths, for models without packing."""

from typing import Any, NamedTuple

import numpy as np

PAD, BOS = 0, 2


class Batch(NamedTuple):
    """Padded ids [B, L] or [B, T] int64, as arrays or a library's tensors."""

    inputs: Any
    shifted: Any  # targets after BOS, without EOS
    targets: Any


def make(path: str, batch_tokens: int) -> list[Batch]:
    """Return the pairs of a file in batches, in random order.

    Pairs are sorted by length and cut into batches of the requested number of
    target tokens. This gives the least padding that a model without packing
    can have.

    Args:
        path: .npz with inputs and targets as flat ids, and their lengths.
        batch_tokens: target tokens of a batch.
    """
    batches, batch = [], []
    pairs = sorted(_read(path), key=lambda pair: (len(pair[1]), len(pair[0])))
    for pair in pairs:
        batch.append(pair)
        if sum(len(targets) for _, targets in batch) >= batch_tokens:
            batches.append(batch)
            batch = []
    np.random.default_rng(0).shuffle(batches)
    return [
        Batch(
            _pad([inputs for inputs, _ in batch]),
            _pad([np.append(BOS, targets[:-1]) for _, targets in batch]),
            _pad([targets for _, targets in batch]),
        )
        for batch in batches
    ]


def num_tokens(batch: Batch) -> int:
    """Return the number of tokens of both sides without padding."""
    return int((batch.inputs != PAD).sum() + (batch.targets != PAD).sum())


def _read(path):
    """Return a list of pairs of arrays of ids."""
    arrays = np.load(path)
    sides = [
        np.split(arrays[side], np.cumsum(arrays[f"{side}_lengths"])[:-1])
        for side in ("inputs", "targets")
    ]
    return list(zip(*sides, strict=True))


def _pad(sentences):
    padded = np.full((len(sentences), max(map(len, sentences))), PAD, np.int64)
    for row, ids in zip(padded, sentences, strict=True):
        row[: len(ids)] = ids
    return padded
