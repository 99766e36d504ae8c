"""Where a model looks while it translates a sentence."""

import dataclasses
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


class Observer:
    """A model, its vocabulary and a search, to look at a sentence with."""

    def __init__(self, model, subwords, decode_hparams):
        """Traces nothing yet.

        Args:
            model: Transformer.
            subwords: its vocabulary.
            decode_hparams: DecodeHParams.
        """
        self._model = model
        self._subwords = subwords
        hparams = dataclasses.replace(decode_hparams, return_beams=False)
        self._find = tf.function(
            lambda inputs: search.search([model], inputs, hparams).ids[:, 0],
            input_signature=[tf.TensorSpec([1, None], tf.int32)],
        )

    def look(self, line: str) -> Seen:
        """Translates a line and looks where the model looks.

        Alone, so that no picture has padding in it.

        Raises:
            UserError: it is blank, or longer than LONGEST subwords.
        """
        (ids,) = self._subwords.encode([line])
        if not 1 < len(ids) <= LONGEST:
            raise errors.UserError(
                f"A sentence to look at has 1 to {LONGEST - 1} subwords; got "
                f"{len(ids) - 1} in {line[:80]!r}."
            )
        inputs = tf.constant([ids], tf.int32)
        targets = self._find(inputs)
        targets = tf.boolean_mask(targets, targets[0] != PAD, axis=1)
        batch = score.features(inputs, targets)
        weights = self._model.attention_weights(batch)
        found = targets[0].numpy().tolist()
        return Seen(
            line,
            self._subwords.decode([found])[0],
            self._subwords.pieces(ids),
            self._subwords.pieces(found),
            AttentionWeights(*(one[:, 0].numpy() for one in weights)),
        )
