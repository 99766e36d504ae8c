"""Models: they see batches only, and are reached through the registry."""
