"""Given outputs: how likely models hold them, and where they look."""

import tensorflow as tf

from t2t_repro.text.vocabulary import PAD

MAX_LOGITS = 2**28  # 1 GiB in float32; their softmax takes as much


def subword_log_probs(models, inputs, targets):
    """Log-probabilities of given outputs, a subword at a time.

    Args:
        models: one, or several whose probabilities are averaged.
        inputs, targets: [B, L] and [B, T] int32, ids with EOS, PAD after.

    Returns:
        [B, T] float32, 0 where a target is PAD.
    """
    batch = make_features(inputs, targets)
    log_probs = tf.nn.log_softmax(
        ensemble_logits([model(batch) for model in models])
    )
    of_targets = tf.gather(log_probs, targets[..., None], batch_dims=2)
    return tf.where(targets != PAD, of_targets[..., 0], 0.0)


def sentence_log_probs(models, inputs, targets):
    """[B] float32: sums of subword_log_probs, EOS included."""
    return tf.reduce_sum(subword_log_probs(models, inputs, targets), 1)


def cross_attention(model, inputs, targets):
    """Where each subword of given outputs looks in the source.

    Args:
        model: one of those that found the outputs.
        inputs, targets: as of subword_log_probs.

    Returns:
        [layers, B, H, T, L] float32; rows of PAD mean nothing.
    """
    return model.attention_weights(make_features(inputs, targets)).cross


def mean_attention(models, inputs, targets):
    """Return the mean of `attention` over heads and models.

    Returns:
        [B, layers, T, L] float32; where T or L is padding, 0. Models that
        differ in their layers have the mean of these as their only one.
    """
    weights = [
        tf.reduce_mean(cross_attention(model, inputs, targets), 2)
        for model in models
    ]  # [layers, B, T, L]
    if len({one.shape[0] for one in weights}) > 1:
        weights = [tf.reduce_mean(one, 0, keepdims=True) for one in weights]
    mean = tf.transpose(tf.add_n(weights) / len(weights), (1, 0, 2, 3))
    written = (targets != PAD)[:, None, :, None]
    read = (inputs != PAD)[:, None, None, :]
    return tf.where(written & read, mean, 0.0)


def ensemble_logits(logits):
    """Logits [..., V] of each model -> logits of their mean probability."""
    if len(logits) == 1:
        return logits[0]
    log_probs = [tf.nn.log_softmax(one) for one in logits]
    return tf.reduce_logsumexp(tf.stack(log_probs), axis=0)


def make_features(inputs, targets):
    """A sentence a row -> features of data/batches.py."""
    batch = {}
    for name, ids in (("inputs", inputs), ("targets", targets)):
        batch[name] = ids
        batch[f"{name}_segment"] = tf.cast(ids != PAD, tf.int32)
        batch[f"{name}_position"] = tf.broadcast_to(
            tf.range(tf.shape(ids)[1]), tf.shape(ids)
        )
    return batch
