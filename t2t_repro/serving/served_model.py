"""The exported model: text in, text out, in one graph.

Signatures (strings in and out, so that no caller needs to pad ids):

    serving_default  inputs [B]          -> outputs, scores, truncated [B]
    n_best           inputs [B]          -> outputs, scores [B, W], truncated
    score            inputs, targets [B] -> scores, lengths, truncated [B]
    attention        inputs [B]          -> outputs, truncated [B],
        source_pieces [B, L], source_lengths [B], target_pieces [B, T],
        target_lengths [B], weights [B, layers, T, L]
    directed         inputs [B], and optional languages [B] of targets and
        sources -> as serving_default, of a model of many languages

`attention` reads at most score.MAX_SUBWORDS subwords. Its pieces end
in EOS and are padded with "". Its weights are means over heads; they are also
means over layers if models of an ensemble differ in the number of layers. Every
output has a row for each sentence, by which a server splits a batch. (TF
Serving's batching rejects outputs without this dimension.)

All operations are TensorFlow's and TF Text's. None calls Python, unless one of
a user's own vocabulary does.

Weights may be stored in 16 bits, which halves the file. A call still computes
in float32, with the rounded weights: few CPUs have a fast float16, and scores
are the same on any hardware. Each call casts the weights once before the
search, which takes as long as reading them, and memory for copies in float32.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import compiled, score, search
from t2t_repro.decoding.score import is_text, mean_attention, subword_log_probs
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runtime import graph
from t2t_repro.serving import graph_vocabularies
from t2t_repro.serving.graph_vocabularies import GraphTagger
from t2t_repro.text.vocabulary import EOS, PAD
from t2t_repro.text.vocabulary_pair import Vocabularies

# Of the batches whose search is compiled in an export with xla=on: shapes of
# decoding/compiled.py. Others run uncompiled, so that no request waits for XLA.
BUCKETS = {"sentences": (1, 8, 16, 32), "lengths": (16, 32, 64)}
WEIGHTS_DTYPES = ("float32", "float16", "bfloat16")
TEXT = tf.TensorSpec([None], tf.string)
IDS = tf.TensorSpec([None, None], tf.int32)
Outputs = dict[str, tf.Tensor]


class ServedModel(tf.Module):
    """Vocabularies, models and search in one graph."""

    tag = ""  # with which sources are to begin; "": they have their own
    # Adds and checks the tags of many languages; None: there are none.
    tagger: GraphTagger | None = None
    takes_side = False  # whether its requests may have side inputs

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        vocabularies: Vocabularies,
        decode_hparams: DecodeHParams,
        weights_dtype: str,
    ):
        """Copy the weights of the models, and build the vocabularies.

        Args:
            models: one model, or an ensemble.
            vocabularies: vocabularies of source and target.
            decode_hparams: settings of the search.
            weights_dtype: dtype of the copied weights, one of WEIGHTS_DTYPES.

        Raises:
            UserError: a weight is too large for `weights_dtype`, or a
                vocabulary has no form in a graph.
        """
        super().__init__("served_model")
        # Attributes: SavedModel saves what it finds in them.
        self.source, self.target = graph_vocabularies.build(vocabularies)
        self.weights = [
            _stored(weight, weights_dtype)
            for model in models
            for weight in model.weights
        ]
        # The models are in closures: SavedModel would export the functions of
        # Keras models in attributes, and it needs the variables only.
        call = _with_weights(models, self.weights)
        self._leads = vocabularies.source.leads_outputs
        rule = search.build_rules(
            decode_hparams, vocabularies.target, self._leads
        )
        search.require_attention(models, rule)
        self._needs_side = rule.needs_side
        if rule.needs_side and not self.takes_side:
            raise errors.UserError(
                "A search rule reads side inputs, which only requests to an "
                "export with --max_beam_size have. Say it, or omit the rule."
            )
        self._call = call
        self._find = functools.partial(search.search, rule=rule)
        # In a dictionary of a closure: SavedModel exports functions in
        # attributes.
        searches = _searches(call, self._find, decode_hparams)
        self._search_ids = lambda ids, return_beams: searches[return_beams](ids)
        # Conditional: SavedModel traces every function in an attribute.
        self.attention = None
        if all("cross" in model.attention_kinds for model in models):
            self.attention = self._attention_of(mean_attention)
        # Without an attribute: SavedModel saves what it finds in them.
        source = vocabularies.source
        self._is_text = lambda ids: is_text(ids, source)
        keeps_tabs = ord("\t") not in vocabularies.target.spaces
        self._spaces = r"[\n\r]" if keeps_tabs else r"[\t\n\r]"
        self._allows_empty = decode_hparams.allow_empty_source
        self._beams = decode_hparams.beam_size
        self._max_length = decode_hparams.max_input_length

    def _encode(self, vocabulary, text, max_length):
        """Convert strings [B] to ids with EOS [B, L], lengths, truncated."""
        ids = vocabulary.encode(text)
        truncated = ids.row_lengths() > max_length - 1  # and EOS
        ids = ids[:, : max_length - 1]
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        # Padding instead of a ragged concatenation: the latter transposes
        # int64, about which oneDNN logs errors.
        ids = tf.pad(ids.to_tensor(PAD), [[0, 0], [0, 1]], constant_values=PAD)
        at_end = tf.range(tf.shape(ids)[1]) == lengths[:, None]
        return tf.where(at_end, EOS, ids), lengths + 1, truncated

    def _encode_sources(self, text, max_length):
        if self.tag:
            text = tf.strings.join([self.tag, text], " ")
        elif self.tagger:
            text = self.tagger(text)
        return self._encode(self.source, text, max_length)

    def _is_blank(self, ids):
        """Return whether rows of ids [B, L] have no text to translate: [B]."""
        blank = ~tf.reduce_any(self._is_text(ids), axis=-1)
        return tf.zeros_like(blank) if self._allows_empty else blank

    def _decode(self, ids):
        """Convert ids [N, T], up to the first EOS, to lines [N]."""
        before_eos = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) == 0
        text_ids = tf.ragged.boolean_mask(ids, before_eos & (ids != PAD))
        text = self.target.decode(text_ids)
        return tf.strings.regex_replace(text, self._spaces, " ")

    def _pieces(self, vocabulary, ids, lengths):
        pieces = vocabulary.pieces(ids)
        return tf.where(tf.sequence_mask(lengths, tf.shape(ids)[1]), pieces, "")

    def _search(self, inputs, return_beams):
        ids, _, truncated = self._encode_sources(inputs, self._max_length)
        found = self._search_ids(ids, return_beams)
        blank = self._is_blank(ids)[:, None]
        beams = self._beams if return_beams else 1
        texts, scores = self._texts(blank, *found, beams)
        return {"outputs": texts, "scores": scores, "truncated": truncated}

    def _texts(self, blank, ids, scores, beams):
        """Return texts and scores [B, beams] of ids [B, beams, T].

        Those of blank [B, 1] inputs are "" and 0. The static number of beams
        appears in the signature.
        """
        texts = self._decode(tf.reshape(ids, (-1, tf.shape(ids)[-1])))
        texts, scores = (tf.reshape(x, (-1, beams)) for x in (texts, scores))
        return tf.where(blank, "", texts), tf.where(blank, 0.0, scores)

    def signatures(self) -> dict[str, Any]:
        """Return {name: function}; "attention" only if all models have it."""
        signatures = {
            "serving_default": self.translate,
            "n_best": self.n_best,
            "score": self.score,
            "attention": self.attention,
            "directed": self._directed(),
        }
        return {name: each for name, each in signatures.items() if each}

    @graph.function(input_signature=[TEXT])
    def n_best(self, inputs: tf.Tensor) -> Outputs:
        """Translate into all beams, best first."""
        return self._search(inputs, return_beams=True)

    @graph.function(input_signature=[TEXT])
    def translate(self, inputs: tf.Tensor) -> Outputs:
        """Translate into the best beam."""
        outputs = self._search(inputs, return_beams=False)
        return outputs | {
            "outputs": outputs["outputs"][:, 0],
            "scores": outputs["scores"][:, 0],
        }

    @graph.function(input_signature=[TEXT, TEXT])
    def score(self, inputs: tf.Tensor, targets: tf.Tensor) -> Outputs:
        """Return log-probabilities of given targets, and their lengths."""
        max_length = self._max_length
        input_ids, _, input_cut = self._encode_sources(inputs, max_length)
        target_ids, lengths, target_cut = self._encode(
            self.target, targets, max_length
        )
        log_probs = self._call(
            subword_log_probs, input_ids, target_ids, self._leads
        )
        return {
            "scores": tf.reduce_sum(log_probs, 1),
            "lengths": lengths,
            "truncated": input_cut | target_cut,
        }

    def _directed(self):
        """Return the function of the signature `directed`, or None."""
        tagger = self.tagger
        if not tagger or not self.translate:
            return None

        def translate(columns):
            languages = (columns[name] for name in tagger.names)
            return self.translate(tagger(columns["inputs"], *languages))

        languages = dict.fromkeys(tagger.names, ("string", ""))
        return with_optional(translate, ["inputs"], languages)

    def _attention_of(self, weights_of):
        """Return the function of a signature; weights_of() is of score.py."""
        return graph.function(
            functools.partial(self._translate_with_attention, weights_of),
            input_signature=[TEXT],
        )

    def _translate_with_attention(self, weights_of, inputs):
        """Translate into the best beam, with its cross-attention weights."""
        # Weights of a thousand pieces would be gigabytes.
        max_length = min(self._max_length, score.MAX_SUBWORDS)
        ids, lengths, truncated = self._encode_sources(inputs, max_length)
        blank = self._is_blank(ids)
        best = self._search_ids(ids, return_beams=False).ids[:, 0]
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
            "weights": self._call(weights_of, ids, target_ids, self._leads),
        }


def with_optional(
    answer: Callable[[dict[str, tf.Tensor]], Outputs],
    required: Sequence[str],
    optional: Mapping[str, tuple[str, Any]],
) -> Any:
    """Return the function of a signature with optional inputs, all [B].

    Args:
        answer: function of the inputs by name.
        required: names of inputs of text.
        optional: dtypes and defaults of others.
    """
    parameter = functools.partial(
        inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD
    )
    # tf.saved_model.save() writes tensors that are defaults of arguments.
    parameters = [
        *map(parameter, required),
        *(
            parameter(name, default=tf.constant([default], dtype))
            for name, (dtype, default) in optional.items()
        ),
    ]

    def function(*values: tf.Tensor) -> Outputs:
        columns = dict(zip(signature.parameters, values, strict=True))
        size = tf.shape(values[0])
        columns |= {
            name: tf.broadcast_to(columns[name], size) for name in optional
        }
        return answer(columns)

    signature = inspect.Signature(parameters)
    function.__signature__ = signature  # type: ignore[attr-defined]
    specs = [tf.TensorSpec([None], dtype) for dtype, _ in optional.values()]
    specs = [TEXT] * len(required) + specs
    return graph.function(function, input_signature=specs)


def _stored(weight, dtype):
    """Copy a Keras variable to a tf.Variable of `dtype`."""
    value = tf.cast(weight.value, dtype)
    if not tf.reduce_all(tf.math.is_finite(value)):
        raise errors.UserError(
            f"{dtype} cannot hold {weight.path}: its values go to "
            f"{tf.reduce_max(abs(weight.value)):.3g}, and {dtype}'s to "
            f"{value.dtype.max:.3g}. Use --weights_dtype=bfloat16 or float32."
        )
    return tf.Variable(value, trainable=False)


def _with_weights(models, stored):
    """Return call(function, *arguments), which uses the stored weights.

    It calls function(models, *arguments) with the values of `stored`.
    """
    weights = [weight for model in models for weight in model.weights]

    def call(function, *arguments):
        values = [
            (weight, tf.cast(value, weight.dtype))
            for weight, value in zip(weights, stored, strict=True)
        ]
        with keras.StatelessScope(values):
            return function(models, *arguments)

    return call


def _searches(call, find, decode_hparams):
    """Return {return_beams: search of ids}, traced once for all signatures."""

    def build(return_beams):
        hparams = dataclasses.replace(decode_hparams, return_beams=return_beams)

        def uncompiled(ids):
            return call(find, ids, hparams)

        in_bucket = compiled.in_buckets(
            lambda ids, _: call(find, ids, hparams, None, None)
        )

        def where_compiled(ids):
            count, length = tf.unstack(tf.shape(ids))
            fits = (0 < count) & (count <= BUCKETS["sentences"][-1])
            return tf.cond(
                fits & (length <= BUCKETS["lengths"][-1]),
                lambda: in_bucket(ids, ()),
                lambda: uncompiled(ids),
            )

        return graph.function(
            where_compiled if hparams.xla == "on" else uncompiled,
            input_signature=[IDS],
        )

    return {return_beams: build(return_beams) for return_beams in (False, True)}
