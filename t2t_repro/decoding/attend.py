"""Where a model looks while it translates a sentence: for pictures."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import score, search
from t2t_repro.models.transformer import AttentionWeights
from t2t_repro.text.subwords import PAD

LONGEST = 128  # subwords: no picture of more can be read


class Seen(NamedTuple):
    """A sentence, its translation, and all attention on the way."""

    inputs: str
    outputs: str
    source: list[str]  # L pieces, EOS the last
    target: list[str]  # T pieces, EOS the last
    # numpy, of this sentence: [layers, H, L, L], [… T, T] and [… T, L].
    weights: AttentionWeights


def look(model, subwords, decode_hparams, lines: Sequence[str]):
    """Translates lines and looks where the model looked.

    Args:
        model: Transformer.
        subwords: its vocabulary.
        decode_hparams: DecodeHParams.
        lines: neither blank nor long.

    Returns:
        A list with a Seen for each line.

    Raises:
        UserError: a line is blank, or longer than LONGEST subwords.
    """
    rows = subwords.encode(lines)
    for line, ids in zip(lines, rows, strict=True):
        if not 1 < len(ids) <= LONGEST:
            raise errors.UserError(
                f"A sentence for pictures of attention has 1 to {LONGEST - 1} "
                f"subwords; got {len(ids) - 1} in {line[:80]!r}."
            )
    return list(_look(model, subwords, decode_hparams, lines, rows))


def _look(model, subwords, decode_hparams, lines, rows) -> Iterator[Seen]:
    """One by one, so that no picture has padding in it."""
    hparams = dataclasses.replace(decode_hparams, return_beams=False)

    @tf.function(input_signature=[tf.TensorSpec([1, None], tf.int32)])
    def find(inputs):
        return search.search([model], inputs, hparams).ids[:, 0]

    for line, ids in zip(lines, rows, strict=True):
        inputs = tf.constant([ids], tf.int32)
        targets = find(inputs)
        targets = tf.boolean_mask(targets, targets[0] != PAD, axis=1)
        weights = model.attention_weights(score.features(inputs, targets))
        found = targets[0].numpy().tolist()
        yield Seen(
            line,
            subwords.decode([found])[0],
            subwords.pieces(ids),
            subwords.pieces(found),
            AttentionWeights(*(one[:, 0].numpy() for one in weights)),
        )
