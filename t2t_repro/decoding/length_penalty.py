"""Length penalty: the divisor of an output's log-probability."""

from typing import NamedTuple

import tensorflow as tf

GNMT_OFFSET = 5


class LengthPenalty(NamedTuple):
    """((offset + length) / (offset + 1))^alpha; length counts EOS.

    The offset 5 makes it GNMT's (Wu et al. 2016, equation 14), and 0 makes it
    length^alpha, as in Marian, fairseq and Hugging Face.

    It is not a search rule, since rules add to scores: it divides the whole
    score of an output, and bounds the scores that live hypotheses can reach.
    """

    alpha: float
    offset: int = GNMT_OFFSET

    def __call__(self, length: tf.Tensor) -> tf.Tensor:
        """Return the penalties float32 of lengths in subwords, of any shape."""
        length = tf.cast(length, tf.float32)
        return ((self.offset + length) / (self.offset + 1.0)) ** self.alpha
