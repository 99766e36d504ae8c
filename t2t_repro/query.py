"""Translate with an exported model, here or through a server.

t2t query --export_dir=… --inputs="A sentence."
t2t query --server=127.0.0.1:8500 --inputs="A sentence."
"""

import sys

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import flag
from t2t_repro.serving import connection, version_folders
from t2t_repro.text import parallel_files


@common_flags.options
class Options:
    """Options of query, each a flag of the same name."""

    export_dir: str | None = flag(None, "Folder of an export.")
    server: str | None = flag(
        None,
        "HOST:PORT of TensorFlow Serving or of `t2t serve`, instead of "
        "--export_dir.",
    )
    protocol: str = flag(
        "grpc",
        "Protocol that --server speaks on this port.",
        choices=("grpc", "rest"),
    )
    servable_name: str = flag(
        connection.DEFAULT_NAME, "Name of the model at --server."
    )
    target_language: str | None = flag(
        None,
        f"{common_flags.TARGET_LANGUAGE} With --server it is not checked "
        "whether the model has tags, nor which.",
    )
    inputs: common_flags.Repeated = flag(
        (),
        "A sentence; may be repeated. By default the lines of standard input.",
    )


common_flags.define_fields(connection.Options)


def main(inputs: tuple) -> None:
    version, lines, options, settings = inputs
    model = _model(version, options, settings, len(lines))
    lines = model.add_tags(lines, options.target_language or "")
    for batch in model.batches(lines):
        for translation in model.translate([lines[i] for i in batch]):
            print(translation.text, flush=True)


def _read_inputs():
    """Return the version, None for a --server, the lines, and the settings."""
    options = common_flags.field_values(Options)
    settings = common_flags.field_values(connection.Options)
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
        if version and getattr(settings, name):
            raise errors.UserError(
                f"--{name} is for a --server. Omit it for --export_dir."
            )
    lines = common_flags.require_utf8("inputs") or list(
        parallel_files.split_lines(sys.stdin.buffer, "standard input")
    )
    return version, lines, options, settings


def _model(version, options, settings, num_lines):
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.runtime import graph
    from t2t_repro.serving import client

    if version:
        graph.optimize_for(num_lines)
        return client.ExportedModel(version, settings.limits.split)
    address = connection.Address(
        options.protocol, options.server, options.servable_name
    )
    return client.connect(address, settings)


if __name__ == "__main__":
    command_line.run(
        main,
        {"Required, one of": ("export_dir", "server")},
        _read_inputs,
    )
