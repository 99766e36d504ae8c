"""Models to searches: one model, or an ensemble with one vocabulary."""

import tensorflow as tf

from t2t_repro.decoding import sampling
from t2t_repro.decoding.beam_search import NEVER, Hypotheses, beam_search
from t2t_repro.text.subwords import PAD


def search(models, inputs, decode_hparams) -> Hypotheses:
    """The outputs of `models` for a batch, by the search that is asked for.

    Args:
        models: one, or several whose probabilities are averaged.
        inputs: [B, L] int32, ids with EOS, PAD after.
        decode_hparams: DecodeHParams.
    """
    beams, extra = decode_hparams.beam_size, decode_hparams.extra_length
    limits = tf.reduce_sum(tf.cast(inputs != PAD, tf.int32), 1) + extra
    max_length = tf.shape(inputs)[1] + extra
    memories, caches = zip(
        *(model.start_decoding(inputs, beams, max_length) for model in models),
        strict=True,
    )

    def step_fn(ids, step, caches):
        logits, new_caches = [], []
        for model, cache, memory in zip(models, caches, memories, strict=True):
            one, cache, _ = model.decode_step(ids, step, cache, memory)
            logits.append(one)
            new_caches.append(cache)
        log_probs = mean_log_probs(logits)
        is_pad = tf.range(log_probs.shape[-1]) == PAD  # no part of any text
        return tf.where(is_pad, NEVER, log_probs), tuple(new_caches)

    if decode_hparams.sampling_temp > 0:
        return sampling.sample(
            step_fn,
            caches,
            limits,
            beams,
            max_length,
            decode_hparams.sampling_temp,
            decode_hparams.sampling_seed,
        )
    return beam_search(
        step_fn, caches, limits, beams, max_length, decode_hparams.alpha
    )


def score(models, inputs, targets):
    """Log-probabilities of given outputs.

    Args:
        models: as of search.
        inputs, targets: [B, L] and [B, T] int32, ids with EOS, PAD after.

    Returns:
        [B] float32, sums over the subwords of each target, EOS included.
    """
    batch = {}
    for name, ids in (("inputs", inputs), ("targets", targets)):
        batch[name] = ids
        batch[f"{name}_segment"] = tf.cast(ids != PAD, tf.int32)
        batch[f"{name}_position"] = tf.broadcast_to(
            tf.range(tf.shape(ids)[1]), tf.shape(ids)
        )
    log_probs = mean_log_probs([model(batch) for model in models])
    of_targets = tf.gather(log_probs, targets, batch_dims=2)  # [B, T]
    return tf.reduce_sum(tf.where(targets != PAD, of_targets, 0.0), 1)


def mean_log_probs(logits):
    """Logits [..., V] of each model -> log of their mean probability."""
    log_probs = [tf.nn.log_softmax(one) for one in logits]
    if len(log_probs) == 1:
        return log_probs[0]
    total = tf.reduce_logsumexp(tf.stack(log_probs), axis=0)
    return total - tf.math.log(float(len(log_probs)))
