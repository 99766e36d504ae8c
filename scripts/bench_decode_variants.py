"""Ways to search that must find the same; for bench_decode_run.py and tests."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro.decoding import beam_search, decode_loop, rules, score, search
from t2t_repro.text.vocabulary import PAD

TIE = 1e-5  # nearer scores are told apart by rounding alone


class Comparison(NamedTuple):
    """Of the best outputs of two searches, in numbers of sentences."""

    sentences: int
    different: int
    ties: int  # of those that are different


def compare(found, expected) -> Comparison:
    """Hypotheses of the same sentences; their T may not be the same."""
    most = max(found.ids.shape[-1], expected.ids.shape[-1])
    one, other = (
        np.pad(x.ids[:, 0], ((0, 0), (0, most - x.ids.shape[-1])))
        for x in (found, expected)
    )
    different = (one != other).any(-1)
    apart = np.abs(found.scores[:, 0] - expected.scores[:, 0])
    return Comparison(
        len(different),
        int(different.sum()),
        int((different & (apart < TIE)).sum()),
    )


def variants(models, rows, hparams, xla=True):
    """Yields the name and the Hypotheses of each way.

    Args:
        models: of search.search.
        rows: [B, L] int32, ids with EOS, PAD after.
        hparams: DecodeHParams.
        xla: also compiled, which takes long.
    """

    def find(rows, **settings):
        return search.search(models, tf.constant(rows), hparams, **settings)

    yield "one block of steps", find(rows, block=None)
    yield "blocks of 4 steps", find(rows, block=4)
    if xla:
        compiled = tf.function(lambda: find(rows, block=None), jit_compile=True)
        yield "XLA", compiled()
    yield "3 shards", find(rows, num_shards=3)
    yield "more padding", find(np.pad(rows, ((0, 0), (0, 5))))
    order = np.random.default_rng(1).permutation(len(rows))
    mixed, back = find(rows[order]), np.argsort(order)
    yield (
        "another order",
        decode_loop.Hypotheses(*(tf.gather(x, back) for x in mixed)),
    )
    cut = len(rows) // 3
    parts = zip(find(rows[:cut]), find(rows[cut:]), strict=True)
    yield (
        "other batches",
        decode_loop.Hypotheses(*(tf.concat(x, 0) for x in parts)),
    )


def without_cache(model, rows, hparams) -> decode_loop.Hypotheses:
    """Return what beam search finds that decodes all positions at each step."""
    beams = hparams.beam_size
    room = rows.shape[1] + hparams.extra_length

    def step_fn(before, position, state):
        past = decode_loop.set_subwords(
            state["past"], position - 1, before
        )  # nowhere, at 0
        # The subword to predict is not read, but must not be padding.
        whole = decode_loop.set_subwords(
            past, position, tf.fill(tf.shape(before), 2)
        )
        sources = tf.repeat(state["inputs"], beams, axis=0)
        batch = score.make_features(sources, tf.reshape(whole, (-1, room)))
        logits = model(batch)[:, position]
        shape = (-1, beams, logits.shape[-1])
        return tf.reshape(logits, shape), None, state | {"past": past}

    def reorder(state, parents):
        return state | {
            "past": decode_loop.gather_beams(state["past"], parents)
        }

    past = tf.zeros((len(rows), beams, room), tf.int32)
    limits = (rows != PAD).sum(1) + hparams.extra_length
    return beam_search.beam_search(
        decode_loop.SearchModel(
            step_fn, {"past": past, "inputs": tf.constant(rows)}, reorder
        ),
        rules.sentences(tf.constant(limits, tf.int32)),
        rules.LengthLimit(),
        beams,
        room,
        hparams.alpha,
        1,
    )
