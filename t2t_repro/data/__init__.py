"""Data: pairs of text -> encoded corpus -> plan -> batches of arrays."""
