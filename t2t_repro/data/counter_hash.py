"""Random numbers of the data: a function of keys and counters, in NumPy.

They are those of SplitMix64 (Steele, Lea and Flood 2014), which hashes a
counter. A number therefore depends on its key and counter alone, not on the
numbers that were drawn before or for other rows.
"""

import numpy as np

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def first_key(*entropy: int) -> np.ndarray:
    """Return a key, [] uint64, of numbers that are at least 0."""
    return np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]


def split(keys: np.ndarray, counters: np.ndarray | int) -> np.ndarray:
    """Return a key, uint64, for each pair of a key and a counter."""
    ordinals = np.atleast_1d(np.asarray(counters, np.uint64)) + np.uint64(1)
    x = keys + ordinals * _GAMMA
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(keys: np.ndarray, counters: np.ndarray | int) -> np.ndarray:
    """Return float64 in (0, 1) for each pair of a key and a counter."""
    # (n + 1/2) / 2^52 for 52 bits n: exact, and neither 0 nor 1.
    bits = split(keys, counters) >> np.uint64(12)
    return (bits.astype(np.float64) + 0.5) * 2.0**-52
