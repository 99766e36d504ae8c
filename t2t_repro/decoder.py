"""Translate text, or compute the probabilities of translations.

    t2t decoder --output_dir=… --decode_from_file=in.txt \\
        --decode_to_file=out.txt
"""

import itertools
import json
import sys

from absl import flags

from t2t_repro import common_flags, errors, files
from t2t_repro.text import parallel_files

common_flags.define_decoding_flags()
_FROM_FILE = flags.DEFINE_string(
    "decode_from_file",
    None,
    "File of sentences, one a line; by default standard input.",
)
_TO_FILE = flags.DEFINE_string(
    "decode_to_file",
    None,
    "File for the translations; by default standard output.",
)
_PREFIX_FILE = flags.DEFINE_string(
    "decode_prefix_file",
    None,
    "With --decode_from_file: file whose lines are the beginnings of the "
    "translations; lines may be empty.",
)
_INTERACTIVE = flags.DEFINE_bool(
    "decode_interactive", False, "Translate each line as it is typed."
)
_SCORE_FILE = flags.DEFINE_string(
    "score_file",
    None,
    "File with lines of input, tab, target. Instead of translations, write "
    "each target's log-probability, a tab, and its length in subwords with "
    "EOS.",
)
_SCORE_SUBWORDS = flags.DEFINE_bool(
    "score_subwords",
    False,
    "With --score_file: also write, after another tab, each subword with its "
    "log-probability.",
)
_ATTENTION = flags.DEFINE_bool(
    "decode_attention",
    False,
    "Write a JSON object a line: the translation, the subwords of both sides, "
    "and the attention weights of target to source, "
    "[layers][target][source], averaged over heads.",
)


def main() -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro import runs
    from t2t_repro.decoding import shards

    # A file's batches are split into shards, each on a thread. A single
    # sentence has no shards, and scoring has large operations: there, threads
    # share an operation.
    if not (_INTERACTIVE.value or _ATTENTION.value or _SCORE_FILE.value):
        shards.use_one_thread_per_operation()
    run = runs.open_run(
        common_flags.output_dir(), common_flags.expected_settings()
    )
    hparams = common_flags.decode_hparams(run.problem)
    checkpoint_path = common_flags.checkpoint_path(run)
    source, target = run.problem.normalizers
    if _ATTENTION.value:
        models, _ = runs.load_models(run, checkpoint_path)
        tracer = _tracer(models, run, hparams)
        lines, _ = _read_lines()
        _write(_attention_lines(tracer, map(source, lines)))
        return
    translator = runs.load_translator(run, checkpoint_path, hparams)
    if _INTERACTIVE.value:
        _converse(translator, source, hparams.max_input_length)
    elif _SCORE_FILE.value:
        pairs = _read_tabbed(_SCORE_FILE.value)
        # No list: the file may be larger than memory.
        scores = translator.score((source(a), target(b)) for a, b in pairs)
        _write(map(_score_line, scores))
    else:
        lines, total = _read_lines()
        translations = translator.translate(
            map(source, lines), total, map(target, _read_prefixes(total))
        )
        # All beams on one line, as in tensor2tensor.
        _write("\t".join(item.texts) for item in translations)
        if translator.refused:
            raise errors.UserError(translator.refused_summary())


def _converse(translator, normalize, max_length):
    """Prompt, translate and print until the end of the input."""
    prompt = "> " if sys.stdin.isatty() else ""
    # Invalid UTF-8 does not end the conversation.
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        (translation,) = translator.translate([normalize(line)])
        for subwords in translator.refused.values():
            print(
                f"{subwords:,} subwords are more than {max_length:,}.",
                flush=True,
            )
        if not translator.refused:
            for text, score in zip(
                translation.texts, translation.scores, strict=True
            ):
                print(f"{score:8.4f}  {text}", flush=True)


def _tracer(models, run, hparams):
    """Return the AttentionTracer of the only model."""
    from t2t_repro.decoding import attention_trace

    if len(models) > 1:
        raise errors.UserError(
            "--decode_attention looks into one model; --checkpoint_path names "
            f"{len(models)}. Name one."
        )
    return attention_trace.AttentionTracer(models[0], run.vocabularies, hparams)


def _attention_lines(tracer, lines):
    """Yield a JSON object for each line; blank lines stay blank."""
    for line in lines:
        if not line.strip():
            yield ""
            continue
        trace = tracer.trace(line)
        weights = trace.weights.cross.mean(1)  # [layers, T, L]
        values = trace._replace(weights=weights.round(6).tolist())._asdict()
        yield json.dumps(values, ensure_ascii=False)


def _read_lines():
    """Return the lines to translate, and their number if it is known."""
    if not _FROM_FILE.value:
        # Iteration over sys.stdin would split lines at U+0085, too.
        return (
            parallel_files.split_lines(sys.stdin.buffer, "standard input"),
            None,
        )
    # Read twice: a file may be larger than memory.
    total = sum(1 for _ in parallel_files.read_lines(_FROM_FILE.value))
    return parallel_files.read_lines(_FROM_FILE.value), total


def _read_prefixes(total):
    """Return the beginnings of `total` translations; "" without a file."""
    name = _PREFIX_FILE.value
    if not name:
        return itertools.repeat("")
    count = sum(1 for _ in parallel_files.read_lines(name))
    if count != total:
        raise errors.UserError(
            f"--decode_prefix_file has a line for each of --decode_from_file; "
            f"got {count} lines in {name} for {total or 'no file'}."
        )
    return parallel_files.read_lines(name)


def _read_tabbed(name):
    """Yield the pairs of a file."""
    for number, line in enumerate(parallel_files.read_lines(name), 1):
        pair = tuple(line.split("\t"))
        if len(pair) != 2:
            raise errors.UserError(
                f"{name}, line {number}: expected input, tab, target; got "
                f"{len(pair)} fields: {line[:80]!r}."
            )
        yield pair


def _score_line(score):
    fields = [f"{score.total:.6f}", str(len(score.pieces))]
    if _SCORE_SUBWORDS.value:
        pairs = zip(score.pieces, score.log_probs, strict=True)
        fields.append(
            " ".join(f"{piece} {value:.6f}" for piece, value in pairs)
        )
    return "\t".join(fields)


def _write(lines):
    """Write lines as they arrive."""
    if not _TO_FILE.value:
        for line in lines:
            print(line, flush=True)
        return
    with files.atomic_text_file(files.expand_path(_TO_FILE.value)) as file:
        for line in lines:
            file.write(f"{line}\n")


if __name__ == "__main__":
    common_flags.run(main, common_flags.RUN)
