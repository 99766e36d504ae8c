"""A search rule that reads side inputs."""

import tensorflow as tf

from t2t_repro.decoding import rules
from t2t_repro.text.vocabulary import EOS, PAD


class Say(rules.Rule):
    """Outputs are a phrase of the side input, or free if there is none."""

    needs_side = True

    def __init__(self, vocabulary, field=0):
        self._field = field

    def forced(self, step, state):
        phrases = step.sentences.side.phrases  # [B, M, S]
        ids = tf.pad(phrases, ((0, 0), (0, 2), (0, 1)))[:, self._field]
        ids = tf.where((ids == PAD) & (ids[:, :1] != PAD), EOS, ids)
        index = tf.minimum(step.position, tf.shape(ids)[1] - 1)
        return tf.gather(ids, index, axis=1)[:, None]
