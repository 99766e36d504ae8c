"""Translate text, or compute the probabilities of translations.

    t2t decoder --output_dir=… --decode_from_file=in.txt \\
        --decode_to_file=out.txt
    t2t decoder --output_dir=… --decode_from_file='*.txt' \\
        --decode_to_dir=out
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import sys
from collections.abc import Callable

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags, decoder_flags
from t2t_repro.decoding import translation
from t2t_repro.io import files, progress

common_flags.define_decoding_flags()
common_flags.define_fields(decoder_flags.Options)


def main(job: Callable[[], str | None]) -> None:
    if message := job():
        raise errors.UserError(message)


def _check():
    """Check flags and files, and count the lines to translate or to score.

    Returns:
        A function that does the work, and may return an error's message.
    """
    decoder_flags.check()
    options = common_flags.field_values(decoder_flags.Options)
    count = len(files.split_paths(flags.FLAGS.checkpoint_path or ""))
    if options.decode_attention and count > 1:
        raise errors.UserError(
            "--decode_attention looks into one model; --checkpoint_path names "
            f"{count}. Name one."
        )
    if options.decode_to_dir:
        return _check_bulk(options)
    model = common_flags.trained_model()
    run = model.run.toward(common_flags.direction(options))
    # Models of a --usr_dir check the number when they are loaded.
    if num_layers := (
        getattr(run.hparams, "num_decoder_layers", 0)
        or getattr(run.hparams, "num_hidden_layers", 0)
    ):
        translation.layer_index(options.alignment_layer, num_layers)
    split = run.problem.line_splitter(
        run.vocabularies.source, options.split_sentences
    )
    options.check_outputs(model.decode_hparams.rule_files.values())
    total = options.count_lines(run.problem)
    model = model._replace(run=run)
    return functools.partial(_decode, options, model, split, total)


def _check_bulk(options):
    from t2t_repro.data import engines
    from t2t_repro.serving import bulk_decoding, translation_folder

    folder = files.expand_path(options.decode_to_dir)
    sources = options.find_files(folder)
    translation_folder.output_names(sources)  # checks that they differ
    language = common_flags.direction(options)
    if options.export_dir:
        model = bulk_decoding.of_export(options.export_dir, language)
    else:
        trained = common_flags.trained_model()
        trained.print_checkpoints()
        model = bulk_decoding.of_run(
            *trained, options.split_sentences, language
        )
    files.require_writable(folder)
    return functools.partial(
        bulk_decoding.translate_files,
        model,
        sources,
        folder,
        engines.create(
            options.engine, options.num_workers, bulk_decoding.local_engine
        ),
        options.output_format,
        options.shard_lines or translation_folder.SHARD_LINES,
    )


def _decode(options, model, split, total):
    """Translate or score one file, standard input, or typed lines."""
    from t2t_repro.decoding import reranking, translate
    from t2t_repro.runtime import graph

    if total is not None:
        graph.optimize_for(total)
    model.print_checkpoints()
    run, paths, hparams = model
    _choose_threads(options, paths)
    source, target = run.problem.normalizers
    models = run.models(paths)
    aligner = None
    if options.alignments:
        aligner = translate.Aligner(
            models, run.vocabularies, options.alignment_layer
        )
    if options.decode_attention:
        hparams = dataclasses.replace(hparams, return_beams=False)
    if options.score_file:  # which aligns given targets
        hparams = dataclasses.replace(hparams, rerank="")
    translator = translate.BatchTranslator(
        models,
        run.vocabularies,
        hparams,
        aligner,
        split,
        one_sentence=options.decode_interactive,
    )
    reranking.require_direction(translator.reranker, run.problem)
    if options.decode_attention:
        translator.require_attention()  # also without any line
        lines = progress.bar(
            map(source, options.read_lines()),
            "trace",
            total,
            unit="line",
            disable=total is None,
        )
        with options.open_output() as write:
            for line in lines:
                write(_attention_line(translator, line))
    elif options.decode_interactive:
        _converse(translator, hparams.max_input_length)
    elif options.score_file:
        # No list: the file may be larger than memory.
        pairs = ((source(a), target(b)) for a, b in options.read_pairs())
        _score(options, translator.score(pairs, total))
    else:
        side = options.read_beside("decode_side_file")
        prefixes = options.read_beside("decode_prefix_file")
        if side is not None:
            side = translation.normalize_fields(side, target)
        translate_lines = functools.partial(
            translator.translate,
            prefixes=map(target, prefixes or itertools.repeat("")),
            side=side,
        )
        _translate(options, translate_lines, total, hparams.max_input_length)


def _choose_threads(options, paths):
    from t2t_repro.runs.checkpoints import CheckpointReader
    from t2t_repro.runtime import devices

    # A file's batches are split into shards, each on a thread. Tracing and
    # scoring have large operations: there, threads share an operation.
    if options.decode_interactive:
        devices.choose_threads_for_one_sentence(
            sum(CheckpointReader(path).num_weights for path in paths)
        )
    elif not (options.decode_attention or options.score_file):
        devices.use_one_thread_per_operation()


def _translate(options, translate_lines, total, max_length):
    lines, sources = itertools.tee(options.read_lines())
    signals = progress.StopSignals()
    stopped = False

    def translations():
        nonlocal stopped
        try:
            yield from translate_lines(
                lines, total, stop=lambda: signals.received
            )
        except translation.Stopped as end:
            stopped = True
            yield from end.translations

    format_output = translation.OUTPUT_FORMATS[options.output_format]
    finished, missing = 0, []
    refused = {}  # {line number: subwords}
    with (
        signals if options.keeps_partial else contextlib.nullcontext(),
        options.open_output() as write,
        options.open_alignments() as write_alignment,
    ):
        # The translations first: their end closes the progress bar.
        for found, (number, line) in zip(
            translations(), enumerate(sources, 1), strict=False
        ):
            if found is not None:
                finished += 1
                if translation.is_missing(line, found):
                    missing.append(found)
                write(format_output(number, line, found))
                if found.too_long:
                    refused[number] = found.too_long
            # Lines of other formats name their sentence.
            elif options.output_format == "text":
                write("")
            alignment = found and found.alignment
            write_alignment(alignment.pharaoh() if alignment else "")
        if stopped:
            print(
                f"Interrupted: {finished:,} of {total:,} lines are translated. "
                "To continue after an interruption, use --decode_to_dir.",
                file=sys.stderr,
            )
            sys.exit(progress.exit_code(signals.received))
    if missing:
        print(translation.missing_note(missing, finished), file=sys.stderr)
    if refused:
        raise errors.UserError(translation.refused_message(refused, max_length))


def _converse(translator, max_length):
    prompt = "> " if sys.stdin.isatty() else ""
    say = functools.partial(print, flush=True)
    # Invalid UTF-8 does not end the conversation.
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        try:
            (found,) = translator.translate([line])
        except errors.UserError as error:  # the line has no tag
            say(error)
            continue
        if count := found.too_long:
            say(f"{count:,} subwords are more than {max_length:,}.")
            continue
        for text, score in zip(found.texts, found.scores, strict=True):
            say(f"{score:8.4f}  {text}")


def _attention_line(translator, line):
    """Return the JSON object of a line; a blank line stays blank."""
    if translator.is_blank(line):
        return ""
    trace = translator.attention(line)
    weights = trace.weights.cross.mean(1)  # [layers, T, L]
    values = trace._replace(weights=weights.round(6).tolist())._asdict()
    return json.dumps(values, ensure_ascii=False)


def _score(options, scores):
    with (
        options.open_output() as write,
        options.open_alignments() as write_alignment,
    ):
        for score in scores:
            fields = [f"{score.total:.6f}", str(len(score.pieces))]
            if options.score_subwords:
                pairs = zip(score.pieces, score.log_probs, strict=True)
                fields.append(
                    " ".join(f"{x} {value:.6f}" for x, value in pairs)
                )
            write("\t".join(fields))
            if score.alignment is not None:
                write_alignment(score.alignment.pharaoh())


if __name__ == "__main__":
    command_line.run(main, common_flags.RUN, _check)
