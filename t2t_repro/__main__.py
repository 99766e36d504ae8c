"""Entry point of `t2t COMMAND`."""

import ast
import pathlib
import runpy
import signal
import sys

from t2t_repro import errors

# In the order in which a newcomer needs them.
COMMANDS = (
    "trainer",
    "avg_checkpoints",
    "evaluate",
    "decoder",
    "report",
    "sweep",
    "exporter",
    "query",
    "serve",
    "importer",
    "datagen",
    "show",
    "doctor",
)
# Words that people type, and what they mean.
ALIASES = {
    "train": ("trainer",),
    "eval": ("evaluate",),
    "translate": ("decoder",),
    "export": ("exporter",),
    "import": ("importer",),
    "runs": ("show", "--runs_dir"),
}
# All first words that are no names of tensor2tensor.
WORDS = (*COMMANDS, *ALIASES, "help", "completion")
_COMPLETION = pathlib.Path(__file__).with_name("cli") / "completion.bash"


def main() -> int:
    """Run the command that the command line names.

    tensor2tensor's names work, too: `t2t-trainer` is `t2t trainer`. Its
    commands that are named otherwise here print the line to type.

    Returns:
        The exit status: 1 for a command that is missing or unknown. A command
        ends the process with its own.
    """
    program, *arguments = sys.argv
    stem = pathlib.Path(program).stem
    if stem.startswith("t2t-"):
        arguments.insert(0, stem.removeprefix("t2t-"))
    elif arguments:
        arguments = _meant(*arguments)
    if not arguments:
        print(usage(), file=sys.stderr)
        return 1
    name = arguments[0].replace("-", "_")
    if arguments[0] in ("--help", "-h", "help"):
        print(usage())
    elif arguments[0] in ("--version", "-V"):
        print(errors.version())
    elif arguments[0] == "completion":
        script = _COMPLETION.read_text("utf-8")
        print(script.replace("@WORDS@", " ".join(WORDS)), end="")
    elif name in COMMANDS:
        sys.argv = [program, *arguments[1:]]
        # Run as a main module, it is what `python -m` would have started.
        try:
            runpy.run_module(f"t2t_repro.{name}", None, "__main__", True)
        except KeyboardInterrupt:  # while modules are imported
            print("Interrupted.", file=sys.stderr)
            return 128 + signal.SIGINT
    elif name in errors.T2T_COMMANDS:
        from t2t_repro.cli import command_line

        text = command_line.explain_tensor2tensor(name, arguments[1:])
        page = errors.page("tensor2tensor.md")
        print(f"Error: {text}\nSee {page}.", file=sys.stderr)
        return 1
    else:
        print(
            f"Error: Unknown command {arguments[0]!r}."
            f"{errors.hint(name, [*COMMANDS, *ALIASES])} t2t --help lists the "
            "commands.",
            file=sys.stderr,
        )
        return 1
    return 0


def _meant(word, *rest):
    """Return the command line that the words of a user mean."""
    if word == "help" and rest:
        return [_meant(rest[0])[0], "--help"]
    if word == "runs" and not rest:
        rest = ("~/t2t_train",)
    return [*ALIASES.get(word, (word,)), *rest]


def usage() -> str:
    """Return the list of commands, each with the first line of its help."""
    lines = "\n".join(f"  {name:17}{_summary(name)}" for name in COMMANDS)
    return (
        f"Usage: t2t COMMAND FLAGS\n\n{lines}\n\n"
        "Other words: train (trainer), eval (evaluate), translate\n"
        "(decoder), export (exporter), import (importer). t2t runs FOLDER\n"
        "lists runs, t2t completion prints a script for bash, and\n"
        "t2t help COMMAND explains the flags of a command."
    )


def _summary(name):
    """Return the first line of a command's docstring, without importing it."""
    source = pathlib.Path(__file__).with_name(f"{name}.py").read_text("utf-8")
    return ast.get_docstring(ast.parse(source)).partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
