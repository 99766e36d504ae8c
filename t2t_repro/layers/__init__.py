"""Layers of the Transformer, in keras.ops only: they run on any backend."""
