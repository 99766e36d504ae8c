"""Runs commands in forks of itself, which has imported what takes seconds.

Reads a JSON object a line, {name, arguments, streams, env}, and answers each
with the exit code of what stands for ``python -m t2t_repro.NAME ARGUMENTS``.
Streams are files: of input, output and errors.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import sys

SECONDS = 600  # a command that takes longer hangs
# Libraries of what commands do; commands themselves define flags.
IMPORTED = (
    "prepare runs decoding.translate reports.bleu reports.page serving.client "
    "serving.export serving.to_ctranslate2 training.averaging training.loop"
).split()


def wait_for_command(requests, answers):
    """What a fork is to run; in the process itself, None at the end."""
    for request in requests:
        if not (pid := os.fork()):
            return json.loads(request)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    return None


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
