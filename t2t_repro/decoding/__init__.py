"""Decoding: search over a step function, and sentences around it."""
