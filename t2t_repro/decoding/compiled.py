"""Searches that XLA compiles, for few shapes of batches.

XLA compiles a program for each shape, which takes seconds. So a batch is padded
to a bucket: to 1, 8, 16, 32, 48, … sentences, and to 16, 32, 64, … subwords.
Further sentences repeat the first one, which ends when it does. The outputs are
those of the uncompiled search: a sentence's result depends neither on padding
nor on other sentences.

The loops end with the last sentence. But a step reads all of its cache, used or
not. So there are two: the cache of the first has room for half of the longest
possible output.
"""

import atexit
import bisect
import functools
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence

import tensorflow as tf

from t2t_repro.decoding import decode_loop, rules, search
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.runtime import devices, graph

_FEW_SENTENCES = 1, 8
_MANY_SENTENCES = 16  # and its multiples
_LENGTHS = (0, *(16 << i for i in range(21)))
# Seconds of uncompiled searches in a bucket after which it is compiled: then it
# takes 4 to 7 s of CPU time, and saves a quarter of `base` with AVX-512, 60% of
# it with AVX2, and more of smaller models (scripts/benchmarks/bench_decode.py).
_SECONDS_BEFORE = 15.0
_SILENT_SECONDS = 1.0  # of waiting at the end of the process
# The kernels of the decoder have a copy in the form for single sentences: 0.6
# GB of `big` (213 million weights).
_MAX_WEIGHTS_TO_COMPILE_LATER = 300_000_000
_IDS = tf.TensorSpec([None, None], tf.int32)
# XLA raises the first. Tracing raises the others where a rule reads the texts
# of side inputs, which are () in a compiled search.
_REFUSALS = tf.errors.OpError, TypeError, ValueError
_REFUSED = re.compile(r"on XLA_\w+: (\w+) .*?{{node (.*?)}}")
_FAILED = re.compile(r"(.+)\n\s*\[\[{{node (.*?)}}")  # with these shapes


def padded_count(sentences: tf.Tensor) -> tf.Tensor:
    """Return the number of sentences of the bucket for [] int32 sentences."""
    count = -(-sentences // _MANY_SENTENCES) * _MANY_SENTENCES
    for few in reversed(_FEW_SENTENCES):
        count = tf.where(sentences <= few, few, count)
    return count


def padded_length(length: tf.Tensor | int) -> tf.Tensor:
    """Return the length of the bucket for [] int32 subwords; 0 stays 0."""
    return tf.gather(_LENGTHS, tf.searchsorted(_LENGTHS, [length])[0])


def in_buckets(find: Callable) -> Callable:
    """Return a function for graphs that pads a batch, and runs `find` compiled.

    `find` takes ids [B, …, L] int32 of one or more kinds, PAD after, and a nest
    of tensors without sentences. It returns a nest of tensors [B, …].
    """

    def find_in_bucket(*arguments):
        with graph.fixed_shapes():
            return find(*arguments)

    compiled = graph.function(find_in_bucket, jit_compile=True)

    def call(*arguments):
        *rows, shared = arguments
        count = tf.shape(rows[0])[0]
        more = padded_count(count) - count

        def pad(ids):
            length = tf.shape(ids)[-1]
            columns = padded_length(length) - length
            others = [(0, 0)] * (ids.shape.rank - 1)
            ids = tf.pad(ids, [*others, (0, columns)])
            return tf.concat([ids, tf.repeat(ids[:1], more, axis=0)], 0)

        found = compiled(*map(pad, rows), shared)
        return tf.nest.map_structure(lambda x: x[:count], found)

    return call


def what_is_refused(error: Exception) -> str:
    """Return the operation that XLA cannot compile, and its name.

    The name has those of the rule, or of the layers, that have created it.
    """
    if found := _REFUSED.search(str(error)):
        return f"the operation {found[1]} ({found[2]})"
    if found := _FAILED.search(str(error)):
        return f"the operation {found[2]}: {found[1]}"
    return str(error).partition("\n")[0]


def _wait_for(compilation):
    """Wait for a thread; the compiler aborts a process that ends meanwhile."""
    try:
        compilation.join(_SILENT_SECONDS)
        if compilation.is_alive():
            print(
                "Waiting for the compilation of a search; Ctrl-C ends it.",
                file=sys.stderr,
            )
        compilation.join()
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGINT)


