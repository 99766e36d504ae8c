"""What an exported model is: text in, text out, in one graph.

Signatures (strings in and out, so that nothing can pad ids in between):

    serving_default  inputs [B]          -> outputs, scores, truncated [B]
    n_best           inputs [B]          -> outputs, scores [B, W], truncated
    score            inputs, targets [B] -> scores, lengths, truncated [B]
    attention        inputs [B]          -> outputs, truncated [B],
        source_pieces [B, L], source_lengths [B], target_pieces [B, T],
        target_lengths [B], weights [B, layers, T, L]

The last one reads attention_trace.MAX_SUBWORDS pieces at most. Its pieces end
in EOS and are padded with "", and its weights are means over heads, and over
layers where models of an ensemble differ in their number: every output has
a row for each sentence, by which a server that makes batches splits it. (TF
Serving would refuse flat values then.)

It has stock TensorFlow and TF Text operations only, and no Python, as far as
its vocabularies have.

Weights may be stored in 16 bits, which halves the file and the memory that it
takes at rest. A call computes in float32 all the same, with the rounded
weights: few CPUs have a fast float16, and scores come out alike anywhere. They
are cast once a call, before the search, which costs what reading them does.
"""

import dataclasses
import functools

import keras
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import attention_trace, score, search
from t2t_repro.serving import graph_vocabulary
from t2t_repro.text.vocabulary import EOS, PAD

WEIGHTS_DTYPES = ("float32", "float16", "bfloat16")
_TEXT = tf.TensorSpec([None], tf.string)


