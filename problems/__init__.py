"""Problems: which text, which languages, which vocabulary; a class each."""
