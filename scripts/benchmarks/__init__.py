"""Benchmarks of data, training, decoding and serving."""
