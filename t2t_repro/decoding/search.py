"""Search with one model, or with an ensemble that shares a vocabulary."""

import functools
from collections.abc import Sequence

import tensorflow as tf
from keras import ops

from t2t_repro import errors, registry
from t2t_repro.decoding import decode_loop, rules, sampling
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import arguments
from t2t_repro.layers import dense
from t2t_repro.models.seq2seq import DecodingState, Seq2Seq
from t2t_repro.runtime import graph
from t2t_repro.text.vocabulary import PAD, Vocabulary

# Steps of a block. Each step copies the state of the block's positions, and
# each block copies the state of all previous ones.
BLOCK = 8
# Blocks with fixed shapes. A second one costs 1 s of compilation, and saves a
# fifth of a sentence of `small`; a third one saves no more.
_FIXED_BLOCKS = 2


def search(
    models: Sequence[Seq2Seq],
    inputs: tf.Tensor,
    decode_hparams: DecodeHParams,
    given: rules.Given | None = None,
    constants: list | None = None,
    rule: rules.CombinedRule | None = None,
) -> decode_loop.Hypotheses:
    """Return the outputs of `models` for a batch.

    Args:
        models: one, or several whose probabilities are averaged.
        inputs: [B, L] int32, ids with EOS, PAD after.
        decode_hparams: settings of the search.
        given: prefixes, settings of sentences, side inputs; None: none of them.
        constants: decoding_constants(models), if many searches share them.
        rule: build_rules(decode_hparams, vocabulary); None: the same without
            a vocabulary.

    Returns:
        Hypotheses: all beams or the best one, depending on decode_hparams; or
        the most beams of any sentence, whose settings say how many count.

    Raises:
        UserError: a rule needs attention, and a model has none; or a rule
            needs side inputs, and there are none, or the reverse.
    """
    if rule is None:
        rule = build_rules(decode_hparams)
    if given is None:
        given = rules.Given()
    require_attention(models, rule)
    require_side(rule, bool(given.side))
    if rule.leads_outputs:  # the target language is moved to the prefixes
        inputs, prefixes = rules.split_language(inputs)
        if given.prefixes is not None:
            prefixes = tf.concat([prefixes, given.prefixes], 1)
        given = given._replace(prefixes=prefixes)
    if constants is None:
        constants = decoding_constants(models)
    extra_length = decode_hparams.extra_length
    max_length = ops.shape(inputs)[1] + extra_length
    if given.prefixes is not None:
        max_length = ops.maximum(max_length, ops.shape(given.prefixes)[1] + 1)
    settings = rules.settings_of(given.settings, decode_hparams)
    beams = rules.most(settings.beam_sizes)
    is_greedy = not given.settings and beams == 1
    find = sampling.greedy_search if is_greedy else _named(decode_hparams)
    if decode_hparams.sampling_temp > 0:
        find = sampling.sample
        beams = rules.most(sampling.samples_of(settings))
    return find(
        build_search_model(models, constants, inputs, beams, max_length, rule),
        _sentences(models, inputs, extra_length, given),
        rule,
        max_length,
        decode_hparams,
    )


def _named(decode_hparams):
    """Return the registered beam search of the settings, with arguments."""
    text = decode_hparams.beam_search
    name, _, values = text.partition(":")
    return arguments.bind(
        registry.searches[name].value,
        values,
        f"{decode_hparams.NOUN} beam_search={text}",
        num_given=5,
    )


def decoding_constants(
    models: Sequence[Seq2Seq], one_sentence: bool = False
) -> list:
    """Return the tensors of each model that many searches share.

    For `base` the copy of the embedding takes 20 ms on a CPU, a tenth of the
    search of one sentence. If most searches are for a single sentence, kernels
    have another form: see layers/dense.py.
    """
    constants = [model.decoding_constants() for model in models]
    form = dense.in_blocks if one_sentence else dense.with_more_columns
    return form(constants)


def build_rules(
    decode_hparams: DecodeHParams,
    vocabulary: Vocabulary | None = None,
    leads_outputs: bool = False,
) -> rules.CombinedRule:
    """Build all rules of a search, combined in one.

    Args:
        decode_hparams: settings of the search.
        vocabulary: vocabulary of the outputs, the argument of registered
            rules.
        leads_outputs: whether the vocabulary of the sources says so.

    Raises:
        UserError: a name or an argument is unknown or wrong, or the object
            of a name is not a rule.
    """
    result = rules.enabled(decode_hparams)
    setting = f"{decode_hparams.NOUN} rules"
    for text in decode_hparams.rule_texts:
        rule = registry.search_rules.construct(text, setting, vocabulary)
        if not isinstance(rule, rules.Rule):
            name = text.partition(":")[0]
            raise errors.UserError(
                f"The search rule {name!r} of "
                f"{registry.search_rules[name].file} must be a "
                f"t2t_repro.decoding.rules.Rule; got {rule!r}."
            )
        if rule.needs_beams and decode_hparams.sampling_temp > 0:
            raise errors.UserError(
                f"The search rule {rule.name} needs a search; got "
                f"sampling_temp={decode_hparams.sampling_temp}. Omit one."
            )
        result.append(rule)
    return rules.CombinedRule(result, leads_outputs)


