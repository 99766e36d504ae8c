"""Search with models: one model, or an ensemble with one vocabulary."""

import functools

import tensorflow as tf
from keras import ops

from t2t_repro import errors, registry
from t2t_repro.decoding import decode_loop, rules, sampling, score, shards
from t2t_repro.decoding.beam_search import beam_search
from t2t_repro.decoding.greedy import greedy_search
from t2t_repro.models.seq2seq import DecodingState
from t2t_repro.text.vocabulary import PAD

# Positions that a search is given room for at a time. A step copies what it
# has room for, and each block copies all that is past.
BLOCK = 8


def search(
    models,
    inputs,
    decode_hparams,
    prefixes=None,
    block=BLOCK,
    num_shards=1,
    constants=None,
    rule=None,
) -> decode_loop.Hypotheses:
    """Return the outputs of `models` for a batch.

    Args:
        models: one, or several whose probabilities are averaged.
        inputs: [B, L] int32, ids with EOS, PAD after.
        decode_hparams: DecodeHParams.
        prefixes: [B, P] int32, how outputs begin, PAD after; None: anyhow.
        block: of loop.SearchModel; None for XLA, which needs fixed shapes.
        num_shards: of the batch, searched at the same time.
        constants: decoding_constants(models), where many searches share
            them; None: made here.
        rule: of build_rules(decode_hparams, vocabulary); None: made here,
            without a vocabulary.

    Returns:
        Hypotheses, all beams or the best one, as decode_hparams say.

    Raises:
        UserError: a rule needs attention, and a model has none.
    """
    if rule is None:
        rule = build_rules(decode_hparams)
    require_attention(models, rule)
    if constants is None:
        constants = decoding_constants(models)
    return shards.map_shards(
        lambda *rows: _search(
            models, constants, decode_hparams, rule, block, *rows
        ),
        (inputs,) if prefixes is None else (inputs, prefixes),
        num_shards,
    )


def decoding_constants(models):
    """Return what each model makes once for many searches.

    For `base` the copy of the embedding takes 20 ms on a CPU, a twentieth of
    the search of one sentence.
    """
    return [model.decoding_constants() for model in models]


def build_rules(decode_hparams, vocabulary=None) -> rules.Rules:
    """Return all rules of a search as one.

    Args:
        decode_hparams: DecodeHParams.
        vocabulary: of the outputs, which registered rules are called with.

    Raises:
        UserError: an unknown name, or what is registered is not a rule.
    """
    found = [rules.LengthLimit(), rules.Prefix()]
    if decode_hparams.min_length > 1:
        found.append(rules.MinLength(decode_hparams.min_length))
    if decode_hparams.no_repeat_ngram_size:
        found.append(rules.NoRepeatNgrams(decode_hparams.no_repeat_ngram_size))
    if decode_hparams.coverage_penalty:
        found.append(rules.CoveragePenalty(decode_hparams.coverage_penalty))
    for name in filter(None, decode_hparams.rules.split("+")):
        entry = registry.search_rules[name]
        rule = entry.value(vocabulary)
        if not isinstance(rule, rules.Rule):
            raise errors.UserError(
                f"The search rule {name!r} of {entry.file} must be a "
                f"t2t_repro.decoding.rules.Rule; got {rule!r}."
            )
        found.append(rule)
    return rules.Rules(found)


def require_attention(models, rule):
    """Check that models have the attention that a rule needs.

    Args:
        models: one, or several.
        rule: of build_rules().

    Raises:
        UserError: a model has none; names it and the rules.
    """
    for model in models if rule.needs_attention else ():
        if "cross" not in model.attention_kinds:
            names = ", ".join(
                one.name for one in rule.rules if one.needs_attention
            )
            raise errors.UserError(
                f"The model {model.hparams.model!r} gives no attention over "
                f"the source, which these search rules need: {names}. Leave "
                "them out of --decode_hparams."
            )


def _search(models, constants, hparams, rule, block, inputs, prefixes=None):
    """Search one shard."""
    extra, alpha = hparams.extra_length, hparams.alpha
    max_length = ops.shape(inputs)[1] + extra
    if prefixes is not None:
        max_length = ops.maximum(max_length, ops.shape(prefixes)[1] + 1)
    sentences = _sentences(models, inputs, extra, prefixes)
    wanted, beams = hparams.num_outputs, hparams.beam_size
    is_sampled = hparams.sampling_temp > 0
    model = build_search_model(
        models,
        constants,
        inputs,
        wanted if is_sampled else beams,
        max_length,
        block,
        rule,
    )
    raw = hparams.raw_scores
    if is_sampled:
        return sampling.sample(
            model,
            sentences,
            rule,
            sampling.sentence_keys(inputs),
            wanted,
            max_length,
            alpha,
            sampling.Distribution(
                hparams.sampling_temp,
                hparams.sampling_keep_top_k,
                hparams.sampling_keep_top_p,
                hparams.sampling_seed,
            ),
            raw,
        )
    if beams == 1:
        return greedy_search(model, sentences, rule, max_length, alpha, raw)
    return beam_search(
        model, sentences, rule, beams, max_length, alpha, wanted, raw
    )


def _sentences(models, inputs, extra_length, prefixes) -> rules.Sentences:
    """Return what a search is given, with limits that every model allows."""
    lengths = tf.reduce_sum(tf.cast(inputs != PAD, tf.int32), 1)
    sentences = rules.sentences(lengths + extra_length, prefixes, inputs)
    bounds = [model.max_output_lengths(lengths) for model in models]
    limits = functools.reduce(
        tf.minimum,
        (tf.maximum(bound, 1) for bound in bounds if bound is not None),
        sentences.limits,
    )
    return sentences._replace(limits=limits)


def build_search_model(
    models, constants, inputs, num_beams, max_length, block, rule
) -> decode_loop.SearchModel:
    """Return models that decode `inputs` [B, L] together, as one.

    Args: as of search(), and
        num_beams: W.
        max_length: most steps.
    """
    capacity = max_length if block is None else block
    states = [
        model.start_decoding(inputs, num_beams, capacity, made)
        for model, made in zip(models, constants, strict=True)
    ]
    constants = [state.constants for state in states]

    def with_constants(states):
        return [
            DecodingState(made, *rest)
            for made, rest in zip(constants, states, strict=True)
        ]

    def without(states):
        """Leave the constants out, which the loop carries no copy of."""
        return tuple((state.sentences, state.hypotheses) for state in states)

    def step_fn(ids, position, states):
        outputs = [
            model.decode_step(ids, position, state)
            for model, state in zip(models, with_constants(states), strict=True)
        ]
        logits = score.ensemble_logits([one.logits for one in outputs])
        attention = None
        if rule.needs_attention:
            attention = tf.add_n([one.attention for one in outputs])
            attention /= len(outputs)
        return logits, attention, without([one.state for one in outputs])

    def reorder_fn(states, parents):
        pairs = zip(models, with_constants(states), strict=True)
        return without(
            [model.reorder_beams(state, parents) for model, state in pairs]
        )

    def compact_fn(states):
        pairs = zip(models, with_constants(states), strict=True)
        return without([model.compact_state(state) for model, state in pairs])

    return decode_loop.SearchModel(
        step_fn, without(states), reorder_fn, compact_fn, block
    )
