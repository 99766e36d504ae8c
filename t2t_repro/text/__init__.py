"""Text: raw lines (corpora) and subwords."""
