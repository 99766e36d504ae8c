"""Readers of trained Transformers of other systems."""
