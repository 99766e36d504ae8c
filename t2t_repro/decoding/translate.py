"""Translation of lines in batches sorted by length, in the order of input."""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro import errors, registry
from t2t_repro.decoding import compiled, reranking, rules, score, search
from t2t_repro.decoding.score import TargetScore, length_sorted, pad_rows
from t2t_repro.decoding.translation import (
    AttentionTrace,
    Stopped,
    Translation,
    join,
    layer_index,
)
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import arguments, progress
from t2t_repro.models.seq2seq import (
    AttentionWeights,
    Seq2Seq,
    one_sentence_per_row,
)
from t2t_repro.runtime import devices, graph
from t2t_repro.text import word_alignment
from t2t_repro.text.vocabulary import EOS, PAD, Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies
from t2t_repro.text.word_alignment import Alignment

# Word alignments of sentences and translations, by a model's attention.
#
# A subword of the translation is linked to the subword of the source that has
# the greatest cross-attention weight, in one layer, averaged over its heads. By
# default this is the last layer but one, whose attention agrees best with
# alignments by people, or the head that was trained to align (Garg et al.
# 2019).


class Aligner:
    """Models that align given translations, in one forward pass."""

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        vocabularies: Vocabularies,
        layer: int | None = None,
    ) -> None:
        """Store the arguments; TensorFlow traces the forward pass later.

        Args:
            models: one, or an ensemble, whose weights are averaged.
            vocabularies: source and target, the same for all models.
            layer: argument of layer_index(); None: the head of a model that
                was trained with the loss guided_alignment.

        Raises:
            UserError: a model has no attention weights, or no such layer.
        """
        self._source, self._target = vocabularies
        any_ids = tf.constant([[EOS, EOS]])
        heads = []  # index of the layer, and slice of its heads
        for model in models:
            if "cross" not in model.attention_kinds:
                raise errors.UserError(
                    f"The model {model.hparams.model!r} has no attention over "
                    "the source, which aligns words. Omit --alignments."
                )
            num_layers = len(score.cross_attention(model, any_ids, any_ids))
            chosen, heads_of_layer = layer, slice(None)
            if layer is None and (guided := _guided_alignment(model)):
                chosen = guided.layer
                heads_of_layer = slice(guided.head - 1, guided.head)
            heads.append((layer_index(chosen, num_layers), heads_of_layer))

        def best_sources(inputs, outputs):
            leads, weights = self._source.leads_outputs, []
            for model, (index, of_layer) in zip(models, heads, strict=True):
                layers = score.cross_attention(model, inputs, outputs, leads)
                weights.append(tf.reduce_mean(layers[index][:, of_layer], 1))
            total = tf.add_n(weights)  # [B, T, L]
            is_text = score.is_text(inputs, self._source)
            total = tf.where(is_text[:, None], total, -1.0)
            return tf.argmax(total, -1, tf.int32)  # [B, T]

        ids = tf.TensorSpec([None, None], tf.int32)
        self._best_sources = graph.function(
            best_sources, input_signature=[ids, ids]
        )

    def align(self, inputs: tf.Tensor, outputs: tf.Tensor) -> list[Alignment]:
        """Return the alignment of each sentence.

        `inputs` [B, L] and `outputs` [B, T] are int32 ids with EOS, PAD after.
        Without text on both sides there are no links.
        """
        traced = self._best_sources.get_concrete_function()
        best = devices.map_shards(traced, (inputs, outputs)).numpy()
        alignments = []
        for source, target, positions in zip(
            inputs.numpy(), outputs.numpy(), best, strict=True
        ):
            source_words, target_words = (
                word_alignment.words(
                    vocabulary, row[: np.argmax(row == EOS) + 1].tolist()
                )
                for vocabulary, row in (
                    (self._source, source),
                    (self._target, target),
                )
            )
            has_text = max(source_words, default=-1) >= 0
            # The positions of EOS and PAD are not read.
            first = int(self._source.leads_outputs)  # which is no word
            columns = range(first, len(target_words) if has_text else 0)
            links = zip(positions[first:], columns, strict=False)
            alignments.append(
                word_alignment.align_words(links, source_words, target_words)
            )
        return alignments


