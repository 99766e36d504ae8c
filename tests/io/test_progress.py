"""Progress, messages of a training in train.log, and signals to stop."""

import contextlib
import io
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from concurrent import futures

import pytest

from t2t_repro import errors
from t2t_repro.io import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def fileno(self):
        return 2


def count_to_three():
    with progress.bar(desc="count", total=3) as bar:
        for _ in range(3):
            bar.update()


def test_without_a_terminal_each_state_is_a_line(capsys):
    count_to_three()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("count: 0/3 0%")
    assert lines[-1].startswith("count: 3/3 100%")


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_control_characters_are_escaped_on_a_terminal_alone(stream):
    written = stream()
    text = "a\x1b]0;title\x07\r\x9b2J\tb\n"
    print(text, end="", file=progress.Printable(written))
    escaped = r"a\x1b]0;title\x07\r\x9b2J" + "\tb\n"
    assert written.getvalue() == (escaped if stream is Terminal else text)


def test_bar_of_a_command_moves_the_cursor(monkeypatch):
    terminal, size = Terminal(), os.terminal_size((80, 24))
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: size)
    stream = progress.Screen(progress.Printable(terminal))
    monkeypatch.setattr(sys, "stderr", stream)
    count_to_three()
    assert "\rcount: 100%" in terminal.getvalue()


def test_command_writes_no_control_characters_to_a_terminal():
    script = """
from t2t_repro import errors
from t2t_repro.cli import command_line

def main():
    print("output \\x1b[2J")
    raise errors.UserError("a server says \\x1b[2J")

command_line.run(main)
"""
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", script], stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = os.read(ours, 1_000).decode()
    os.close(ours)
    assert "output \\x1b[2J" in written
    assert "says \\x1b[2J" in written and "\x1b" not in written


def pipe_without_a_reader():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def closed_terminal():
    ours, theirs = pty.openpty()
    os.close(ours)
    return theirs


def closed_output():
    return os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize(
    "lose", [pipe_without_a_reader, closed_terminal, closed_output]
)
def test_work_outlives_its_screen(lose):
    with open(lose(), "w", encoding="utf-8") as screen:
        with (
            contextlib.redirect_stdout(screen),
            contextlib.redirect_stderr(screen),
            progress.outliving_screen(),
        ):
            print("Generating data.", flush=True)
            print("Note: …", file=sys.stderr)
            count_to_three()
        screen.flush()  # discarded, so that the exit of Python has no error


@pytest.mark.parametrize(
    ("closed", "work", "code", "printed"),
    [
        (">&-", "print(1)", 1, "uses stdout, which the caller has closed."),
        ("<&-", "sys.stdin.read()", 1, "uses stdin, which the caller has clos"),
        ("<&- 2>&-", "print(os.open(os.devnull, 0) > 2)", 0, "True"),
        (">/dev/full", "print(1)", 1, "Error: the disk is full: "),
    ],
)
def test_command_runs_with_closed_or_full_streams(closed, work, code, printed):
    script = f"""
import os, sys
from t2t_repro.cli import command_line
command_line.run(lambda: {work})
"""
    command = f'unset PYTHONUNBUFFERED; exec "$0" -c "$1" {closed}'
    result = subprocess.run(
        ["sh", "-c", command, sys.executable, script],
        capture_output=True,
        text=True,
    )
    assert result.returncode == code
    assert printed in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert "ignored" not in result.stderr  # an error at the end of Python


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (172_799, "47 h 59 min"),
        (360_000, "4 days 4 h"),
    ],
)
def test_duration_is_readable(seconds, text):
    assert progress.duration(seconds) == text


NUMBERS = progress.NUMBERS
stop = progress.StopSignals


def handlers():
    return [signal.getsignal(number) for number in NUMBERS]


@pytest.mark.parametrize(("number", "code"), [(1, 129), (2, 130), (15, 143)])
def test_first_signal_is_recorded_and_second_one_kills(number, code, capsys):
    before = handlers()
    with stop() as signals:
        assert progress.exit_code(signals.received) == 0
        signal.raise_signal(number)
        assert progress.exit_code(signals.received) == code
        assert signal.getsignal(number) == signal.SIG_DFL
    assert handlers() == before
    assert progress.exit_code(signals.received) == code
    assert capsys.readouterr() == ("", "")  # it may interrupt a print


def test_ignored_sighup_stays_ignored_as_nohup_wants_it():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop() as signals:
            signal.raise_signal(signal.SIGHUP)
        assert signals.received == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_thread_than_the_main_one_handles_no_signals():
    def enter():
        with stop() as signals:
            return signals.received, handlers()

    with futures.ThreadPoolExecutor(1) as executor:
        assert executor.submit(enter).result() == (0, handlers())


def test_first_column_of_a_table_is_left_justified_and_the_others_as_asked():
    rows = [("row", "10⁶ a", "b"), ("x", "", "−50%")]
    assert progress.aligned(rows) == ["row  10⁶ a     b", "x           −50%"]
    assert progress.aligned(rows, str.ljust) == [
        "row  10⁶ a  b   ",
        "x           −50%",
    ]


TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")


def lines(folder):
    """Return the lines of the log without their times."""
    text = (folder / progress.LOG).read_text("utf-8")
    assert all(TIME.match(line) for line in text.splitlines())
    return [TIME.sub("", line) for line in text.splitlines()]


def test_messages_are_shown_once_and_appended_with_level(tmp_path, capsys):
    for text in ("first", "50% spät"):
        with progress.logging_to(tmp_path):
            progress.show(text)
    with progress.logging_to(tmp_path):
        progress.show("slow", logging.WARNING)
    progress.show("not of this run")
    assert lines(tmp_path) == ["INFO first", "INFO 50% spät", "WARNING slow"]
    captured = capsys.readouterr()
    assert captured.out == "first\n50% spät\nslow\nnot of this run\n"
    assert captured.err == ""


def test_user_error_is_one_line_and_another_has_its_traceback(tmp_path):
    with pytest.raises(errors.UserError), progress.logging_to(tmp_path):
        raise errors.UserError("The loss of step 3 is nan.")
    assert lines(tmp_path) == ["ERROR The loss of step 3 is nan."]
    with pytest.raises(ZeroDivisionError), progress.logging_to(tmp_path):
        print(1 / 0)
    text = (tmp_path / progress.LOG).read_text()
    assert " ERROR The training ended with an error.\nTraceback" in text
    assert text.endswith("ZeroDivisionError: division by zero\n")
