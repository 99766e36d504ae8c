"""Checks and fixtures of a release."""
