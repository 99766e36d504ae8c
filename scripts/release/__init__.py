"""Programs that are run before a release."""
