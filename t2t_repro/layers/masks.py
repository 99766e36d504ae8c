"""Masks: True where a query may see a key."""

from keras import ops


def same_segment(query_segments, key_segments):
    """[B, T] and [B, L] segment ids -> [B, 1, T, L] bool.

    True within one sentence of a packed row; 0 is padding, seen by none.
    """
    same = query_segments[:, :, None] == key_segments[:, None, :]
    real = key_segments[:, None, :] > 0
    return ops.logical_and(same, real)[:, None]


def causal(query_places, key_places):
    """[T] and [L] -> [1, 1, T, L] bool, True where the key is not after."""
    return (query_places[:, None] >= key_places)[None, None]


def restricted(query_places, key_places, reach):
    """[T] and [L] -> [1, 1, T, L] bool, True where |i - j| < reach.

    "Restricted" self-attention of section 4, where a neighbourhood, here of
    2 reach - 1 positions, is called r.
    """
    distances = query_places[:, None] - key_places
    return (ops.absolute(distances) < reach)[None, None]