def _guided_alignment(model: Seq2Seq) -> Any:
    """Return the model's loss guided_alignment; None: it has another."""
    for text in arguments.split(model.hparams.loss):
        if text.partition(":")[0] == "guided_alignment":
            return registry.losses.construct(text, "hparam loss")
    return None


# Sentences that are sorted by length together and held in memory.
SORT_WINDOW = 20_000
_IDS = tf.TensorSpec([None, None], tf.int32)


class _Row(NamedTuple):
    """A line to translate, or a fragment of it."""

    line: int  # index of the line
    ids: list[int]
    start: list[int]  # ids of the prefix
    side: str  # side input


def _in_windows(
    process: Callable[[list, Any], list],
    items: Iterable,
    desc: str,
    total: int | None,
) -> Iterator:
    """Yield the results of process(window, bar), a window after another."""
    with progress.bar(
        total=total,
        desc=desc,
        unit="line",
        delay=progress.DELAY_SECONDS,
        leave=None,  # not within another bar, as in a training
        disable=total is None,
    ) as bar:
        iterator = iter(items)
        while window := list(itertools.islice(iterator, SORT_WINDOW)):
            yield from process(window, bar)


class BatchTranslator:
    """Engine of a run's Translator: models with one search, and streams.

    It translates, scores and shows attention as a Translator does, of lines
    that are normalized already. A file may be larger than memory, prefixes may
    be given, and weights may change between translations.
    """

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        vocabularies: Vocabularies,
        decode_hparams: DecodeHParams,
        aligner: Aligner | None = None,
        split: Callable[[str], list[str]] = lambda line: [line],
        num_shards: int | None = None,
        one_sentence: bool = False,
    ) -> None:
        """Store the arguments; TensorFlow traces the search later.

        Args:
            models: one, or an ensemble.
            vocabularies: source and target, the same for all models.
            decode_hparams: settings of the search.
            aligner: Aligner of the translations; None: they are not aligned.
            split: function of a line that returns its sentences, which are
                translated one by one and joined; by default the whole line.
            num_shards: argument of devices.map_shards(). With 1, outputs do not
                depend on the number of cores, by which rounding differs.
            one_sentence: whether lines are translated one at a time, which is
                then faster.

        Raises:
            UserError: a search rule or the reranker is unknown or wrong, a
                rule needs attention and a model has none, or what is reranked
                is to be aligned.
        """
        self._models = models
        self._source, self._target = vocabularies
        self._hparams = decode_hparams
        self.reranker = reranking.build(decode_hparams, bool(aligner))
        search_hparams = decode_hparams
        if self.reranker:
            raw = decode_hparams.raw_scores or self.reranker.needs_log_probs
            search_hparams = dataclasses.replace(
                decode_hparams, return_beams=True, raw_scores=raw
            )
        self._aligner, self._split = aligner, split
        self._rule = search.build_rules(
            decode_hparams, self._target, self._source.leads_outputs
        )
        search.require_attention(models, self._rule)
        self._search = compiled.Search(
            models, search_hparams, self._rule, num_shards, one_sentence
        )
        self._score = graph.function(
            lambda inputs, targets: score.subword_log_probs(
                models, inputs, targets, self._source.leads_outputs
            ),
            input_signature=[_IDS, _IDS],
        )

    def refresh_weights(self) -> None:
        """Update the decoding constants after the models' weights changed."""
        self._search.refresh_weights()

    def translate(
        self,
        lines: Iterable[str],
        total: int | None = None,
        prefixes: Iterable[str] = itertools.repeat(""),
        stop: Callable[[], object] = lambda: False,
        side: Iterable[str] | None = None,
    ) -> Iterator[Translation]:
        """Yield translations in the order of `lines`.

        Blank lines stay blank, unless the search has `allow_empty_source`.

        A line longer than max_input_length is split, and the scores of its
        fragments are summed. With long_inputs=refuse, or with side inputs, its
        translation is blank and has the number of subwords in `too_long`.

        Args:
            lines: consumed lazily, so that memory is bounded.
            total: number of lines, for the progress bar; None: no bar.
            prefixes: start of the translation of each line.
            stop: function that is called before each batch; true ends the
                translation.
            side: side input of each line, for search rules: see SideInput.

        Raises:
            UserError: a rule needs side inputs, or none does.
            Stopped: stop() was true; has the translations of the lines that
                are sorted together.
        """
        self.require_side(side is not None)
        if side is None:
            side = itertools.repeat("")
        requests = zip(lines, prefixes, side, strict=False)  # some never end
        translate = functools.partial(self._translate_window, stop=stop)
        return _in_windows(translate, requests, "translate", total)

    def score(
        self, pairs: Iterable[tuple[str, str]], total: int | None = None
    ) -> Iterator[TargetScore]:
        """Yield the score of each target given its input, in order.

        Args:
            pairs: consumed lazily, so that memory is bounded.
            total: number of pairs, for the progress bar; None: no bar.
        """
        return _in_windows(self._score_window, pairs, "score", total)

    def log_probs(
        self, sources: Sequence[str], references: Sequence[str]
    ) -> np.ndarray:
        """Return log-probability and subwords of each reference, [N, 2].

        Raises:
            UserError: a line is longer than max_input_length, so that not all
                of it would be read or scored.
        """
        limit = self._hparams.max_input_length
        sides = (
            ("Source", self._source, sources),
            ("Reference", self._target, references),
        )
        for side, vocabulary, lines in sides:
            lengths = map(len, vocabulary.encode(lines))
            for number, length in enumerate(lengths, 1):
                if length > limit:
                    raise errors.UserError(
                        f"{side} {number:,} has {length:,} subwords, more than "
                        f"max_input_length={limit:,}, and no perplexity of a "
                        "part is that of the text. Say --decode_hparams="
                        f"max_input_length={length} or more."
                    )
        pairs = zip(sources, references, strict=True)
        found = self.score(pairs, len(references))
        return np.array([(each.total, len(each.pieces)) for each in found])

    def attention(self, line: str) -> AttentionTrace:
        """Translate a line; return the first model's attention weights.

        The line is a batch by itself, so that no padding appears.

        Raises:
            UserError: the line is blank or longer than MAX_SUBWORDS, or the
                model has no attention weights.
        """
        model = self.require_attention()
        self.require_side(False)
        (ids,) = self._source.encode([line])
        keeps_blank = self._hparams.allow_empty_source
        is_blank = not (keeps_blank or self._source.has_text(ids))
        if is_blank or len(ids) > score.MAX_SUBWORDS:
            raise errors.UserError(
                "Attention is shown for sentences of 1 to "
                f"{score.MAX_SUBWORDS - 1} subwords, without tags; got "
                f"{len(ids) - 1} in {line[:80]!r}."
            )
        inputs, no_prefix = pad_rows([ids]), pad_rows([[]])
        found, scores = self._search(inputs, no_prefix)
        best = 0
        if self.reranker:
            texts = self._target.decode(found[0].numpy())
            beams = Translation.of_beams(texts, scores[0].numpy().tolist())
            _, text = self._source.split_tag(line)
            best = self.reranker.order([text], [beams])[0][0][0]
        targets = tf.boolean_mask(found[0, best], found[0, best] != PAD)[None]
        if self._source.leads_outputs:
            ids, inputs = ids[1:], inputs[:, 1:]
        batch = one_sentence_per_row(inputs, targets)
        weights = [
            None if kind is None else kind[:, 0].numpy()
            for kind in model.attention_weights(batch)
        ]
        output_ids = targets[0].numpy().tolist()
        return AttentionTrace(
            line,
            self._target.decode([output_ids])[0],
            self._source.pieces(ids),
            self._target.pieces(output_ids),
            AttentionWeights(*weights),
        )

    def require_attention(self) -> Seq2Seq:
        """Return the first model, if it has attention weights to show."""
        model = self._models[0]
        if "cross" not in model.attention_kinds:
            raise errors.UserError(
                f"The model {model.hparams.model!r} has no attention weights "
                "to show."
            )
        return model

    def require_side(self, is_given: bool) -> None:
        """Check that there are side inputs just if a search rule needs them.

        Raises:
            UserError: names the rules.
        """
        search.require_side(self._rule, is_given)

    def is_blank(self, line: str) -> bool:
        """Return whether a line has no text to translate."""
        return not self._source.has_text(*self._source.encode([line]))

    def _translate_window(
        self,
        requests: list[tuple[str, str, str]],
        bar: Any,
        stop: Callable[[], object],
    ) -> list[Translation]:
        sentences = [self._split(line) for line, *_ in requests]
        rows, refused = self._rows(requests, sentences)
        # Number of fragments of each line that are not translated yet.
        remaining = np.bincount(
            [row.line for row in rows], minlength=len(requests)
        )
        bar.update(np.count_nonzero(remaining == 0))
        found: dict[int, Translation] = {}  # {index of a row: its translation}
        for i, translation in self._search_rows(rows, stop):
            found[i] = translation
            remaining[rows[i].line] -= 1
            bar.update(remaining[rows[i].line] == 0)
        parts: list[list[Translation | None]] = [[] for _ in requests]
        for i, row in enumerate(rows):
            parts[row.line].append(found.get(i))
        translations = list(map(self._join, parts, refused))
        if self.reranker:
            self._rerank(translations, sentences, parts)
        if self._hparams.distinct:
            translations = [
                found and found.distinct() for found in translations
            ]
        if len(found) < len(rows):
            raise Stopped(translations)
        return translations

    def _join(self, parts, refused):
        """Join the translations of a line's fragments; None: one is missing."""
        if None in parts:
            return None
        outputs, is_aligned = self._hparams.num_outputs, bool(self._aligner)
        return join(parts, outputs, is_aligned)._replace(too_long=refused)

    def _rerank(self, translations, sentences, parts):
        """Replace the finished translations of lines that are not blank."""
        chosen = [
            i for i, found in enumerate(translations) if found and parts[i]
        ]
        sources = [
            " ".join(self._source.split_tag(text)[1] for text in sentences[i])
            for i in chosen
        ]
        reranked = self.reranker.rerank(
            sources, [translations[i] for i in chosen]
        )
        for i, found in zip(chosen, reranked, strict=True):
            translations[i] = found.best(self._hparams.num_outputs)

    def _rows(
        self,
        requests: Sequence[tuple[str, str, str]],
        sentences: Sequence[Sequence[str]],
    ) -> tuple[list[_Row], list[int]]:
        """Return rows to translate, and the length of each refused line.

        Refused lines have no row, nor have blank ones, unless the search allows
        an empty source. The length is that of the longest sentence of a line,
        in subwords, and 0 if the line is not refused.
        """
        limit = self._hparams.max_input_length
        refuses = self._hparams.long_inputs == "refuse" or self._rule.needs_side
        keeps_blank = self._hparams.allow_empty_source
        _, prefixes, side = zip(*requests, strict=True)
        encoded = iter(self._source.encode(list(itertools.chain(*sentences))))
        # Without EOS, since the output continues.
        starts = [ids[:-1] for ids in self._encode(self._target, prefixes)]
        rows: list[_Row] = []
        refused = []
        for line, texts in enumerate(sentences):
            of_line = [(text, next(encoded)) for text in texts]
            longest = max((len(ids) for _, ids in of_line), default=0)
            is_refused = refuses and longest > limit
            refused.append(longest if is_refused else 0)
            parts = itertools.chain.from_iterable(
                [ids]
                if len(ids) <= limit
                else score.fragments(text, self._source, limit)
                for text, ids in ([] if is_refused else of_line)
            )
            start = starts[line]
            for ids in parts:
                if not (keeps_blank or self._source.has_text(ids)):
                    continue
                rows.append(_Row(line, ids, start, side[line]))
                start = []  # only the first fragment begins with the prefix
        return rows, refused

    def _search_rows(
        self, rows: Sequence[_Row], stop: Callable[[], object]
    ) -> Iterator[tuple[int, Translation]]:
        """Yield index and translation of each row, longest first."""
        # A beam's cache has an entry for each subword of its longest output.
        extra = self._hparams.extra_length
        lengths = [
            max(len(row.ids) + extra, len(row.start) + 1) for row in rows
        ]
        self._rule.check([row.side for row in rows], lengths)
        max_tokens = self._hparams.batch_tokens // self._hparams.beam_size
        for batch in length_sorted(range(len(rows)), lengths, max_tokens):
            if stop():
                return
            inputs = pad_rows([rows[i].ids for i in batch])
            prefixes = pad_rows([rows[i].start for i in batch])
            side: tuple[tf.Tensor, ...] = ()
            if self._rule.needs_side:
                side = self._side_input([rows[i].side for i in batch])
            hypotheses = self._search(inputs, prefixes, side)
            alignments: list = [None] * len(batch)
            if self._aligner:
                alignments = self._aligner.align(inputs, hypotheses.ids[:, 0])
            for i, ids, scores, alignment in zip(
                batch,
                hypotheses.ids.numpy(),
                hypotheses.scores.numpy(),
                alignments,
                strict=True,
            ):
                texts, scores = self._target.decode(ids), scores.tolist()
                yield i, Translation.of_beams(texts, scores, alignment)

    def _side_input(self, texts: list[str]) -> rules.SideInput:
        fields = itertools.zip_longest(
            *(text.split("\t") for text in texts), fillvalue=""
        )  # [M, B]
        phrases = list(itertools.chain(*zip(*fields, strict=True)))
        ids = pad_rows([row[:-1] for row in self._target.encode(phrases)])
        shape = len(texts), len(phrases) // len(texts), ids.shape[1]
        return rules.SideInput(tf.reshape(ids, shape), tf.constant(texts))

    def _score_window(
        self, pairs: list[tuple[str, str]], bar: Any
    ) -> list[TargetScore]:
        source_lines, target_lines = zip(*pairs, strict=True)
        sources = self._encode(self._source, source_lines)
        targets = self._encode(self._target, target_lines)
        lengths = [
            max(len(source), len(target))
            for source, target in zip(sources, targets, strict=True)
        ]
        scores: list = [None] * len(pairs)
        max_tokens = self._hparams.batch_tokens
        for batch in length_sorted(range(len(pairs)), lengths, max_tokens):
            arrays = (
                pad_rows([sources[i] for i in batch]),
                pad_rows([targets[i] for i in batch]),
            )
            rows = self._score(*arrays).numpy()
            alignments: list = [None] * len(batch)
            if self._aligner:
                if self._source.leads_outputs:  # as outputs of a search have it
                    _, first = rules.split_language(arrays[0])
                    arrays = arrays[0], tf.concat([first, arrays[1]], 1)
                alignments = self._aligner.align(*arrays)
            for i, row, alignment in zip(batch, rows, alignments, strict=True):
                ids = targets[i]
                scores[i] = TargetScore(
                    self._target.pieces(ids),
                    row[: len(ids)].tolist(),
                    alignment,
                )
                bar.update()
        return scores

    def _encode(
        self, vocabulary: Vocabulary, lines: Sequence[str]
    ) -> list[list[int]]:
        """Convert lines to ids, truncated to max_input_length with EOS."""
        limit = self._hparams.max_input_length
        encoded = vocabulary.encode(lines)
        if long := [len(row) for row in encoded if len(row) > limit]:
            warnings.warn(
                f"{len(long):,} lines are longer than max_input_length={limit} "
                f"subwords, the longest has {max(long):,}; their ends are "
                "ignored.",
                stacklevel=2,
            )
        return [score.truncate_rows(row, limit) for row in encoded]
