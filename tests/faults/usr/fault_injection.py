"""Injection of a fault into a command, whose --usr_dir is this folder.

The environment variable FAULT has the fault, where it occurs, and a number:

    SIGTERM step 3    SIGTERM before the third step of training
    SIGTERM batch 3   before the third batch is translated, or aligned
    SIGKILL index 2   before the second index of a checkpoint is renamed, when
                      its data already is
    SIGKILL run 5     kill a server before the fifth batch in its model, which
                      runs in another process; four warm it up
    SIGKILL change 7  before Python opens a file of the folder DISK for writing,
                      renames or removes one for the seventh time
    SIGXFSZ size 900  the system's own signal, in the midst of a write beyond
                      900 bytes of a file, by Python or any library
    FILL step 3       fill the disk of DISK before the third step
"""

import contextlib
import os
import resource
import signal
import sys

name, target, text = os.environ["FAULT"].split()
number, folder = int(text), os.environ["DISK"]
count = 0
server = None  # process to kill instead of the one that has counted


def fill_disk():
    with contextlib.suppress(OSError):
        with open(folder + "/filler", "wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass


def advance():
    """Count a call; cause the fault if the count is the chosen number."""
    global count
    count += 1
    if count == number:
        if name == "FILL":
            fill_disk()
        else:
            os.kill(server or os.getpid(), signal.Signals[name])


def inject(function, is_counted=lambda *args: True):
    """Return a function that counts its calls before it calls `function`."""

    def with_fault(*args):
        if is_counted(*args):
            advance()
        return function(*args)

    return with_fault


def watch_changes(event, arguments):
    """Count changes of files; a hook of Python's audit events."""
    if event == "open":
        if not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
    elif event not in ("os.mkdir", "os.remove", "os.rename", "os.rmdir"):
        return
    if str(arguments[0]).startswith(folder):
        advance()


if target == "step":
    from t2t_repro.training import step

    build = step.build_train_step

    def build_with_fault(*args):
        train_step = build(*args)
        with_fault = inject(train_step)
        counted = train_step.experimental_get_tracing_count
        with_fault.experimental_get_tracing_count = counted
        return with_fault

    step.build_train_step = build_with_fault
elif target == "batch":
    from t2t_repro.runtime import devices

    devices.map_shards = inject(devices.map_shards)
elif target == "index":
    os.replace = inject(
        os.replace, lambda source, target: str(target).endswith(".index")
    )
elif target == "run":
    from t2t_repro.server import version_process

    server = os.getpid()
    version_process.Model.run = inject(version_process.Model.run)
elif target == "size":
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
else:
    sys.addaudithook(watch_changes)
