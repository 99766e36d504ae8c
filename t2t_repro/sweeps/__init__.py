"""Sweeps: trainings of variants and seeds, and tables that compare them."""
