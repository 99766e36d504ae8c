"""The one exception that a user, not a programmer, is meant to read."""


class UserError(Exception):
    """What was wrong, what was received, and what to do about it.

    Commands print it without a traceback and exit with status 1.
    """
