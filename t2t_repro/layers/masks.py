"""Masks: True where a query may see a key."""

from keras import ops


def same_segment(query_segments, key_segments):
    """[B, T] and [B, L] segment ids -> [B, 1, T, L] bool.

    True within one sentence of a packed row; 0 is padding, seen by none.
    """
    same = query_segments[:, :, None] == key_segments[:, None, :]
    real = key_segments[:, None, :] > 0
    return ops.logical_and(same, real)[:, None]


def causal(length):
    """-> [1, 1, T, T] bool, True where the key is not after the query."""
    places = ops.arange(length)
    return (places[:, None] >= places[None, :])[None, None]
