"""A search rule that reads side inputs."""

import tensorflow as tf

from t2t_repro.decoding import rules
from t2t_repro.text.vocabulary import EOS, PAD


class Say(rules.Rule):
    """Outputs are the last phrase of the side input."""

    needs_side = True

    def __init__(self, vocabulary):
        pass

    def forced(self, step, state):
        ids = tf.pad(step.sentences.side.phrases[:, -1], ((0, 0), (0, 1)))
        ids = tf.where(ids == PAD, EOS, ids)
        index = tf.minimum(step.position, tf.shape(ids)[1] - 1)
        return tf.gather(ids, index, axis=1)[:, None]
