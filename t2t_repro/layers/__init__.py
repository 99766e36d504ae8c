"""Layers of all models, in keras.ops only: they run on any backend."""
