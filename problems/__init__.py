"""Problems: classes that define text, languages and vocabulary."""
