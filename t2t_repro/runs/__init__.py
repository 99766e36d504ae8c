"""Runs: what the folder of a training run holds."""
