"""The one exception that a user, not a programmer, is meant to read."""


class UserError(Exception):
    """What was wrong, what was received, and what to do about it.

    Commands print it without a traceback and exit with status 1.
    """

    def __init__(self, message: str, see: str | None = None):
        """A message to read.

        Args:
            message: whole sentences.
            see: a section of docs/troubleshooting.md that tells more.
        """
        super().__init__(message)
        self.see = see

    @property
    def page(self) -> str:
        """The sentence that names the section; "" where there is none."""
        return f" See docs/troubleshooting.md#{self.see}." if self.see else ""
