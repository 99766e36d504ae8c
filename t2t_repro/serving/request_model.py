"""The exported model whose requests have prefixes and settings of the search.

    translate  inputs [B], and connection.OPTIONAL, each [B]
                   -> outputs, scores [B, W], truncated [B]
    subwords   the same -> the same, and of each output's subwords
                   pieces, log_probs, words [B, W, T], lengths [B, W]
    attention_heads  as the signature attention, if there is one, but
                   weights [B, layers, H, T, L], of each head

W is the largest beam size. Beyond the outputs that a request asks for, there
are empty strings with the score FORBIDDEN. A batch may have sentences with
different settings, as servers make it of several requests.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import rules
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.decoding.score import attention_by_head, subword_log_probs
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runtime import graph
from t2t_repro.serving import connection
from t2t_repro.serving.served_model import IDS, ServedModel, with_optional
from t2t_repro.text.vocabulary import EOS, PAD
from t2t_repro.text.vocabulary_pair import Vocabularies

_SEARCHES = (
    "tensor2tensor",
    "huggingface",
    "huggingface_early_stopping",
)  # those of beam_search.py
_NO_WORD = -1  # of EOS and padding


class RequestModel(ServedModel):
    """ServedModel with signatures whose inputs are optional, and one of heads.

    If a rule reads side inputs, the signatures that search without them are
    missing.
    """

    takes_side = True

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        vocabularies: Vocabularies,
        decode_hparams: DecodeHParams,
        weights_dtype: str,
        max_beam_size: int,
    ):
        """Build the model; see ServedModel.

        Args:
            models: one model, or an ensemble.
            vocabularies: vocabularies of source and target.
            decode_hparams: settings of requests that name none.
            weights_dtype: dtype of the copied weights.
            max_beam_size: most beams that a request may name.

        Raises:
            UserError: as of ServedModel; the search has more beams, or is one
                whose sentences have no settings.
        """
        super().__init__(models, vocabularies, decode_hparams, weights_dtype)
        if max_beam_size < decode_hparams.beam_size:
            raise errors.UserError(
                f"--max_beam_size must be at least {decode_hparams.beam_size}, "
                f"the beam_size of the search; got {max_beam_size}."
            )
        if decode_hparams.search_name not in _SEARCHES:
            raise errors.UserError(
                f"--max_beam_size is for {' and '.join(_SEARCHES)}, whose "
                "sentences may have settings of their own; got "
                f"beam_search={decode_hparams.beam_search}. Omit one of them."
            )
        if self._needs_side:  # SavedModel traces every function in an attribute
            self.translate = self.n_best = self.attention = None
        self._own, self._max_beams = decode_hparams, max_beam_size

    def signatures(self) -> dict[str, Any]:
        hparams = dataclasses.replace(
            self._own, beam_size=self._max_beams, return_beams=True
        )
        rows = [tf.TensorSpec([None], each) for each in rules.SETTINGS_DTYPES]
        find = graph.function(
            lambda ids, prefixes, settings, side: self._call(
                self._find, ids, hparams, rules.Given(prefixes, settings, side)
            ),
            input_signature=[
                IDS,
                IDS,
                rules.Settings(*rows),
                rules.SideInput(*rules.SIDE_SPECS) if self._needs_side else (),
            ],
        )

        def translate(columns):
            return self._search_as_asked(find, columns)[0]

        def subwords(columns):
            outputs, *found = self._search_as_asked(find, columns)
            return outputs | self._subwords(*found)

        signatures = super().signatures()
        if self.attention:
            signatures["attention_heads"] = self._attention_of(
                attention_by_head
            )
        return signatures | {
            "translate": self._signature(translate),
            "subwords": self._signature(subwords),
        }

    def _signature(self, answer):
        optional = connection.optional_inputs(self._max_beams)
        required = ["inputs", "side"] if self._needs_side else ["inputs"]

        def checked(columns):
            with tf.control_dependencies(_assertions(columns, optional)):
                return answer(columns)

        specs = {name: each[:2] for name, each in optional.items()}
        return with_optional(checked, required, specs)

    def _search_as_asked(self, find, columns):
        """Return outputs [B, W], and the arguments of _subwords()."""
        ids, _, truncated = self._encode_sources(
            columns["inputs"], self._max_length
        )
        prefixes, lengths, is_cut = self._encode(
            self.target, columns["prefixes"], self._max_length
        )
        # Without EOS, since the output continues.
        at_end = tf.range(tf.shape(prefixes)[1]) == lengths[:, None] - 1
        settings = self._settings(columns)
        side = self._side(columns["side"]) if self._needs_side else ()
        found = find(ids, tf.where(at_end, PAD, prefixes), settings, side)
        # As many as in any batch: servers split it.
        missing = self._max_beams - tf.shape(found.scores)[1]
        scores = tf.pad(
            found.scores, [[0, 0], [0, missing]], constant_values=FORBIDDEN
        )
        found_ids = tf.pad(found.ids, [[0, 0], [0, missing], [0, 0]])
        blank = self._is_blank(ids)[:, None]
        texts, scores = self._texts(blank, found_ids, scores, self._max_beams)
        scores = tf.where(
            tf.range(self._max_beams) < settings.num_outputs[:, None],
            scores,
            FORBIDDEN,
        )
        is_text = (scores > FORBIDDEN / 2) & ~blank
        outputs = {
            "outputs": tf.where(is_text, texts, ""),
            "scores": scores,
            "truncated": truncated | is_cut,
        }
        return outputs, ids, found_ids, is_text

    def _settings(self, columns):
        """Return rules.Settings, in which those of the export replace none."""
        own, beams, alphas = self._own, columns["beam_size"], columns["alpha"]
        beams = tf.where(beams == 0, own.beam_size, beams)
        outputs = tf.where(columns["n_best"] == 0, beams, columns["n_best"])
        alphas = tf.where(alphas == -1, own.alpha, alphas)
        return rules.Settings(beams, outputs, alphas)

    def _side(self, texts):
        """Return rules.SideInput of texts [B], whose fields tabs separate."""
        fields = tf.strings.split(texts, "\t").to_tensor("")  # [B, M]
        ids = self.target.encode(tf.reshape(fields, [-1])).to_tensor(PAD)
        shape = tf.concat([tf.shape(fields), tf.shape(ids)[1:]], 0)
        return rules.SideInput(texts, tf.reshape(ids, shape))

    def _subwords(self, ids, found, is_text):
        """Return pieces, log-probabilities and words [B, W, T] of outputs.

        Those of ids [B, L] and `found` [B, W, T] where is_text [B, W].
        """
        rows = tf.where(is_text)  # [N, 2]
        found = found[..., 1:] if self._leads else found
        targets = tf.gather_nd(found, rows)
        lengths = tf.reduce_sum(tf.cast(targets != PAD, tf.int32), 1)
        longest = tf.maximum(tf.reduce_max(lengths), 0)  # of no rows
        targets = targets[:, :longest]
        shape = tf.concat([tf.shape(is_text), [longest]], 0)
        inputs = tf.gather(ids, rows[:, 0])
        values = {
            "pieces": (self._pieces(self.target, targets, lengths), ""),
            "log_probs": (
                self._call(subword_log_probs, inputs, targets, self._leads),
                0.0,
            ),
            "words": (self._words(targets), _NO_WORD),
            "lengths": (lengths, 0),
        }
        return {
            name: tf.tensor_scatter_nd_update(
                tf.fill(shape[: 1 + each.shape.rank], other), rows, each
            )
            for name, (each, other) in values.items()
        }

    def _words(self, ids):
        """Return the word of each subword [N, T]; see word_indices()."""
        length = tf.shape(ids)[1]
        begins = tf.sequence_mask(tf.range(length + 1), length)  # [T + 1, T]
        begins = tf.where(begins, ids[:, None], PAD)
        texts = self._decode(tf.reshape(begins, (-1, length)))
        texts = tf.strings.regex_replace(texts, r"\s+\z", "")
        counts = tf.cast(tf.strings.split(texts).row_lengths(), tf.int32)
        texts, counts = (
            tf.reshape(each, (-1, length + 1)) for each in (texts, counts)
        )
        is_new = tf.cast(texts[:, 1:] != texts[:, :-1], tf.int32)
        last = tf.maximum(counts[:, -1:] - 1, 0)
        words = tf.minimum(counts[:, 1:] - is_new, last)
        return tf.where((ids == EOS) | (ids == PAD), _NO_WORD, words)


def _assertions(columns, optional):
    """Return operations that fail for numbers out of bounds."""
    return [
        tf.debugging.Assert(
            tf.reduce_all(each.allows(columns[name])),
            [f"{name} must be {each.range_text}; got ", columns[name]],
        )
        for name, each in optional.items()
        if each.dtype != "string"
    ]
