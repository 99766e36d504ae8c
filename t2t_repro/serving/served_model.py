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
from t2t_repro.decoding import compiled, rules, score, search
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runtime import graph
from t2t_repro.serving import graph_vocabularies, requests
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
# Searches whose sentences may have settings.
_SEARCHES = "tensor2tensor", "huggingface", "huggingface_early_stopping"
_NO_WORD = -1  # of EOS and padding


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

        The arguments are those of saved_model.export().

        Raises:
            UserError: a weight is too large for `weights_dtype`, or a
                vocabulary has no form in a graph.
        """
        super().__init__("served_model")
        # SavedModel saves what it finds in attributes, and traces all functions
        # there, also those of Keras models. So models, searches and Python's
        # vocabularies are in closures.
        self.source, self.target = graph_vocabularies.build(vocabularies)
        self.weights = [
            _stored(weight, weights_dtype)
            for model in models
            for weight in model.weights
        ]
        self._call = _with_weights(models, self.weights)
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
        self._find = functools.partial(search.search, rule=rule)
        self._search_ids = _search_of(self._call, self._find, decode_hparams)
        self.attention = None
        if all("cross" in model.attention_kinds for model in models):
            self.attention = self._attention_of(by_head=False)
        source = vocabularies.source
        self._is_text = lambda ids: score.is_text(ids, source)
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
            tagged = tf.strings.join([self.tag, text], " ")
            text = tf.where(graph_vocabularies.is_blank(text), "", tagged)
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
            score.subword_log_probs, input_ids, target_ids, self._leads
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

    def _attention_of(self, by_head):
        """Return the function of a signature."""
        return graph.function(
            functools.partial(self._translate_with_attention, by_head),
            input_signature=[TEXT],
        )

    def _translate_with_attention(self, by_head, inputs):
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
        weights = self._call(
            score.attention_of_models, ids, target_ids, self._leads, by_head
        )
        if self._leads:  # what the output begins with is no source
            ids, lengths, weights = ids[:, 1:], lengths - 1, weights[..., 1:]
        return {
            "outputs": self._decode(target_ids),
            "truncated": truncated,
            "source_pieces": self._pieces(self.source, ids, lengths),
            "source_lengths": lengths,
            "target_pieces": self._pieces(
                self.target, target_ids, target_lengths
            ),
            "target_lengths": target_lengths,
            "weights": weights if by_head else weights[:, :, 0],
        }


class RequestModel(ServedModel):
    """ServedModel whose requests have prefixes and settings of the search.

        translate  inputs [B], and requests.OPTIONAL, each [B]
                       -> outputs, scores [B, W], truncated [B]
        subwords   the same -> the same, and of each output's subwords
                       pieces, log_probs, words [B, W, T], lengths [B, W]
        attention_heads  as the signature attention, if there is one, but
                       weights [B, layers, H, T, L], of each head

    W is the largest beam size. Beyond the outputs that a request asks for,
    there are empty strings with the score FORBIDDEN. A batch may have sentences
    with different settings, as servers make it of several requests.

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
        """Build the model; the other arguments are those of ServedModel.

        Args:
            decode_hparams: settings of requests that name none.
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
        if decode_hparams.beam_search.partition(":")[0] not in _SEARCHES:
            raise errors.UserError(
                f"--max_beam_size is for {' and '.join(_SEARCHES)}, whose "
                "sentences may have settings of their own; got "
                f"beam_search={decode_hparams.beam_search}. Omit one of them."
            )
        if self._needs_side:  # else they would be traced
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
            signatures["attention_heads"] = self._attention_of(by_head=True)
        return signatures | {
            "translate": self._signature(translate),
            "subwords": self._signature(subwords),
        }

    def _signature(self, answer):
        optional = requests.optional_inputs(self._max_beams)
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
        scores = rules.forbid_beyond(scores, settings.num_outputs[:, None])
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
        return rules.SideInput(tf.reshape(ids, shape), texts)

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
                self._call(
                    score.subword_log_probs, inputs, targets, self._leads
                ),
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
        words = tf.minimum(counts[:, 1:] - is_new, counts[:, -1:] - 1)
        return tf.where((ids == EOS) | (ids == PAD), _NO_WORD, words)


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


def _search_of(call, find, decode_hparams):
    """Return search(ids, return_beams), traced once for all signatures."""

    def build(return_beams):
        hparams = dataclasses.replace(decode_hparams, return_beams=return_beams)

        def uncompiled(ids):
            return call(find, ids, hparams)

        def find_one(models, ids, hparams):
            constants = search.decoding_constants(models, one_sentence=True)
            return find(models, ids, hparams, constants=constants)

        def in_buckets(find):
            return compiled.in_buckets(lambda ids, _: call(find, ids, hparams))

        one, many = in_buckets(find_one), in_buckets(find)

        def where_compiled(ids):
            count, length = tf.unstack(tf.shape(ids))
            fits = length <= BUCKETS["lengths"][-1]
            fit_many = fits & (0 < count) & (count <= BUCKETS["sentences"][-1])
            return tf.case(
                [
                    (fits & (count == 1), lambda: one(ids, ())),
                    (fit_many, lambda: many(ids, ())),
                ],
                lambda: uncompiled(ids),
            )

        return graph.function(
            where_compiled if hparams.xla == "on" else uncompiled,
            input_signature=[IDS],
        )

    searches = build(False), build(True)
    return lambda ids, return_beams: searches[return_beams](ids)
