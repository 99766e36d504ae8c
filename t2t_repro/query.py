"""Translate with an exported model, here or through a server.

t2t query --export_dir=… --inputs="A sentence."
t2t query --server=127.0.0.1:8500 --inputs="A sentence."
"""

import sys

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import files
from t2t_repro.server import server_settings
from t2t_repro.serving import limits, server_address, version_folders
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
    "servable_name", "t2t", "Name of the model at --server."
)
_TIMEOUT_SECS = common_flags.define_number(
    "timeout_secs",
    30.0,
    "Seconds that --server has for a request, of --max_batch_size lines or "
    "of fewer long ones.",
    lower_bound=0.001,
    upper_bound=86_400,
)
_WAIT_SECS = common_flags.define_number(
    "wait_secs",
    300.0,
    "Seconds for which `query` retries while --server is not there, loads its "
    "model or has too many requests.",
    lower_bound=0.0,
    upper_bound=86_400,
)
_TOKEN_FILE = flags.DEFINE_string(
    "token_file", None, "File whose first line is a token of --server."
)
_TLS_CA = flags.DEFINE_string(
    "tls_ca",
    None,
    "Certificates (PEM) that --server's certificate must be signed by: HTTPS, "
    "or gRPC with TLS.",
)
_TLS_CERTIFICATE = flags.DEFINE_string(
    "tls_certificate", None, "Certificate (PEM) of this client, with --tls_ca."
)
_TLS_KEY = flags.DEFINE_string("tls_key", None, "Key of --tls_certificate.")
_MAX_BATCH_SIZE = flags.DEFINE_integer(
    "max_batch_size",
    limits.Limits().max_batch_size,
    "Maximum number of lines in a request; --server may accept fewer.",
    lower_bound=1,
)
_TARGET_LANGUAGE = common_flags.define_target_language_flag(
    "With --server it is not checked whether the model has tags, nor which."
)
_INPUTS = flags.DEFINE_multi_string(
    "inputs",
    [],
    "A sentence; may be repeated. By default the lines of standard input.",
)


def main(inputs: tuple) -> None:
    version, lines, security = inputs
    model = _client(version, security, len(lines))
    lines = model.add_tags(lines, _TARGET_LANGUAGE.value or "")
    for translation in model.translate(lines, _MAX_BATCH_SIZE.value):
        print(translation.texts[0], flush=True)


def _read_inputs():
    """Return the version, the lines, and arguments of client.Security.

    The version is None for a --server.
    """
    if bool(_EXPORT_DIR.value) == bool(_SERVER.value):
        raise errors.UserError(
            "Name the model with one of --export_dir and --server; got "
            f"{'both' if _SERVER.value else 'neither'}."
        )
    version = None
    if _SERVER.value:
        server_address.parse(_SERVER.value)
    else:
        version = version_folders.find_version(
            version_folders.open_folder(_EXPORT_DIR.value)
        )
    security = _security()
    lines = common_flags.require_utf8(_INPUTS) or list(
        parallel_files.split_lines(sys.stdin.buffer, "standard input")
    )
    return version, lines, security


def _client(version, security, num_lines):
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.runtime import graph
    from t2t_repro.serving import client

    if version:
        graph.optimize_for(num_lines)
        return client.LocalClient(version)
    return client.PROTOCOLS[_PROTOCOL.value](
        _SERVER.value,
        _SERVABLE_NAME.value,
        _TIMEOUT_SECS.value,
        client.Security(*security),
        _WAIT_SECS.value,
    )


def _security():
    """Return the arguments of client.Security that the flags name."""
    named = [
        flag
        for flag in (_TOKEN_FILE, _TLS_CA, _TLS_CERTIFICATE, _TLS_KEY)
        if flag.value
    ]
    if named and not _SERVER.value:
        raise errors.UserError(
            f"--{named[0].name} is for a --server. Omit it for --export_dir."
        )
    token = None
    if _TOKEN_FILE.value:
        token = server_settings.read_tokens(_TOKEN_FILE.value)[0]
    ca, certificate, key = paths = [
        flag.value and files.expand_path(flag.value)
        for flag in (_TLS_CA, _TLS_CERTIFICATE, _TLS_KEY)
    ]
    if bool(certificate) != bool(key) or (certificate and not ca):
        raise errors.UserError(
            "A client certificate needs --tls_ca, --tls_certificate and "
            "--tls_key; got some of them."
        )
    for path in filter(None, paths):
        if not path.is_file():
            raise errors.UserError(f"There is no certificate or key {path}.")
    return token, *paths


if __name__ == "__main__":
    command_line.run(
        main,
        {"Required, one of": ("export_dir", "server")},
        _read_inputs,
    )
