"""What query prints beside translations, with a scripted model."""

from processes import run_python

# Commands define flags, so each is imported in a process of its own.
PROGRAM = """
import types
from t2t_repro import query

class Cutter:
    # A model that keeps four bytes of a line.

    def add_tags(self, lines, target_language):
        return lines

    def batches(self, lines):
        return [range(2), range(2, len(lines))]

    def translate(self, lines, n_best):
        for line in lines:
            yield types.SimpleNamespace(
                texts=[line[:4]],
                subwords=None,
                too_long=len(line) if len(line) > 4 else 0,
            )

query._model = lambda *_: Cutter()
lines = ["four", "seventh", "a", "longer", *["fives"] * 9]
query.main((None, lines, query.Options(), None))
"""


def test_truncated_lines_are_named():
    done = run_python("-c", PROGRAM)
    assert done.stdout.split()[:4] == ["four", "seve", "a", "long"]
    message = done.stderr
    assert "(11 in all): line 2 (7 bytes), line 4 (6 bytes), line 5" in message
    assert "line 12 (5 bytes), …. Split them" in message
