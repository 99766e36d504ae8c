"""Evaluation: scores of a system, beside published ones."""
