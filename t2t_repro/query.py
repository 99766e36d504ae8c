"""Translates through an exported model.

python -m t2t_repro.query --export_dir=… --inputs="A sentence."
"""

import sys

from absl import flags

from t2t_repro import common_flags
from t2t_repro.serving import client
from t2t_repro.text import corpora

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "Folder that the exporter has written to."
)
_INPUTS = flags.DEFINE_multi_string(
    "inputs", [], "A sentence; may be given again. Else standard input."
)
flags.adopt_module_key_flags(common_flags)


def main():
    model = client.LocalClient(common_flags.required(_EXPORT_DIR))
    lines = _INPUTS.value or list(
        corpora.split_lines(sys.stdin.buffer, "standard input")
    )
    for translation in model.translate(lines):
        print(translation.texts[0], flush=True)


if __name__ == "__main__":
    common_flags.run(main)
