"""Translates through an exported model, in this process or behind a server.

python -m t2t_repro.query --export_dir=… --inputs="A sentence."
python -m t2t_repro.query --server=127.0.0.1:8500 --inputs="A sentence."
"""

import sys

from absl import flags

from t2t_repro import common_flags, errors
from t2t_repro.serving import client, limits
from t2t_repro.text import parallel_files

_EXPORT_DIR = flags.DEFINE_string(
    "export_dir", None, "Folder that the exporter has written to."
)
_SERVER = flags.DEFINE_string(
    "server",
    None,
    "HOST:PORT of TF Serving or of t2t_repro.serve, instead of --export_dir.",
)
_PROTOCOL = flags.DEFINE_enum(
    "protocol",
    "grpc",
    list(client.PROTOCOLS),
    "What --server speaks on its port.",
)
_SERVABLE_NAME = flags.DEFINE_string(
    "servable_name", "t2t", "What --server calls the model."
)
_TIMEOUT_SECS = common_flags.define_number(
    "timeout_secs",
    30.0,
    "Seconds that --server has for each request, of --max_batch_size lines or "
    "of fewer long ones; while it is unavailable it is asked again.",
    lower_bound=0.001,
    upper_bound=86_400,
)
_MAX_BATCH_SIZE = flags.DEFINE_integer(
    "max_batch_size",
    limits.Limits().max_batch_size,
    "Most lines in a request; no more than --server takes.",
    lower_bound=1,
)
_INPUTS = flags.DEFINE_multi_string(
    "inputs", [], "A sentence; may be given again. Else standard input."
)
flags.adopt_module_key_flags(common_flags)


def main():
    model = _client()
    lines = common_flags.sentences(_INPUTS) or list(
        parallel_files.split_lines(sys.stdin.buffer, "standard input")
    )
    for translation in model.translate(lines, _MAX_BATCH_SIZE.value):
        print(translation.texts[0], flush=True)


def _client():
    if bool(_EXPORT_DIR.value) == bool(_SERVER.value):
        raise errors.UserError(
            "Name the model with one of --export_dir and --server; got "
            f"{'both' if _SERVER.value else 'neither'}."
        )
    if _EXPORT_DIR.value:
        return client.LocalClient(_EXPORT_DIR.value)
    return client.PROTOCOLS[_PROTOCOL.value](
        _SERVER.value, _SERVABLE_NAME.value, _TIMEOUT_SECS.value
    )


if __name__ == "__main__":
    common_flags.run(main)
