"""Given outputs: how likely models hold them, and where they look."""

import tensorflow as tf

from t2t_repro.text.subwords import PAD

LOGITS_AT_ONCE = 2**28  # 1 GiB in float32; their softmax takes as much


def score_subwords(models, inputs, targets):
    """Log-probabilities of given outputs, a subword at a time.

    Args:
        models: one, or several whose probabilities are averaged.
        inputs, targets: [B, L] and [B, T] int32, ids with EOS, PAD after.

    Returns:
        [B, T] float32, 0 where a target is PAD.
    """
    batch = features(inputs, targets)
    log_probs = tf.nn.log_softmax(mixed([model(batch) for model in models]))
    of_targets = tf.gather(log_probs, targets[..., None], batch_dims=2)
    return tf.where(targets != PAD, of_targets[..., 0], 0.0)


def score(models, inputs, targets):
    """[B] float32: sums of score_subwords, EOS included."""
    return tf.reduce_sum(score_subwords(models, inputs, targets), 1)


def attention(model, inputs, targets):
    """Where each subword of given outputs looks in the source.

    Args:
        model: one of those that found the outputs.
        inputs, targets: as of score_subwords.

    Returns:
        [layers, B, H, T, L] float32; rows of PAD mean nothing.
    """
    return model.attention_weights(features(inputs, targets)).cross


def mean_attention(models, inputs, targets):
    """The mean of `attention` over heads and models.

    Returns:
        [B, layers, T, L] float32; where T or L is padding, 0.
    """
    weights = [attention(model, inputs, targets) for model in models]
    mean = tf.reduce_mean(tf.stack(weights), axis=(0, 3))  # [layers, B, T, L]
    mean = tf.transpose(mean, (1, 0, 2, 3))
    written = (targets != PAD)[:, None, :, None]
    read = (inputs != PAD)[:, None, None, :]
    return tf.where(written & read, mean, 0.0)


def mixed(logits):
    """Logits [..., V] of each model -> logits of their mean probability."""
    if len(logits) == 1:
        return logits[0]
    log_probs = [tf.nn.log_softmax(one) for one in logits]
    return tf.reduce_logsumexp(tf.stack(log_probs), axis=0)


def features(inputs, targets):
    """A sentence a row -> features of data/batches.py."""
    batch = {}
    for name, ids in (("inputs", inputs), ("targets", targets)):
        batch[name] = ids
        batch[f"{name}_segment"] = tf.cast(ids != PAD, tf.int32)
        batch[f"{name}_position"] = tf.broadcast_to(
            tf.range(tf.shape(ids)[1]), tf.shape(ids)
        )
    return batch
