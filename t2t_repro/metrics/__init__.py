"""Metrics that score the output of a system."""
