"""Translate with an exported model, here or through a server.

t2t query --export_dir=… --inputs="A sentence."
t2t query --server=127.0.0.1:8500 --inputs="A sentence."
"""

import dataclasses
import sys

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.fields import one_of, setting
from t2t_repro.serving import connection, version_folders
from t2t_repro.text import parallel_files


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(connection.Options):
    """Options of query, each a flag of the same name."""

    export_dir: str | None = setting(default=None, help="Folder of an export.")
    server: str | None = setting(
        default=None,
        help="HOST:PORT of TensorFlow Serving or of `t2t serve`, instead of "
        "--export_dir.",
    )
    protocol: str = setting(
        one_of("grpc", "rest"),
        default="grpc",
        help="Protocol that --server speaks on this port.",
    )
    servable_name: str = setting(
        default=connection.DEFAULT_NAME, help="Name of the model at --server."
    )
    target_language: str | None = setting(
        default=None,
        help=f"{common_flags.TARGET_LANGUAGE} With --server it is not checked "
        "whether the model has tags, nor which.",
    )
    inputs: common_flags.Repeated = setting(
        default=(),
        help="A sentence; may be repeated. By default the lines of standard "
        "input.",
    )


# In the order of --help.
_ADDRESS = ("export_dir", "server", "protocol", "servable_name")
common_flags.define_fields(Options, _ADDRESS)
common_flags.define_fields(connection.Options)
common_flags.define_fields(Options, ("target_language", "inputs"))


def main(inputs: tuple) -> None:
    version, lines, options = inputs
    model = _model(version, options, len(lines))
    lines = model.add_tags(lines, options.target_language or "")
    for batch in model.batches(lines):
        for translation in model.translate([lines[i] for i in batch]):
            print(translation.text, flush=True)


def _read_inputs():
    """Return the version, None for a --server, the lines, and the options."""
    options = common_flags.field_values(Options)
    if bool(options.export_dir) == bool(options.server):
        raise errors.UserError(
            "Name the model with one of --export_dir and --server; got "
            f"{'both' if options.server else 'neither'}."
        )
    version = None
    if options.server:
        connection.parse(options.server)
    else:
        version = version_folders.find_version(
            version_folders.open_folder(options.export_dir)
        )
    for name in connection.FILES:
        if version and getattr(options, name):
            raise errors.UserError(
                f"--{name} is for a --server. Omit it for --export_dir."
            )
    lines = common_flags.require_utf8("inputs") or list(
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
        options.protocol, options.server, options.servable_name
    )
    return client.connect(address, options)


if __name__ == "__main__":
    command_line.run(
        main,
        {"Required, one of": ("export_dir", "server")},
        _read_inputs,
    )
