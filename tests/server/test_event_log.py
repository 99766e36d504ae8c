"""The server's log: lines that clients cannot multiply."""

import logging
import sys

import pytest

from t2t_repro.server import monitoring


def test_lines_of_one_message_are_limited_in_each_minute():
    now = [0.0]
    limit = monitoring.RateLimit(lambda: now[0])

    def log(message, *arguments):
        record = logging.LogRecord(
            "name", logging.INFO, "file", 1, message, arguments, None
        )
        return limit.filter(record) and record.getMessage()

    lines = [log("client %s", number) for number in range(25)]
    assert lines[:10] == [f"client {number}" for number in range(10)]
    assert not any(lines[10:])
    assert log("another message") == "another message"
    now[0] = 60.0
    assert log("client %s", "x") == "client x (15 like it omitted)"
    assert log("client %s", "y") == "client y"
    now[0] = 120.0
    assert log("client %s", "z") == "client z"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\nERROR b", r"a\nERROR b"),
        ("\x1b[2J\x07\x7f", r"\x1b[2J\x07\x7f"),
        ("\u2028\u202e\ud83d", r"\u2028\u202e\ud83d"),
        ("grün 🐶 %s", "grün 🐶 %s"),
    ],
)
def test_text_of_a_client_stays_within_its_line(text, escaped):
    record = logging.LogRecord("n", 1, "f", 1, "got %s", (text,), None)
    assert monitoring.escape(record)
    assert record.getMessage() == f"got {escaped}"


def test_traceback_does_not_look_like_other_lines():
    try:
        raise ValueError("a\nERROR b\x1b")
    except ValueError:
        cause = sys.exc_info()
    record = logging.LogRecord("n", 1, "f", 1, "It failed.", (), cause)
    monitoring.escape(record)
    first, *lines = logging.Formatter().format(record).split("\n")
    assert first == "It failed."
    assert lines[-2:] == ["  ValueError: a", r"  ERROR b\x1b"]
    assert all(line.startswith("  ") for line in lines)
