"""What a page of docs/ tells its reader to write and to run."""

import re

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.M | re.S)


def write_files(page, folder):
    """The Python blocks of a page's text, as files that their first lines name.

    Raises:
        ValueError: such a block does not begin with "# name.py".
    """
    for kind, text in BLOCK.findall(page):
        if kind != "python":
            continue
        name = re.match(r"# ([\w/]+\.py)\n", text)
        if not name:
            raise ValueError(f"begins with no file's name: {text[:60]!r}")
        path = folder / name[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def shell_commands(page):
    """The commands of a page's text, in order, each as it stands there."""
    blocks = [text for kind, text in BLOCK.findall(page) if kind == "sh"]
    # A line that ends in \ goes on.
    return re.findall(r"(?:.*\\\n)*.+", "".join(blocks))


def script(commands, mark=""):
    """A bash script of commands; a line `mark` is printed before each.

    It ends at the first that fails, and a server dies with it.
    """
    lines = ["set -eu", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"]
    for command in commands:
        lines += [f"echo {mark}"] * bool(mark) + [command]
    return "\n".join(lines) + "\n"
