"""A forecast of how long a training run takes, from its first steps."""

STEPS = 5  # that are timed, after the one that compiles


class Forecast:
    """Prediction of the duration of a session's steps, made once."""

    def __init__(self, steps: int):
        """Set the number of steps that the session will take."""
        self._steps = steps
        self._timed, self._seconds = 0, 0.0
        self._made = False

    def add(self, steps: int, seconds: float) -> float | None:
        """Add steps and the time that they took together.

        Returns:
            The seconds of all steps of the session: once, when enough steps
            are timed; else None.
        """
        self._timed += steps
        self._seconds += seconds
        if self._made or self._timed < STEPS:
            return None
        self._made = True
        return self._seconds / self._timed * self._steps
