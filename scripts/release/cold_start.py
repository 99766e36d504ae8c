"""A newcomer's first hour, timed: clone, make demo, then the tutorial.

    python -m scripts.release.cold_start FOLDER --transcript=cold_start.txt

FOLDER is new; all in it is made by the commands of README and tutorial, as
they stand there. The transcript has the seconds of each, and what it printed
last.
"""

import os
import pathlib
import re
import subprocess
import sys
import time

from absl import app, flags

from scripts.release import page_commands

ROOT = pathlib.Path(__file__).parents[2]
MARK = "t2t-cold-start"
LINES, WIDTH = 2, 160  # of what a command printed


def run(commands, folder, path):
    """[(command, seconds, lines that it printed)], of one shell."""
    file = folder / "commands.sh"
    file.write_text(page_commands.script([*commands, ":"], MARK), "utf-8")
    shell = subprocess.Popen(
        ["bash", file.name],
        cwd=folder,
        env=os.environ | {"PATH": path, "SOURCE": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    starts, outputs = [], []
    for line in shell.stdout:
        said, mark, _ = line.partition(MARK)  # after what ended in no "\n"
        if said.strip():
            sys.stderr.write(said)
            outputs[-1].append(said)
        if mark:
            starts.append(time.perf_counter())
            outputs.append([])
    if shell.wait():
        raise SystemExit(f"failed: {commands[len(starts) - 1]}")
    ends = starts[1:]
    return [
        (command, end - start, output)
        for command, start, end, output in zip(
            commands, starts, ends, outputs, strict=False
        )
    ]


def visible(line):
    """A line without a terminal's colours."""
    return re.sub(r"\x1b\[\d*m", "", line.rstrip())


def main(arguments):
    if len(arguments) != 2 or pathlib.Path(arguments[1]).exists():
        raise app.UsageError("one FOLDER is wanted, which is not there yet.")
    folder = pathlib.Path(arguments[1]).resolve()
    tutorial = folder / "tutorial"
    tutorial.mkdir(parents=True)
    path = os.environ["PATH"]
    clone = 'git clone --quiet "$SOURCE" t2t_repro'
    found = run([clone, "make -C t2t_repro demo"], folder, path)
    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    page_commands.write_files(page, tutorial)
    commands = page_commands.shell_commands(page)
    found += run(commands, tutorial, f"{folder}/t2t_repro/.venv/bin:{path}")
    with open(flags.FLAGS.transcript, "w", encoding="utf-8") as file:
        for command, seconds, output in found:
            file.write(f"{seconds:7.1f} s  $ {command}\n")
            for line in output[-LINES:]:
                line = line.replace(str(folder), "FOLDER")
                file.write(f"{'':11}{visible(line)[:WIDTH]}\n")
        whole = sum(seconds for _, seconds, _ in found)
        file.write(f"{whole:7.1f} s  in all\n")


if __name__ == "__main__":
    flags.DEFINE_string("transcript", None, "File to write.", required=True)
    app.run(main)
