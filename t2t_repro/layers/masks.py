"""Attention masks: True where a query may attend to a key.

Segment ids number the sentences of a packed row from 1; padding has the id 0.
In decoding, models.cache.Cache.visible_mask takes the place of these masks.
"""

from keras import ops

from t2t_repro.types import Tensor


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