class ServedModel(tf.Module):
    """Vocabularies, models and search in one graph."""

    def __init__(self, models, vocabularies, decode_hparams, weights_dtype):
        """Takes what translate.Translator takes, and one of WEIGHTS_DTYPES."""
        super().__init__("served_model")
        # Attributes, by which SavedModel finds what they hold.
        self.source, self.target = graph_vocabulary.build(vocabularies)
        self.weights = [
            _rounded(weight, weights_dtype)
            for model in models
            for weight in model.weights
        ]
        # In closures, out of SavedModel's sight, which would export Keras's
        # own functions with them: the variables are all it needs.
        call = _with_weights(models, self.weights)
        rule = search.build_rules(decode_hparams, vocabularies.target)
        search.require_attention(models, rule)
        self._find = lambda ids, return_beams: call(
            functools.partial(search.search, rule=rule),
            ids,
            dataclasses.replace(decode_hparams, return_beams=return_beams),
        )
        self._sum = lambda *pair: call(score.sentence_log_probs, *pair)
        self._attend = lambda *pair: call(score.mean_attention, *pair)
        # SavedModel traces every function that it finds.
        self.attention = None
        if all("cross" in model.attention_kinds for model in models):
            self.attention = tf.function(
                self._translate_with_weights, input_signature=[_TEXT]
            )
        self._beams = decode_hparams.beam_size
        self._most = decode_hparams.max_input_length

    def _encode(self, vocabulary, text, most):
        """Strings [B] -> ids [B, L] with EOS, lengths and truncated [B]."""
        ids = vocabulary.encode(text)
        truncated = ids.row_lengths() > most - 1  # and EOS
        ids = ids[:, : most - 1]
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        # Not by a ragged concatenation, of which oneDNN complains: its
        # transposition is of int64.
        ids = tf.pad(ids.to_tensor(PAD), [[0, 0], [0, 1]], constant_values=PAD)
        at_end = tf.range(tf.shape(ids)[1]) == lengths[:, None]
        return tf.where(at_end, EOS, ids), lengths + 1, truncated

    def _decode(self, ids):
        """Ids [N, T], up to the first EOS -> strings [N], each one line."""
        before_eos = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) == 0
        text_ids = tf.ragged.boolean_mask(ids, before_eos & (ids != PAD))
        text = self.target.decode(text_ids)
        return tf.strings.regex_replace(text, r"[\t\n\r]", " ")

    def _pieces(self, vocabulary, ids, lengths):
        """Ids [B, L] -> strings [B, L], as the vocabulary spells them."""
        pieces = vocabulary.pieces(ids)
        return tf.where(tf.sequence_mask(lengths, tf.shape(ids)[1]), pieces, "")

    def _search(self, inputs, return_beams):
        ids, lengths, truncated = self._encode(self.source, inputs, self._most)
        found = self._find(ids, return_beams)
        flat = tf.reshape(found.ids, (-1, tf.shape(found.ids)[-1]))
        # Fixed, the number of beams is in the signature, for all to see.
        shape = (-1, self._beams if return_beams else 1)
        texts = tf.reshape(self._decode(flat), shape)
        blank = (lengths == 1)[:, None]  # EOS alone
        return {
            "outputs": tf.where(blank, "", texts),
            "scores": tf.where(blank, 0.0, tf.reshape(found.scores, shape)),
            "truncated": truncated,
        }

    def signatures(self):
        """Return {name: function}; without weights there is no attention."""
        signatures = {
            "serving_default": self.translate,
            "n_best": self.n_best,
            "score": self.score,
        }
        if self.attention:
            signatures["attention"] = self.attention
        return signatures

    @tf.function(input_signature=[_TEXT])
    def n_best(self, inputs):
        """All beams, best first."""
        return self._search(inputs, return_beams=True)

    @tf.function(input_signature=[_TEXT])
    def translate(self, inputs):
        """The best beam."""
        found = self._search(inputs, return_beams=False)
        return found | {
            "outputs": found["outputs"][:, 0],
            "scores": found["scores"][:, 0],
        }

    @tf.function(input_signature=[_TEXT, _TEXT])
    def score(self, inputs, targets):
        """Sums of log-probabilities of given targets, and their lengths."""
        input_ids, _, input_cut = self._encode(self.source, inputs, self._most)
        target_ids, lengths, target_cut = self._encode(
            self.target, targets, self._most
        )
        return {
            "scores": self._sum(input_ids, target_ids),
            "lengths": lengths,
            "truncated": input_cut | target_cut,
        }

    def _translate_with_weights(self, inputs):
        """The best beam, and where each of its pieces looked."""
        # Of a thousand pieces, weights would be gigabytes, and no picture.
        most = min(self._most, attention_trace.MAX_SUBWORDS)
        ids, lengths, truncated = self._encode(self.source, inputs, most)
        blank = lengths == 1  # EOS alone
        best = self._find(ids, return_beams=False).ids[:, 0]
        longest = tf.reduce_max(
            tf.reduce_sum(tf.cast(best != PAD, tf.int32), 1)
        )
        target_ids = tf.where(blank[:, None], PAD, best[:, :longest])
        target_lengths = tf.reduce_sum(tf.cast(target_ids != PAD, tf.int32), 1)
        return {
            "outputs": self._decode(target_ids),
            "truncated": truncated,
            "source_pieces": self._pieces(self.source, ids, lengths),
            "source_lengths": lengths,
            "target_pieces": self._pieces(
                self.target, target_ids, target_lengths
            ),
            "target_lengths": target_lengths,
            "weights": self._attend(ids, target_ids),
        }


def _rounded(weight, dtype):
    """A variable of a Keras variable's value in `dtype`."""
    value = tf.cast(weight.value, dtype)
    if not tf.reduce_all(tf.math.is_finite(value)):
        raise errors.UserError(
            f"{dtype} cannot hold {weight.path}: its values go to "
            f"{tf.reduce_max(abs(weight.value)):.3g}, and {dtype}'s to "
            f"{value.dtype.max:.3g}. Say --weights_dtype=bfloat16 or float32."
        )
    return tf.Variable(value, trainable=False)


def _with_weights(models, stored):
    """A function that calls others, on models with the values of `stored`."""
    weights = [weight for model in models for weight in model.weights]

    def call(function, *arguments):
        values = [
            (weight, tf.cast(value, weight.dtype))
            for weight, value in zip(weights, stored, strict=True)
        ]
        with keras.StatelessScope(values):
            return function(models, *arguments)

    return call
