"""Bulk decoding: many files, by many workers."""