class Search:
    """Search with the same models and settings, compiled where it pays."""

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        decode_hparams: DecodeHParams,
        rule: rules.CombinedRule,
        num_shards: int | None = None,
        one_sentence: bool = False,
    ) -> None:
        """Store the arguments; TensorFlow traces the search later.

        The rule is a result of search.build_rules(). `num_shards` is that of
        devices.map_shards(): with 1, outputs are a function of the batch, and
        xla=auto compiles all or nothing. `one_sentence` is that of
        search.decoding_constants().
        """
        self._models, self._hparams, self._rule = models, decode_hparams, rule
        self._num_shards = num_shards
        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        self._one_sentence = one_sentence and not has_gpu
        self._compiles = devices.use_xla(decode_hparams.xla)
        weights = sum(model.count_params() for model in models)
        self._may_compile_later = (
            decode_hparams.xla == "auto"
            and not has_gpu
            and num_shards != 1
            and weights < _MAX_WEIGHTS_TO_COMPILE_LATER
        )
        self._seconds: dict[tuple, float] = {}  # of uncompiled searches
        self._compiled_buckets: set[tuple] = set()
        self._function = functools.cache(self._build_function)
        self.refresh_weights()

    def refresh_weights(self) -> None:
        """Update the decoding constants after the models' weights changed."""
        self._constants: dict[bool, list] = {}  # by the argument one_sentence

    def __call__(
        self,
        inputs: tf.Tensor,
        prefixes: tf.Tensor,
        side: rules.SideInput | tuple[()] = (),
    ) -> decode_loop.Hypotheses:
        """Search for the outputs of inputs [B, L] and prefixes [B, P] int32.

        If XLA cannot compile the search, a warning says why. A rule that reads
        the text of side inputs is never compiled.
        """
        ids = (inputs, prefixes, *side)
        if self._compiles:
            try:
                return self._run(ids, compiled=True)
            except _REFUSALS as error:
                self._refuse(error)
        if not (self._may_compile_later and len(inputs) == 1):
            return self._run(ids)
        bucket = tuple(
            # As padded_length(), without operations of a graph.
            bisect.bisect_left(_LENGTHS, each.shape[-1])
            for each in (inputs, prefixes)
        )
        if bucket in self._compiled_buckets:
            return self._run(ids, compiled=True)
        if bucket not in self._seconds:  # this search may trace the graph
            self._seconds[bucket] = 0.0
            return self._run(ids)
        start = time.perf_counter()
        found = self._run(ids)
        before = self._seconds[bucket]
        self._seconds[bucket] = before + time.perf_counter() - start
        if before < _SECONDS_BEFORE <= self._seconds[bucket]:
            thread = threading.Thread(
                target=self._compile, args=(ids, bucket), daemon=True
            )
            thread.start()
            atexit.register(_wait_for, thread)
        return found

    def _compile(self, ids, bucket):
        try:
            self._run(ids, compiled=True)
            self._compiled_buckets.add(bucket)
        except _REFUSALS as error:
            self._refuse(error)

    def _refuse(self, error):
        self._compiles = self._may_compile_later = False
        warnings.warn(
            "The search runs uncompiled: XLA cannot compile "
            f"{what_is_refused(error)}",
            stacklevel=2,
        )

    def _run(self, ids, compiled=False):
        # What is compiled later is the search of one sentence.
        one_sentence = self._one_sentence or (
            compiled and self._may_compile_later
        )
        if one_sentence not in self._constants:
            with tf.init_scope():  # they outlast a tf.function of the caller
                self._constants[one_sentence] = search.decoding_constants(
                    self._models, one_sentence
                )
        constants = self._constants[one_sentence]
        function = self._function(compiled, one_sentence)
        ids = ids[:3] if compiled else ids  # without the texts of side inputs
        return devices.map_shards(function, ids, (constants,), self._num_shards)

    def _build_function(self, compiled, one_sentence):
        """Trace the search.

        A concrete function takes its arguments in half the time: it does not
        compare the types of all constants, about a hundred, with its own.
        """

        def find(inputs, prefixes, *others):
            *side, constants = others
            return search.search(
                self._models,
                inputs,
                self._hparams,
                rules.Given(
                    prefixes, side=rules.SideInput(*side) if side else ()
                ),
                constants=constants,
                rule=self._rule,
            )

        side = rules.SIDE_SPECS if self._rule.needs_side else ()
        side = side[:1] if compiled else side
        constants = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype),
            self._constants[one_sentence],
        )
        return graph.function(
            in_buckets(find) if compiled else find,
            input_signature=[_IDS, _IDS, *side, constants],
        ).get_concrete_function()
