"""Pairs of lines of short words."""

import random


def draw_pairs(count, seed=0):
    """Draw lines of short words, and their reversals."""
    choices = random.Random(seed)
    words = ["an", "bed", "can", "dan", "ebb", "fad"]
    sizes = choices.choices(range(2, 7), k=count)
    lines = [" ".join(choices.choices(words, k=size)) for size in sizes]
    return [(line, line[::-1]) for line in lines]
