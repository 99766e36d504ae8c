"""Text: raw lines (corpora) and vocabularies."""
