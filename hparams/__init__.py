"""Hparams sets: a function each, a diff from its parent, with sources."""
