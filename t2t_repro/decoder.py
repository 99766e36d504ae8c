"""Translate text, or compute the probabilities of translations.

    t2t decoder --output_dir=… --decode_from_file=in.txt \\
        --decode_to_file=out.txt
    t2t decoder --output_dir=… --decode_from_file='*.txt' \\
        --decode_to_dir=out
"""

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags, decoder_flags
from t2t_repro.decoding import translation
from t2t_repro.io import progress

common_flags.define_decoding_flags()
flags.adopt_module_key_flags(decoder_flags)


def main(job: decoder_flags.Job | decoder_flags.BulkJob) -> None:
    if isinstance(job, decoder_flags.BulkJob):
        _translate_files(job)
    else:
        _decode(*job)


def _translate_files(job):
    """Translate many files into a folder."""
    # Imported here, so that --help needs no PyArrow.
    from t2t_repro.bulk import bulk_decoding

    message = bulk_decoding.translate_files(
        job.model(
            decoder_flags.SPLIT_SENTENCES.value,
            decoder_flags.TARGET_LANGUAGE.value or "",
        ),
        job.sources,
        job.folder,
        job.engine(),
        decoder_flags.OUTPUT_FORMAT.value,
        job.shard_lines,
    )
    if message:
        raise errors.UserError(message)


def _decode(model, total):
    """Translate or score one file, standard input, or typed lines."""
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.decoding import translate
    from t2t_repro.runtime import graph

    interactive, attention, score = (
        flag.value
        for flag in (
            decoder_flags.INTERACTIVE,
            decoder_flags.ATTENTION,
            decoder_flags.SCORE_FILE,
        )
    )
    if total is not None:
        graph.optimize_for(total)
    model.print_checkpoints()
    run, paths, hparams = model
    _choose_threads(paths)
    problem = run.problem.toward(decoder_flags.TARGET_LANGUAGE.value or "")
    source, target = problem.normalizers
    split = translate.line_splitter(
        problem, run.vocabularies.source, decoder_flags.SPLIT_SENTENCES.value
    )
    models = run.models(paths)
    if attention:
        _trace(models, run, hparams, source, total)
        return
    translator = translate.BatchTranslator(
        models,
        run.vocabularies,
        hparams,
        _aligner(models, run),
        split,
        one_sentence=interactive,
    )
    if interactive:
        _converse(translator, hparams.max_input_length)
    elif score:
        # No list: the file may be larger than memory.
        pairs = ((source(a), target(b)) for a, b in decoder_flags.read_pairs())
        _write(map(_score_line, translator.score(pairs, total)))
    else:
        prefixes = map(target, decoder_flags.read_prefixes())
        _translate(translator, prefixes, total, hparams.max_input_length)


def _choose_threads(paths):
    """Choose TensorFlow's threads for the work that the flags name."""
    from t2t_repro.runs.checkpoints import CheckpointReader
    from t2t_repro.runtime import devices

    # A file's batches are split into shards, each on a thread. Tracing and
    # scoring have large operations: there, threads share an operation.
    if decoder_flags.INTERACTIVE.value:
        devices.choose_threads_for_one_sentence(
            sum(CheckpointReader(path).num_weights for path in paths)
        )
    elif not (decoder_flags.ATTENTION.value or decoder_flags.SCORE_FILE.value):
        devices.use_one_thread_per_operation()


def _aligner(models, run):
    """Return the Aligner that the flags ask for, or None."""
    from t2t_repro.decoding import translate

    if not decoder_flags.ALIGNMENTS.value:
        return None
    return translate.Aligner(
        models, run.vocabularies, decoder_flags.ALIGNMENT_LAYER.value
    )


