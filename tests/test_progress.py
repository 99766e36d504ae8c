"""Progress bars on a terminal, lines elsewhere."""

import os
import sys

import pytest

from t2t_repro import progress


class Terminal:
    """Stderr that is a terminal of some width."""

    def __init__(self, monkeypatch, columns):
        self.text = ""
        monkeypatch.setattr(sys, "stderr", self)
        size = os.terminal_size((columns, 24))
        monkeypatch.setattr(os, "get_terminal_size", lambda *_: size)

    def isatty(self):
        return True

    def fileno(self):
        return 2

    def flush(self):
        pass

    def write(self, text):
        self.text += text


def count_to_three():
    with progress.bar(desc="count", total=3) as bar:
        for _ in range(3):
            bar.update()


def test_without_a_terminal_each_state_is_a_line(capsys):
    count_to_three()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("count: 0/3 0%")
    assert lines[-1].startswith("count: 3/3 100%")


def test_without_a_total_there_is_no_percentage(capsys):
    assert list(progress.bar(iter("ab"), "read", unit="pair")) == ["a", "b"]
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("read: 2 [") and "%" not in last


def test_jupyter_has_its_own_bar(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", None)
    monkeypatch.setattr(
        "tqdm.auto.tqdm", lambda *arguments, **settings: (arguments, settings)
    )
    made = progress.bar("ab", "read", unit="pair")
    assert made == (("ab", "read", None), {"unit": "pair"})


def test_terminal_shows_a_bar(monkeypatch):
    terminal = Terminal(monkeypatch, 80)
    count_to_three()
    assert "\rcount: 100%" in terminal.text


def test_terminal_without_a_width_shows_lines(monkeypatch):
    terminal = Terminal(monkeypatch, 0)
    count_to_three()
    assert terminal.text.splitlines()[-1].startswith("count: 3/3 100%")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (1425, "23 min 45 s"),
        (5025, "1 h 23 min"),
        (172_799, "47 h 59 min"),
        (360_000, "4 days 4 h"),
    ],
)
def test_duration_is_readable(seconds, text):
    assert progress.duration(seconds) == text
