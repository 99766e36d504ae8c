"""Fork server: process whose forks are the processes of versions.

A fork has TensorFlow at once, whose import takes seconds, and shares its memory
with it. But a fork has only one of the threads of its parent: the server, which
has many, cannot be forked, nor a process in which TensorFlow runs. Therefore
the server imports TensorFlow, and forks the fork server before anything runs.

These processes end when the server does. They ignore the signals of
stop_signals, which a terminal or a service manager may send to all processes of
the server: it then finishes its requests, for which it needs them.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import threading
import traceback
from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.io import stop_signals
from t2t_repro.server import version_process


class Fork(NamedTuple):
    """Process of a version, as its server sees it."""

    connection: socket.socket
    # Receives a text when the process has ended. To shut down its other
    # direction kills the process.
    report: socket.socket


class ForkServer:
    """Fork server, as seen from the server."""

    def __init__(self, control: socket.socket):
        """Keep a socket to a process that runs `run`."""
        self._control = control

    def fork(self) -> Fork:
        """Fork a process for a version.

        Raises:
            OSError: no descriptor is left.
            UserError: the fork server has ended.
        """
        connection, its_connection = socket.socketpair()
        report, its_report = socket.socketpair()
        with its_connection, its_report:
            descriptors = its_connection.fileno(), its_report.fileno()
            try:
                socket.send_fds(self._control, [b"f"], descriptors)
            except BrokenPipeError as error:
                connection.close()
                report.close()
                raise errors.UserError(
                    "the process that forks others has ended: start the server "
                    "again"
                ) from error
        return Fork(connection, report)

    def close(self) -> None:
        """End the process."""
        self._control.close()


def start() -> ForkServer:
    """Fork the fork server from this process, which has one thread."""
    assert threading.active_count() == 1, "a fork does not copy threads"
    # What has been imported stays. Without it a garbage collection, which holds
    # up every request, takes half as long; and it changes no shared memory.
    gc.collect()
    gc.freeze()
    control, its_control = socket.socketpair()
    if not os.fork():
        control.close()
        _exit_after(run, its_control)
    its_control.close()
    return ForkServer(control)


def run(control: socket.socket) -> None:
    """Fork a process for each request, until `control` is closed."""
    for number in stop_signals.NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    # Processes by the read end of a pipe, whose write end each keeps open.
    forks: dict[int, tuple[int, socket.socket]] = {}
    killed: set[int] = set()
    running = True
    while running:
        reports = {
            report.fileno(): process
            for process, report in forks.values()
            if process not in killed
        }
        readable, _, _ = select.select(
            [*reports, *forks, control.fileno()], [], []
        )
        for descriptor in readable:
            if descriptor in reports:  # its server has shut it down
                os.kill(reports[descriptor], signal.SIGKILL)
                killed.add(reports[descriptor])
            elif descriptor in forks:
                os.close(descriptor)
                process, report = forks.pop(descriptor)
                killed.discard(process)
                _report(process, report)
            else:
                running = _fork(control, forks)
    for process, _ in forks.values():  # one that is stopped does not end
        os.kill(process, signal.SIGKILL)


def _fork(control, forks):
    """Fork a process that is requested; return False if the server has ended.

    Args:
        control: socket to the server.
        forks: receives {read end: (process, socket of its report)}.
    """
    request, descriptors, _, _ = socket.recv_fds(control, 1, 2)
    if not request:
        return False
    connection, report = (socket.socket(fileno=each) for each in descriptors)
    read_end, write_end = os.pipe()
    with connection:
        try:
            process = os.fork()
        except OSError as error:
            os.close(read_end)
            _send(report, f"cannot be forked: {error.strerror}")
        else:
            if not process:
                for each, (_, other) in forks.items():
                    os.close(each)
                    other.close()
                report.close()
                control.close()
                _exit_after(version_process.run, connection)
            forks[read_end] = process, report
        os.close(write_end)
    return True


def _exit_after(function, *args):
    """Call a function in a fork, and end the process without its cleanup."""
    status = 1
    try:
        function(*args)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _report(process, report):
    """Wait for the end of a process, which is near, and report how it ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code < 0:
        _send(report, f"was killed by {signal.Signals(-code).name}")
    else:
        _send(report, f"has ended with status {code}")


def _send(report, text):
    with report, contextlib.suppress(OSError):  # nobody may wait for it
        report.send(text.encode())
