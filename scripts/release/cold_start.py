"""Timed run of a newcomer's commands: clone, make demo, the tutorial.

    python -m scripts.release.cold_start FOLDER --transcript=cold_start.md

FOLDER must not exist. The commands are those of README and the tutorial,
unchanged. The transcript lists the seconds of each command and the last lines
that it printed.
"""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import time

from absl import app, flags

ROOT = pathlib.Path(__file__).parents[2]
MARK = "t2t-cold-start"
LINES, WIDTH = 2, 160  # of a command's output that the transcript keeps


def run(commands, folder, path):
    """Run commands in one shell; return [(command, seconds, lines printed)]."""
    file = folder / "commands.sh"
    file.write_text(script([*commands, ":"], MARK), "utf-8")
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
    seconds = (end - start for start, end in itertools.pairwise(starts))
    return list(zip(commands, seconds, outputs, strict=False))


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
    write_files(page, tutorial)
    path = f"{folder}/t2t_repro/.venv/bin:{path}"
    results += run(shell_commands(page), tutorial, path)
    lines = ["```"]
    for command, seconds, output in results:
        lines.append(f"{seconds:7.1f} s  $ {command}")
        for line in output[-LINES:]:
            line = line.replace(str(folder), "FOLDER").rstrip()
            lines.append(f"{'':11}{line[:WIDTH]}")
    total = sum(seconds for _, seconds, _ in results)
    lines += [f"{total:7.1f} s  in all", "```", ""]
    transcript = pathlib.Path(flags.FLAGS.transcript)
    transcript.write_text("\n".join(lines), "utf-8")


# Files and shell commands of a documentation page.

BLOCK = re.compile(r"^```(sh|python|yaml)\n(.*?)^```$", re.M | re.S)


def write_files(page, folder):
    """Write the Python and YAML blocks of a page to the files that they name.

    Raises:
        ValueError: a block does not begin with "# name.py" or "# name.yaml".
    """
    for kind, text in BLOCK.findall(page):
        if kind == "sh":
            continue
        name = re.match(r"# ([\w/]+\.(?:py|yaml))\n", text)
        if not name:
            raise ValueError(
                f"a {kind} block must begin with its file's name: {text[:60]!r}"
            )
        path = folder / name[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def shell_commands(page):
    """Return the shell commands of a page, in order and unchanged."""
    blocks = [text for kind, text in BLOCK.findall(page) if kind == "sh"]
    # A backslash at the end of a line continues the command.
    return re.findall(r"(?:.*\\\n)*.+", "".join(blocks))


def script(commands, mark=""):
    """Return a bash script of commands, which stops at the first failure.

    Each is preceded by a line with a mark. Processes in the background are
    killed at the end.
    """
    lines = ["set -eu", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"]
    for command in commands:
        lines += [f"echo {mark}"] * bool(mark) + [command]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    flags.DEFINE_string("transcript", None, "File to write.", required=True)
    app.run(main)
