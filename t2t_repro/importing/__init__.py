"""Readers of trained Transformers of other systems.

The module of a system has read(), which returns an imported.Imported. It raises
a UserError if a file is missing or damaged, or if the model has a setting or an
array that cannot be represented here.
"""
