"""Batch plans of given settings; all other settings are those of `tiny`."""

import dataclasses

import numpy as np

from t2t_repro import registry
from t2t_repro.data import batch_plan


def draw_lengths(count, seed=0):
    """Draw lengths as of sentences, similar on both sides."""
    random = np.random.default_rng(seed)
    inputs = random.lognormal(3.1, 0.6, count)
    targets = inputs * random.lognormal(0, 0.15, count)
    return {
        "inputs": inputs.astype(int) + 1,
        "targets": targets.astype(int) + 1,
    }


def settings(batching, batch_tokens, max_length, **others):
    """Return HParams that keep the pairs of a bucket, and rows of one length.

    `others` may change that.
    """
    others = {"reshuffle_buckets": False, "proportional_rows": False} | others
    return dataclasses.replace(
        registry.build_hparams("tiny"),
        batching=batching,
        batch_tokens=batch_tokens,
        max_length=max_length,
        **others,
    )


def one_pair_a_row(pairs, length=32):
    """Plan a batch of pairs in rows of their own, of one length."""
    rows = np.arange(len(pairs))
    lengths = length, length
    return batch_plan.PlannedBatch(pairs, rows, len(pairs), lengths, length)


def build(lengths, batching, batch_tokens, max_length, seed=0, **others):
    """Build a plan with these settings()."""
    hparams = settings(batching, batch_tokens, max_length, **others)
    return batch_plan.build(lengths, hparams, seed)
