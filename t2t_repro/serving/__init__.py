"""Serving: a SavedModel, text in and text out, and its clients."""
