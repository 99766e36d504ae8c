"""Sizes of the packages of the base installation, as a table in Markdown.

    PYTHON -m scripts.release.package_sizes

PYTHON is that of a new environment with t2t_repro. A package that several
others need is counted with the first of them.
"""

from importlib import metadata

from packaging import requirements, utils

from scripts.benchmarks import harness

NAME = "t2t_repro"


def required(name, extras=()):
    """Return (name, extras) of the packages that a package needs here."""
    parsed = map(requirements.Requirement, metadata.requires(name) or [])
    return [
        (utils.canonicalize_name(one.name), one.extras)
        for one in parsed
        if one.marker is None
        or any(one.marker.evaluate({"extra": e}) for e in ("", *extras))
    ]


def megabytes(name):
    """Return the megabytes of a package on the disk, as du counts them."""
    paths = (file.locate() for file in metadata.files(name) or [])
    blocks = (path.stat().st_blocks for path in paths if path.is_file())
    return sum(blocks) * 512 / 2**20


def groups():
    """Return {required package: packages that it is the first to need}."""
    direct = required(NAME)
    seen = {name for name, _ in direct}
    found = {}
    for name, extras in direct:
        found[name] = []
        waiting = required(name, extras)
        while waiting:
            other, extras = waiting.pop(0)
            if other not in seen:
                seen.add(other)
                found[name].append(other)
                waiting += required(other, extras)
    return found


def main():
    print("| package | MB | MB of packages that it needs |\n|---|---|---|")
    total = megabytes(NAME)
    for name, others in groups().items():
        own, rest = megabytes(name), sum(map(megabytes, others))
        total += own + rest
        listed = f": {', '.join(others)}" if others else ""
        print(f"| `{name}` | {own:,.1f} | {rest:,.1f}{listed} |")
    print(f"| all, with {NAME} | {total:,.1f} | |")


if __name__ == "__main__":
    harness.argument_parser(__doc__).parse_args()
    main()
