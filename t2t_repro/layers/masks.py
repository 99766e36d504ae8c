"""Attention masks, True where a query may attend to a key, and their softmax.

Segment ids number the sentences of a packed row from 1; padding has the id 0.
In decoding, Cache.visible_mask of models/transformer_cache.py replaces them.
"""

from keras import ops

from t2t_repro.runtime.types import Tensor

MASKED = -1e9  # logit of a masked key: exp(-1e9) is 0 in float32


def same_segment(query_segments: Tensor, key_segments: Tensor) -> Tensor:
    """Return a mask that is True within each sentence of a packed row.

    Args:
        query_segments: [B, T], segment ids.
        key_segments: [B, L]; 0 is padding, which is masked.

    Returns:
        [B, 1, T, L] bool.
    """
    same = query_segments[:, :, None] == key_segments[:, None, :]
    real = key_segments[:, None, :] > 0
    return ops.logical_and(same, real)[:, None]


def causal(query_indices: Tensor, key_indices: Tensor) -> Tensor:
    """Return a mask [1, 1, T, L] that is True unless the key comes later.

    Args:
        query_indices: [T], indices in the row.
        key_indices: [L].
    """
    return (query_indices[:, None] >= key_indices)[None, None]


def restricted(
    query_indices: Tensor, key_indices: Tensor, reach: int
) -> Tensor:
    """Return a mask [1, 1, T, L] that is True where |i - j| < reach.

    This is the "restricted" self-attention of section 4. The paper's r is the
    size of the neighbourhood, here 2 reach - 1.

    Args:
        query_indices: [T], indices in the row.
        key_indices: [L].
        reach: the first masked distance.
    """
    distances = query_indices[:, None] - key_indices
    return (ops.absolute(distances) < reach)[None, None]


def has_key(mask: Tensor) -> Tensor:
    """Return [B, T] bool: whether a query may attend to any key.

    In self-attention these are the queries that are not padding.

    Args:
        mask: [B, 1, T, T].
    """
    return ops.any(mask, axis=(1, 3))


def softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the masked softmax of logits [..., L], in float32.

    Sums of many exponentials lose their small terms in 16 bits, and float16
    ends at 65,504. (TensorFlow 2.21 would fuse a bias in place of the mask with
    the product and its scale, and the result has a wrong shape.)

    Args:
        logits: of queries and keys.
        mask: bool, broadcast to `logits`.
    """
    return ops.softmax(ops.where(mask, ops.cast(logits, "float32"), MASKED))
