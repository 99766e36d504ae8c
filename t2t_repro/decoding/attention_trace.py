"""Where a model looks while it translates a sentence."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import score, search
from t2t_repro.models.seq2seq import AttentionWeights
from t2t_repro.text.vocabulary import PAD

MAX_SUBWORDS = 128  # subwords: no picture of more can be read


class AttentionTrace(NamedTuple):
    """A sentence, its translation, and all attention on the way."""

    inputs: str
    outputs: str
    source: list[str]  # L pieces, EOS the last
    target: list[str]  # T pieces, EOS the last
    weights: AttentionWeights  # of this sentence, numpy, without B


class AttentionTracer:
    """A model, its vocabularies and a search, to look at a sentence with."""

    def __init__(self, model, vocabularies, decode_hparams):
        """Keep everything, and trace nothing yet.

        Args:
            model: Seq2Seq with cross-attention weights.
            vocabularies: of source and target.
            decode_hparams: DecodeHParams.

        Raises:
            UserError: the model has no attention weights.
        """
        if "cross" not in model.attention_kinds:
            raise errors.UserError(
                f"The model {model.hparams.model!r} has no attention weights "
                "to look at."
            )
        self._model = model
        self._source, self._target = vocabularies
        hparams = dataclasses.replace(decode_hparams, return_beams=False)
        rule = search.build_rules(hparams, self._target)
        self._find = tf.function(
            lambda inputs: search.search(
                [model], inputs, hparams, rule=rule
            ).ids[:, 0],
            input_signature=[tf.TensorSpec([1, None], tf.int32)],
        )

    def trace(self, line: str) -> AttentionTrace:
        """Translates a line and looks where the model looks.

        Alone, so that no picture has padding in it.

        Raises:
            UserError: it is blank, or longer than LONGEST subwords.
        """
        (ids,) = self._source.encode([line])
        if not 1 < len(ids) <= MAX_SUBWORDS:
            raise errors.UserError(
                f"A sentence to look at has 1 to {MAX_SUBWORDS - 1} subwords; "
                f"got {len(ids) - 1} in {line[:80]!r}."
            )
        inputs = tf.constant([ids], tf.int32)
        targets = self._find(inputs)
        targets = tf.boolean_mask(targets, targets[0] != PAD, axis=1)
        batch = score.make_features(inputs, targets)
        weights = self._model.attention_weights(batch)
        found = targets[0].numpy().tolist()
        return AttentionTrace(
            line,
            self._target.decode([found])[0],
            self._source.pieces(ids),
            self._target.pieces(found),
            AttentionWeights(
                *(one if one is None else one[:, 0].numpy() for one in weights)
            ),
        )
