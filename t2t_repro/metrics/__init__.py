"""Metrics: what a system's output is scored by."""