def require_attention(
    models: Sequence[Seq2Seq], rule: rules.CombinedRule
) -> None:
    """Check that models have the attention that rules need.

    Raises:
        UserError: a model has none; names it and the rules.
    """
    for model in models if rule.needs_attention else ():
        if "cross" not in model.attention_kinds:
            names = ", ".join(
                part.name for part in rule.rules if part.needs_attention
            )
            raise errors.UserError(
                f"The model {model.hparams.model!r} gives no attention over "
                f"the source, which these search rules need: {names}. Remove "
                "them from --decode_hparams."
            )


def require_side(rule: rules.CombinedRule, is_given: bool) -> None:
    """Check that lines have side inputs if rules need them, and only then.

    Raises:
        UserError: names the rules.
    """
    if rule.needs_side and not is_given:
        names = ", ".join(part.name for part in rule.rules if part.needs_side)
        raise errors.UserError(
            "These search rules need a side input, a text beside each line, "
            f"and there is none: {names}. Give --decode_side_file beside "
            "--decode_from_file or, in Python, translate(lines, side=…). "
            "Attention, conversations and folders have none: remove the rules."
        )
    if is_given and not rule.needs_side:
        raise errors.UserError(
            "There are side inputs, and no search rule reads them. Name a rule "
            "that does with --decode_hparams=rules=…, or omit the side inputs."
        )


def _sentences(models, inputs, extra_length, given):
    """Return the Sentences of inputs, with limits that every model allows."""
    lengths = tf.reduce_sum(tf.cast(inputs != PAD, tf.int32), 1)
    limits = lengths + extra_length
    sentences = rules.sentences(
        limits, given.prefixes, inputs, given.settings, given.side
    )
    bounds = [model.max_output_lengths(lengths) for model in models]
    limits = functools.reduce(
        tf.minimum,
        (tf.maximum(bound, 1) for bound in bounds if bound is not None),
        sentences.limits,
    )
    return sentences._replace(limits=limits)


def build_search_model(
    models: Sequence[Seq2Seq],
    constants: list,
    inputs: tf.Tensor,
    num_beams: tf.Tensor | int,
    max_length: tf.Tensor | int,
    rule: rules.CombinedRule,
) -> decode_loop.SearchModel:
    """Combine models that decode `inputs` [B, L] to one SearchModel.

    Its state is (sentences, hypotheses) of each model's DecodingState: the loop
    carries no copy of the constants. `num_beams` is W, `max_length` the number
    of steps at the most, and the others are arguments of search().
    """
    block, num_blocks = BLOCK, None
    if graph.shapes_are_fixed():
        num_blocks = _FIXED_BLOCKS
        block = -(-max_length // num_blocks)
    initial = [
        model.start_decoding(inputs, num_beams, block, model_constants)
        for model, model_constants in zip(models, constants, strict=True)
    ]
    constants = [state.constants for state in initial]

    def with_models(states):
        whole = map(DecodingState, constants, *zip(*states, strict=True))
        return zip(models, whole, strict=True)

    def carried(states):
        return tuple((state.sentences, state.hypotheses) for state in states)

    def step(ids, position, states):
        outputs = [
            model.decode_step(ids, position, state)
            for model, state in with_models(states)
        ]
        logits = ensemble_logits([output.logits for output in outputs])
        attention = None
        if rule.needs_attention:
            attention = tf.add_n([output.attention for output in outputs])
            attention /= len(outputs)
        return logits, attention, carried(output.state for output in outputs)

    def reorder_beams(states, parents):
        return carried(
            model.reorder_beams(state, parents)
            for model, state in with_models(states)
        )

    def compact(states):
        return carried(
            model.compact_state(state) for model, state in with_models(states)
        )

    return decode_loop.SearchModel(
        step, carried(initial), reorder_beams, compact, block, num_blocks
    )


def ensemble_logits(logits: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return logits of the mean probability of models' logits [..., V]."""
    if len(logits) == 1:
        return logits[0]
    log_probs = [tf.nn.log_softmax(model_logits) for model_logits in logits]
    return tf.reduce_logsumexp(tf.stack(log_probs), axis=0)
