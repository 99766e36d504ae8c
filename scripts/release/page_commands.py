"""Files and shell commands of a documentation page."""

import re

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

    Processes in the background are killed at the end.

    Args:
        commands: list of commands.
        mark: a line to print before each command.
    """
    lines = ["set -eu", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"]
    for command in commands:
        lines += [f"echo {mark}"] * bool(mark) + [command]
    return "\n".join(lines) + "\n"
