"""Translate with an exported model, here or through a server.

t2t query --export_dir=… --inputs="A sentence."
t2t query --server=127.0.0.1:8500 --inputs="A sentence."
"""

import sys

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.serving import connection, version_folders
from t2t_repro.text import parallel_files

_EXPORT_DIR = flags.DEFINE_string("export_dir", None, "Folder of an export.")
_SERVER = flags.DEFINE_string(
    "server",
    None,
    "HOST:PORT of TensorFlow Serving or of `t2t serve`, instead of "
    "--export_dir.",
)
_PROTOCOL = flags.DEFINE_enum(
    "protocol",
    "grpc",
    ["grpc", "rest"],
    "Protocol that --server speaks on this port.",
)
_SERVABLE_NAME = flags.DEFINE_string(
    "servable_name",
    connection.DEFAULT_NAME,
    "Name of the model at --server.",
)
common_flags.define_fields(connection.Options)
_TARGET_LANGUAGE = common_flags.define_target_language_flag(
    "With --server it is not checked whether the model has tags, nor which."
)
_INPUTS = flags.DEFINE_multi_string(
    "inputs",
    [],
    "A sentence; may be repeated. By default the lines of standard input.",
)


def main(inputs: tuple) -> None:
    version, lines, options = inputs
    model = _model(version, options, len(lines))
    lines = model.add_tags(lines, _TARGET_LANGUAGE.value or "")
    for batch in model.batches(lines):
        for translation in model.translate([lines[i] for i in batch]):
            print(translation.text, flush=True)


def _read_inputs():
    """Return the version, None for a --server, the lines, and the options."""
    if bool(_EXPORT_DIR.value) == bool(_SERVER.value):
        raise errors.UserError(
            "Name the model with one of --export_dir and --server; got "
            f"{'both' if _SERVER.value else 'neither'}."
        )
    version = None
    if _SERVER.value:
        connection.parse(_SERVER.value)
    else:
        version = version_folders.find_version(
            version_folders.open_folder(_EXPORT_DIR.value)
        )
    options = common_flags.field_values(connection.Options)
    for name in connection.FILES:
        if version and getattr(options, name):
            raise errors.UserError(
                f"--{name} is for a --server. Omit it for --export_dir."
            )
    lines = common_flags.require_utf8(_INPUTS) or list(
        parallel_files.split_lines(sys.stdin.buffer, "standard input")
    )
    return version, lines, options


def _model(version, options, num_lines):
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.runtime import graph
    from t2t_repro.serving import client

    if version:
        graph.optimize_for(num_lines)
        return client.ExportedModel(version, options.limits.split)
    address = connection.Address(
        _PROTOCOL.value, _SERVER.value, _SERVABLE_NAME.value
    )
    return client.connect(address, options)


if __name__ == "__main__":
    command_line.run(
        main,
        {"Required, one of": ("export_dir", "server")},
        _read_inputs,
    )
