"""Models to searches: one model, or an ensemble with one vocabulary."""

import tensorflow as tf
from keras import ops

from t2t_repro.decoding import constraints, loop, sampling, score, shards
from t2t_repro.decoding.beam_search import beam_search, length_penalty
from t2t_repro.decoding.greedy import greedy_search
from t2t_repro.text.subwords import EOS, PAD

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
    kernels=None,
) -> loop.Hypotheses:
    """The outputs of `models` for a batch, by the search that is asked for.

    Args:
        models: one, or several whose probabilities are averaged.
        inputs: [B, L] int32, ids with EOS, PAD after.
        decode_hparams: DecodeHParams.
        prefixes: [B, P] int32, how outputs begin, PAD after; None: anyhow.
        block: of loop.Steps; None for XLA, which needs fixed shapes.
        num_shards: of the batch, searched at the same time.
        kernels: softmax_kernels(models), where many searches have them in
            common; else they are made here.

    Returns:
        Hypotheses, all beams or the best one, as decode_hparams say.
    """
    kernels = softmax_kernels(models) if kernels is None else kernels
    return shards.at_once(
        lambda *rows: _search(models, kernels, decode_hparams, block, *rows),
        (inputs,) if prefixes is None else (inputs, prefixes),
        num_shards,
    )


def softmax_kernels(models):
    """What turns states into logits: a copy of each model's embedding.

    Of base that takes 20 ms of a CPU, a twentieth of a sentence's search.
    """
    return [model.softmax.kernel() for model in models]


def _search(models, kernels, decode_hparams, block, inputs, prefixes=None):
    """The search of one shard."""
    extra = decode_hparams.extra_length
    limits = tf.reduce_sum(tf.cast(inputs != PAD, tf.int32), 1) + extra
    max_length = ops.shape(inputs)[1] + extra
    if prefixes is not None:
        max_length = ops.maximum(max_length, ops.shape(prefixes)[1] + 1)
    found = _find(
        lambda beams: model_steps(
            models, kernels, inputs, beams, max_length, block
        ),
        constraints.bounds(limits, prefixes),
        decode_hparams,
        max_length,
        inputs,
    )
    if not decode_hparams.raw_scores:
        return found
    lengths = tf.argmax(found.ids == EOS, -1) + 1
    penalties = length_penalty(lengths, decode_hparams.alpha)
    return found._replace(scores=found.scores * penalties)


def _find(steps_of, bounds, hparams, max_length, inputs):
    """steps_of: a function of the number of beams -> loop.Steps."""
    rules = constraints.Rules(hparams.min_length, hparams.no_repeat_ngram_size)
    beams, alpha = hparams.beam_size, hparams.alpha
    wanted = hparams.num_outputs
    if hparams.sampling_temp > 0:
        return sampling.sample(
            steps_of(wanted),
            bounds,
            rules,
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
        )
    steps = steps_of(beams)
    if beams == 1:
        return greedy_search(steps, bounds, rules, max_length, alpha)
    return beam_search(steps, bounds, rules, beams, max_length, alpha, wanted)


def model_steps(
    models, kernels, inputs, beam_size, max_length, block
) -> loop.Steps:
    """What a search knows of models that decode `inputs` [B, L] together."""
    room = max_length if block is None else block

    def step_fn(ids, parents, step, caches):
        logits, new_caches = [], []
        for model, cache, kernel in zip(models, caches, kernels, strict=True):
            one, cache, _ = model.decode_step(ids, parents, step, cache, kernel)
            logits.append(one)
            new_caches.append(cache)
        return score.mixed(logits), tuple(new_caches)

    return loop.Steps(
        step_fn,
        tuple(
            model.start_decoding(inputs, beam_size, room) for model in models
        ),
        lambda caches: tuple(cache.settle() for cache in caches),
        block,
    )
