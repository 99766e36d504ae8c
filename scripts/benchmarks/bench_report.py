"""What the benchmarks print: the machine, figures, and one JSON line last."""

import datetime
import json
import os
import platform

_RESULTS = []


def machine():
    """When and on what."""
    return (
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} "
        f"cores, Python {platform.python_version()}"
    )


def begin():
    """Says when and on what."""
    print(machine())


def add(name, value, unit, peer=None, ratio=None):
    """Prints a figure, and keeps it for the JSON."""
    _RESULTS.append(
        dict(name=name, value=value, unit=unit, peer=peer, ratio=ratio)
    )
    beside = f" = {ratio:.2f} x {peer}" if peer else ""
    print(f"{name}: {value:,.4g} {unit}{beside}", flush=True)


def end():
    """Prints the JSON list of {name, value, unit, peer, ratio}."""
    print(json.dumps(_RESULTS))
