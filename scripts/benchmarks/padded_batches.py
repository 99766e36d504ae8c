"""Batches of pairs of similar lengths, for models without packing."""

import time
from collections.abc import Callable, Mapping, Sequence
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


def time_steps(
    step: Callable[[Batch], object],
    batches: Sequence[Batch],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the seconds of each step, and the tokens of all without padding.

    Args:
        step: function that trains on a batch, and returns when it is over.
        batches: batches, which are repeated if there are not enough.
        settings: with "steps" to time after those of "warm_up".
    """
    seconds, tokens = [], 0
    for number in range(settings["warm_up"] + settings["steps"]):
        batch = batches[number % len(batches)]
        start = time.perf_counter()
        step(batch)
        if number >= settings["warm_up"]:
            seconds.append(time.perf_counter() - start)
            sides = batch.inputs, batch.targets
            tokens += sum(int((side != PAD).sum()) for side in sides)
    return {"seconds": seconds, "tokens": tokens}


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
