"""Translate with an exported model, here or through a server.

t2t query --export_dir=… --inputs="A sentence."
t2t query --server=127.0.0.1:8500 --inputs="A sentence."
"""

import sys

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import at_least, flag, one_of
from t2t_repro.serving import connection, version_folders
from t2t_repro.text import long_lines, parallel_files


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
        one_of("grpc", "rest"),
    )
    servable_name: str = flag(
        connection.DEFAULT_NAME, "Name of the model at --server."
    )
    target_language: str | None = flag(
        None,
        f"{common_flags.TARGET_LANGUAGE} With --server it is not checked "
        "whether the model has tags, nor which.",
    )
    source_language: str = flag("", common_flags.SOURCE_LANGUAGE)
    inputs: common_flags.Repeated = flag(
        (),
        "A sentence; may be repeated. By default the lines of standard input.",
    )
    prefixes: common_flags.Repeated = flag(
        (),
        "Start of the translation, empty for any; as often as --inputs. This "
        "and the next flags need an export with --max_beam_size.",
    )
    side: common_flags.Repeated = flag(
        (), "Side input, which search rules read; as often as --inputs."
    )
    beam_size: int | None = flag(
        None, "Beams; by default those of the export.", at_least(1)
    )
    alpha: float | None = flag(
        None,
        "Exponent of the length penalty; by default that of the export.",
        at_least(0),
    )
    n_best: int = flag(
        1, "Translations of each sentence, separated by tabs.", at_least(1)
    )
    word_scores: bool = flag(
        False,
        "After each translation, a tab and the log-probability of each of its "
        "words.",
    )


_OF_LINES = "prefixes", "side"  # one for each line
_OF_TEXT = ("server", "servable_name", "target_language", "source_language")
_OF_SERVERS = ("protocol", "servable_name", "timeout_secs", "wait_secs")
common_flags.define_fields(connection.Options)


def main(inputs: tuple) -> None:
    version, lines, options, settings = inputs
    model = _model(version, options, settings, len(lines))
    lines = model.add_tags(lines, common_flags.direction(options))
    asked = {
        name: value
        for name in ("beam_size", "alpha")
        if (value := getattr(options, name)) is not None
    }
    if options.word_scores:
        asked["subwords"] = True
    truncated = {}
    for batch in model.batches(lines):
        for name in _OF_LINES:
            if texts := getattr(options, name):
                asked[name] = [texts[i] for i in batch]
        try:
            translations = model.translate(
                [lines[i] for i in batch], options.n_best, **asked
            )
        except errors.UserError as error:
            if not batch[0]:
                raise
            raise errors.UserError(
                f"Lines from {batch[0] + 1:,} on have no translation. {error}"
            ) from error
        for i, found in zip(batch, translations, strict=True):
            print("\t".join(_columns(found)), flush=True)
            if found.too_long:
                truncated[f"line {i + 1:,}"] = found.too_long
    if truncated:
        print(long_lines.message(truncated, len(truncated)), file=sys.stderr)


def _columns(found):
    """Yield the outputs of a line, or each with the scores of its words."""
    for number, text in enumerate(found.texts):
        yield text
        if found.subwords:
            scores = found.subwords[number].word_log_probs
            yield " ".join(f"{score:.6f}" for score in scores)


def _read_inputs():
    """Return the version, None for a --server, the lines, and the settings."""
    options = common_flags.field_values(Options)
    settings = common_flags.field_values(connection.Options)
    if bool(options.export_dir) == bool(options.server):
        raise errors.UserError(
            "Name the model with one of --export_dir and --server; got "
            f"{'both' if options.server else 'neither'}."
        )
    for name in _OF_TEXT:
        common_flags.require_utf8(name)
    version = None
    if options.server:
        connection.parse(options.server)
    else:
        version = version_folders.find_version(
            version_folders.open_folder(options.export_dir)
        )
    common_flags.refuse_ignored(
        {"export_dir": (*connection.FILES, *_OF_SERVERS)}
    )
    lines = common_flags.require_utf8("inputs") or list(
        parallel_files.split_lines(sys.stdin.buffer, "standard input")
    )
    for name in _OF_LINES:
        texts = common_flags.require_utf8(name)
        if texts and len(texts) != len(lines):
            raise errors.UserError(
                f"--{name} must be given as often as --inputs, or once for "
                f"each line; got {len(texts):,} for {len(lines):,}."
            )
    return version, lines, options, settings


def _model(version, options, settings, num_lines):
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
        main, {"Required, one of": ("export_dir", "server")}, _read_inputs
    )
