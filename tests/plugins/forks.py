"""Runs commands in forks of itself, which has imported what takes seconds.

Reads a JSON object a line, {name, arguments, streams, env}, and answers each
with the exit code of what stands for ``python -m t2t_repro.NAME ARGUMENTS``.
Streams are files: of input, output and errors. "kill_after" so many seconds it
gets SIGKILL. With "background" the answer comes at once, and is the process's
number; {"wait": NUMBER} is answered with the exit code.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys

SECONDS = 3600  # a command that takes longer hangs, on the slowest machine
# Libraries of what commands do; commands themselves define flags.
IMPORTED = (
    "evaluation reporting metrics.bleu metrics.ter serving.client "
    "serving.saved_model serving.to_ctranslate2 training.averaging "
    "training.train_loop"
).split()


def wait_for_command(requests, answers):
    """What a fork is to run; in the process itself, None at the end."""
    for request in requests:
        command = json.loads(request)
        pid = command["wait"] if "wait" in command else os.fork()
        if not pid:
            return command
        answer = pid
        if not command.get("background"):
            answer = exit_code(pid, command.get("kill_after"))
        print(answer, file=answers, flush=True)
    return None


def exit_code(pid, kill_after):
    """Waits for a fork, and kills it when its time is over."""

    def kill(*_):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    if kill_after is not None:
        signal.signal(signal.SIGALRM, kill)
        signal.setitimer(signal.ITIMER_REAL, max(kill_after, 0.001))
    _, status = os.waitpid(pid, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return os.waitstatus_to_exitcode(status)


def main():
    # Python's own streams, of which nothing is read yet, are the commands'.
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path[0] = os.getcwd()  # as -m has it
    for name in IMPORTED:
        importlib.import_module(f"t2t_repro.{name}")
    gc.freeze()  # what forks share is not looked through, and not copied
    command = wait_for_command(requests, answers)
    if command is None:
        return
    signal.alarm(SECONDS)
    for number, path in enumerate(command["streams"]):
        with open(path, "ab" if number else "rb") as file:
            os.dup2(file.fileno(), number)
    os.environ.update(command["env"])
    sys.argv[1:] = command["arguments"]
    name = f"t2t_repro.{command['name']}"
    runpy.run_module(name, run_name="__main__", alter_sys=True)


main()
