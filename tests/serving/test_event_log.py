"""The server's log: lines that clients cannot multiply."""

import logging

from t2t_repro.serving import event_log


def test_lines_of_one_message_are_limited_in_each_minute():
    now = [0.0]
    limit = event_log.RateLimit(lambda: now[0])

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