def _translate(translator, prefixes, total, max_length):
    """Translate a file or standard input."""
    lines, sources = itertools.tee(decoder_flags.read_lines())
    signals = progress.StopSignals()
    translations = translator.translate(
        lines, total, prefixes, lambda: signals.received
    )
    with (
        signals if decoder_flags.keeps_partial() else contextlib.nullcontext(),
        decoder_flags.open_output() as write,
        decoder_flags.open_alignments() as write_alignment,
    ):
        writer = _TranslationWriter(sources, write, write_alignment)
        try:
            writer.write(translations)
        except translation.Stopped as stopped:
            writer.write(stopped.translations, strict=False)
            print(
                f"Interrupted: {writer.finished:,} of {total:,} lines are "
                "translated. To continue after an interruption, use "
                f"--{decoder_flags.TO_DIR.name}.",
                file=sys.stderr,
            )
            sys.exit(progress.exit_code(signals.received))
    if writer.refused:
        raise errors.UserError(
            translation.refused_message(writer.refused, max_length)
        )


class _TranslationWriter:
    """Writer of translations and alignments, in the order of the lines."""

    def __init__(
        self,
        sources: Iterable[str],
        write: Callable[[str], object],
        write_alignment: Callable[[str], object],
    ) -> None:
        """Store the lines and the functions that write a line to a file."""
        self._numbered = enumerate(sources, 1)
        self._write, self._write_alignment = write, write_alignment
        self.finished = 0
        self.refused: dict[int, int] = {}  # {line number: subwords}

    def write(self, translations: Iterable, strict: bool = True) -> None:
        """Write translations; for None, a blank line if a line is a sentence.

        Other formats have the number or the text of a sentence.

        Args:
            translations: translations of the next lines.
            strict: whether they must be those of all lines that are left.
        """
        name = decoder_flags.OUTPUT_FORMAT.value
        format_output = translation.OUTPUT_FORMATS[name]
        # The translations first: their end closes the progress bar.
        for found, (number, line) in zip(
            translations, self._numbered, strict=strict
        ):
            if found is not None:
                self.finished += 1
                self._write(format_output(number, line, found))
                if found.too_long:
                    self.refused[number] = found.too_long
            elif name == "text":
                self._write("")
            alignment = found and found.alignment
            self._write_alignment(alignment.pharaoh() if alignment else "")


def _converse(translator, max_length):
    """Prompt, translate and print until the end of the input."""
    prompt = "> " if sys.stdin.isatty() else ""
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
            print(error, flush=True)
            continue
        if found.too_long:
            print(
                f"{found.too_long:,} subwords are more than {max_length:,}.",
                flush=True,
            )
            continue
        for text, score in zip(found.texts, found.scores, strict=True):
            print(f"{score:8.4f}  {text}", flush=True)


def _trace(models, run, hparams, normalize, total):
    """Write the attention weights of the only model for each line."""
    from t2t_repro.decoding import score

    (model,) = models
    tracer = score.AttentionTracer(model, run.vocabularies, hparams)
    lines = progress.bar(
        decoder_flags.read_lines(),
        "trace",
        total,
        unit="line",
        disable=total is None,
    )
    _write(_attention_lines(tracer, map(normalize, lines)))


def _attention_lines(tracer, lines):
    """Yield a JSON object for each line; blank lines stay blank."""
    for line in lines:
        if tracer.is_blank(line):
            yield ""
            continue
        trace = tracer.trace(line)
        weights = trace.weights.cross.mean(1)  # [layers, T, L]
        values = trace._replace(weights=weights.round(6).tolist())._asdict()
        yield json.dumps(values, ensure_ascii=False)


def _score_line(score):
    fields = [f"{score.total:.6f}", str(len(score.pieces))]
    if decoder_flags.SCORE_SUBWORDS.value:
        pairs = zip(score.pieces, score.log_probs, strict=True)
        fields.append(
            " ".join(f"{piece} {value:.6f}" for piece, value in pairs)
        )
    return "\t".join(fields)


def _write(lines):
    """Write lines as they arrive."""
    with decoder_flags.open_output() as write:
        for line in lines:
            write(line)


if __name__ == "__main__":
    command_line.run(main, common_flags.RUN, decoder_flags.check)
