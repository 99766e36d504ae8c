"""What query prints beside translations, with a scripted model."""

from t2t_repro import query
from t2t_repro.decoding.translation import Translation


class Cutter:
    """Model that keeps four bytes of a line."""

    def add_tags(self, lines, target_language):
        return lines

    def batches(self, lines):
        return [range(2), range(2, len(lines))]

    def translate(self, lines, n_best):
        return [
            Translation([line[:4]], [0.0], too_long=len(line) * (len(line) > 4))
            for line in lines
        ]


def test_truncated_lines_are_named(monkeypatch, capsys):
    monkeypatch.setattr(query, "_model", lambda *_: Cutter())
    lines = ["four", "seventh", "a", "longer", *["fives"] * 9]
    query.main((None, lines, query.Options(), None))
    out, message = capsys.readouterr()
    assert out.splitlines()[:4] == ["four", "seve", "a", "long"]
    assert "(11 in all): line 2 (7 bytes), line 4 (6 bytes), line 5" in message
    assert "line 12 (5 bytes), …. Split them" in message
