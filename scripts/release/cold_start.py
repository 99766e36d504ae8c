"""Timed run of a newcomer's commands: clone, make demo, the tutorial.

    python -m scripts.release.cold_start FOLDER --transcript=cold_start.md

FOLDER must not exist. The commands are those of README and the tutorial,
unchanged. The transcript lists the seconds of each command and the last lines
that it printed.
"""

import os
import pathlib
import subprocess
import sys
import time

from absl import app, flags

from scripts.release import page_commands

ROOT = pathlib.Path(__file__).parents[2]
MARK = "t2t-cold-start"
LINES, WIDTH = 2, 160  # of a command's output that the transcript keeps


def run(commands, folder, path):
    """Run commands in one shell.

    Returns:
        [(command, seconds, lines that it printed)].
    """
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
        printed, mark, _ = line.partition(MARK)  # output may lack a final "\n"
        if printed.strip():
            sys.stderr.write(printed)
            outputs[-1].append(printed)
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


def main(arguments):
    if len(arguments) != 2 or pathlib.Path(arguments[1]).exists():
        raise app.UsageError("Give one FOLDER, which must not exist yet.")
    folder = pathlib.Path(arguments[1]).resolve()
    tutorial = folder / "tutorial"
    tutorial.mkdir(parents=True)
    path = os.environ["PATH"]
    clone = 'git clone --quiet "$SOURCE" t2t_repro'
    extras = "t2t_repro/.venv/bin/pip install -qe './t2t_repro[report,serve]'"
    results = run([clone, "make -C t2t_repro demo", extras], folder, path)
    page = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    page_commands.write_files(page, tutorial)
    commands = page_commands.shell_commands(page)
    results += run(commands, tutorial, f"{folder}/t2t_repro/.venv/bin:{path}")
    with open(flags.FLAGS.transcript, "w", encoding="utf-8") as file:
        file.write("```\n")
        for command, seconds, output in results:
            file.write(f"{seconds:7.1f} s  $ {command}\n")
            for line in output[-LINES:]:
                line = line.replace(str(folder), "FOLDER")
                file.write(f"{'':11}{line.rstrip()[:WIDTH]}\n")
        total = sum(seconds for _, seconds, _ in results)
        file.write(f"{total:7.1f} s  in all\n```\n")


if __name__ == "__main__":
    flags.DEFINE_string("transcript", None, "File to write.", required=True)
    app.run(main)
