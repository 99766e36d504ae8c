"""Show what this machine and installation offer, with advice.

    t2t doctor
    t2t doctor --output_dir=… --json

The exit status is 1 if something does not work, else 0.
"""

import json
import pathlib
import textwrap

from absl import flags

from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import storage

_JSON = flags.DEFINE_bool("json", False, "Print one JSON object instead.")
_LABELS = {
    "cpu": "CPU",
    "gpus": "GPUs",
    "driver": "GPUs of the driver",
    "core_limit": "limit of cores",
    "instruction_set": "instructions",
    "onednn": "oneDNN",
    "gflops": "GFLOP/s",
}


def main() -> int:
    # Imported here, so that --help needs no more than flags.
    from t2t_repro import diagnosis

    found = diagnosis.diagnose(_folders())
    if _JSON.value:
        print(json.dumps(found._asdict(), default=str))
    else:
        print("\n".join(_lines(found)))
    return 1 if found.problems else 0


def _folders():
    """Return the current folder, and those that flags name."""
    folders = [pathlib.Path.cwd()]
    if data_dir := common_flags.given_data_dir():
        folders.append(storage.local_path(data_dir))
    if flags.FLAGS["output_dir"].present:
        folders.append(common_flags.output_dir())
    return folders


def _lines(found):
    """Yield the lines of a human-readable report."""
    for section, values in found.facts.items():
        if not values and section != "gpus":
            continue
        yield _LABELS.get(section, section.capitalize())
        labels = [_LABELS.get(name, name) for name in values]
        width = max(map(len, labels), default=0)
        for label, value in zip(labels, values.values(), strict=True):
            yield f"  {label:{width}}  {_text(section, value)}"
        if not values:
            yield "  none that TensorFlow can use"
        yield ""
    for title, sentences in (
        ("Problems", found.problems),
        ("Advice", found.advice),
    ):
        if sentences:
            yield title
            for sentence in sentences:
                # Commands stay whole.
                yield textwrap.fill(
                    sentence,
                    80,
                    initial_indent="  - ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            yield ""
    if not found.problems:
        yield "No problem found."


def _text(section, value):
    """Return a fact as text."""
    if value is None:
        return "no limit"
    if section == "memory":
        return _gigabytes(value)
    if section == "disk":
        free, total = map(_gigabytes, (value["free"], value["total"]))
        return f"{free} of {total} free"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, dict):
        return ", ".join(
            f"{name} {_text('', entry)}" for name, entry in value.items()
        )
    return str(value)


def _gigabytes(number):
    return f"{number / 1e9:,.1f} GB"


if __name__ == "__main__":
    command_line.run(main, {"Folders": ("data_dir", "output_dir")})
