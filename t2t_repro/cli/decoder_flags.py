"""Flags of decoder, and checks of its inputs that need no TensorFlow."""

import contextlib
import functools
import glob
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from absl import flags

from t2t_repro import errors
from t2t_repro.bulk import translation_folder
from t2t_repro.cli import common_flags
from t2t_repro.data import engines
from t2t_repro.decoding import translation
from t2t_repro.io import files
from t2t_repro.serving import version_folders
from t2t_repro.text import long_lines, parallel_files

if TYPE_CHECKING:
    from t2t_repro.bulk import bulk_decoding

# Flags of decoder for many files, and checks of them without TensorFlow.

TO_DIR = flags.DEFINE_string(
    "decode_to_dir",
    None,
    "Translate all files that match the pattern --decode_from_file, such as "
    "'mono/*.en.gz', into this folder. A command that was killed continues.",
)
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir",
    None,
    "With --decode_to_dir: folder of an export, instead of a run.",
)
_SHARD_LINES = flags.DEFINE_integer(
    "shard_lines",
    translation_folder.SHARD_LINES,
    "With --decode_to_dir: lines that a worker translates and writes at once.",
    lower_bound=1,
)
_ENGINE = flags.DEFINE_string(
    "engine",
    "local",
    "With --decode_to_dir: engine that translates: local, processes on this "
    "machine; or dask:ADDRESS, the workers of a Dask cluster.",
)
_NUM_WORKERS = flags.DEFINE_integer(
    "num_workers",
    None,
    "With --decode_to_dir: processes of the local engine, each with the model; "
    "by default one for each GPU, or without for each core, at most 8.",
    lower_bound=1,
)
NEEDS_TO_DIR = (_EXPORT_DIR, _SHARD_LINES, _ENGINE, _NUM_WORKERS)
# Flags of a run, which an export ignores.
_OF_RUN = (
    "output_dir",
    "problem",
    "problem_args",
    "hparams_set",
    "hparams",
    "checkpoint_path",
    "decode_hparams",
    "split_sentences",
)


class BulkJob(NamedTuple):
    """Files to translate, and the flags for it."""

    sources: list[pathlib.Path]
    folder: pathlib.Path
    trained: common_flags.TrainedModel | None  # or
    export: pathlib.Path | None  # folder of a version
    cluster: engines.Engine | None  # None: processes on this machine
    shard_lines: int

    def model(
        self, split_sentences: bool, target_language: str
    ) -> "bulk_decoding.Model":
        """Return the model that the flags name."""
        # Imported here, so that --help needs no PyArrow.
        from t2t_repro.bulk import bulk_decoding

        if self.export is not None:
            return bulk_decoding.of_export(self.export, target_language)
        assert self.trained is not None
        self.trained.print_checkpoints()
        return bulk_decoding.of_run(
            *self.trained, split_sentences, target_language
        )

    def engine(self) -> engines.Engine:
        """Return the engine that the flags name."""
        if self.cluster is not None:
            return self.cluster
        count = _NUM_WORKERS.value
        if count is None:
            # Imported here, so that --help needs no TensorFlow.
            from t2t_repro.runtime import devices

            count = devices.default_num_workers()
        return engines.ProcessEngine(count) if count > 1 else engines.INLINE


def check_bulk(pattern: str) -> BulkJob:
    """Check the flags, and find the files.

    Args:
        pattern: value of --decode_from_file.

    Raises:
        UserError: flags contradict each other; there is no such file, run,
            export or engine, or the folder cannot be written.
    """
    trained = export = None
    if _EXPORT_DIR.value:
        _refuse_flags_of_run()
        export = version_folders.find_version(
            version_folders.open_folder(_EXPORT_DIR.value)
        )
    else:
        trained = common_flags.trained_model()
    cluster = None
    if _ENGINE.value != "local":
        cluster = engines.create(_ENGINE.value, engines.INLINE)
    if cluster is not None and _NUM_WORKERS.value is not None:
        raise errors.UserError(
            f"--engine={_ENGINE.value} ignores --num_workers: the cluster has "
            "its own workers. Omit one of them."
        )
    folder = files.expand_path(TO_DIR.value or "")
    sources = _find(pattern, folder)
    translation_folder.output_names(sources)
    files.require_writable(folder)
    return BulkJob(
        sources, folder, trained, export, cluster, _SHARD_LINES.value
    )


def _refuse_flags_of_run():
    for name in _OF_RUN:
        flag = flags.FLAGS[name]
        if flag.value != flag.default:
            raise errors.UserError(
                f"--export_dir ignores --{name}: an export has its own model "
                "and search. Omit one of them."
            )


def _find(pattern: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of a pattern, or the one of that name, sorted.

    Files in the folder of the translations are left out: a pattern such as
    */*.en matches those of an earlier command.
    """
    path = files.expand_path(pattern)
    matches = (
        [path]
        if path.is_file()
        else map(pathlib.Path, glob.iglob(str(path), recursive=True))
    )
    found = sorted(path for path in matches if path.is_file())
    outputs = folder.resolve()
    sources = [path for path in found if outputs not in path.resolve().parents]
    if found and not sources:
        raise errors.UserError(
            f"--decode_to_dir={folder} has the files of --decode_from_file="
            f"{pattern} itself. Name another folder."
        )
    if not sources:
        raise errors.UserError(
            f"No file matches --decode_from_file={pattern}. Quote the pattern, "
            "so that the shell does not replace it."
        )
    return sources


_FROM_FILE = flags.DEFINE_string(
    "decode_from_file",
    None,
    "File of sentences, one a line; by default standard input. With "
    "--decode_to_dir: a pattern.",
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
OUTPUT_FORMAT = flags.DEFINE_enum(
    "output_format",
    "text",
    ["text", "tsv", "jsonl"],
    "text: a line for each sentence, several outputs separated by tabs. tsv: "
    "a line for each output: sentence, rank, score, text. jsonl: a JSON object "
    "for each sentence: the line, and its outputs with their scores.",
)
ALIGNMENTS = flags.DEFINE_string(
    "alignments",
    None,
    "File for the word alignments of the best translations, a line for each "
    "sentence, in Pharaoh format: source-target, as 0-0 1-2.",
)
ALIGNMENT_LAYER = flags.DEFINE_integer(
    "alignment_layer",
    None,
    "With --alignments: layer of the decoder, from 1, whose attention aligns; "
    "by default the last but one.",
    lower_bound=1,
)
SPLIT_SENTENCES = flags.DEFINE_bool(
    "split_sentences",
    False,
    "Split each line into sentences, translate them, and join their "
    "translations by a space. Needs the extra `sentences`.",
)
INTERACTIVE = flags.DEFINE_bool(
    "decode_interactive", False, "Translate each line as it is typed."
)
SCORE_FILE = flags.DEFINE_string(
    "score_file",
    None,
    "File with lines of input, tab, target. Instead of translations, write "
    "each target's log-probability, a tab, and its length in subwords with "
    "EOS.",
)
SCORE_SUBWORDS = flags.DEFINE_bool(
    "score_subwords",
    False,
    "With --score_file: also write, after another tab, each subword with its "
    "log-probability.",
)
ATTENTION = flags.DEFINE_bool(
    "decode_attention",
    False,
    "Write a JSON object a line: the translation, the subwords of both sides, "
    "and the attention weights of target to source, "
    "[layers][target][source], averaged over heads.",
)
TARGET_LANGUAGE = flags.DEFINE_string(
    "target_language", None, common_flags.TARGET_LANGUAGE
)
# Flags that replace the translation of a file, and those that they ignore.
_OF_TRANSLATIONS = (
    _PREFIX_FILE,
    OUTPUT_FORMAT,
    ALIGNMENTS,
    TO_DIR,
)
_IGNORED = (
    (
        INTERACTIVE,
        (_FROM_FILE, _TO_FILE, SCORE_FILE, ATTENTION, *_OF_TRANSLATIONS),
    ),
    (
        SCORE_FILE,
        (_FROM_FILE, ATTENTION, SPLIT_SENTENCES, *_OF_TRANSLATIONS),
    ),
    (ATTENTION, (SPLIT_SENTENCES, *_OF_TRANSLATIONS)),
    (TO_DIR, (_TO_FILE, _PREFIX_FILE, ALIGNMENTS)),
)
# Flags, and the flag without which they mean nothing.
_NEEDED = (
    (SCORE_SUBWORDS, SCORE_FILE),
    (_PREFIX_FILE, _FROM_FILE),
    (ALIGNMENT_LAYER, ALIGNMENTS),
    (TO_DIR, _FROM_FILE),
    *((flag, TO_DIR) for flag in NEEDS_TO_DIR),
)


class Job(NamedTuple):
    """Lines to translate or to score, and the model for it."""

    model: common_flags.TrainedModel
    total: int | None  # number of lines; None: unknown


def check() -> Job | BulkJob:
    """Check flags and files, and count the lines to translate or to score.

    Raises:
        UserError: flags contradict each other, or name a file that cannot be
            read or written, or there is no such run or checkpoint.
    """
    _check_combinations()
    if TO_DIR.value:
        job = check_bulk(_FROM_FILE.value or "")
        if job.trained:
            language = TARGET_LANGUAGE.value or ""
            _check_splitter(job.trained.run.problem.toward(language))
        return job
    model = common_flags.trained_model()
    hparams = model.run.hparams
    problem = model.run.problem.toward(TARGET_LANGUAGE.value or "")
    # Models of a --usr_dir check the number when they are loaded.
    if num_layers := (
        getattr(hparams, "num_decoder_layers", 0)
        or getattr(hparams, "num_hidden_layers", 0)
    ):
        translation.layer_index(ALIGNMENT_LAYER.value, num_layers)
    _check_splitter(problem)
    outputs = [
        files.expand_path(flag.value)
        for flag in (_TO_FILE, ALIGNMENTS)
        if flag.value
    ]
    inputs = [
        files.expand_path(flag.value)
        for flag in (_FROM_FILE, _PREFIX_FILE, SCORE_FILE)
        if flag.value
    ]
    for path in outputs:
        files.require_replaceable(path)
        if path.resolve() in {each.resolve() for each in inputs}:
            raise errors.UserError(
                f"{path} is also a file to read, and would be lost. Name "
                "another file to write."
            )
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise errors.UserError(
            f"--{_TO_FILE.name} and --{ALIGNMENTS.name} are the same file: "
            f"{outputs[0]}. Name two."
        )
    return Job(model, _count(problem))


def _count(problem):
    """Count the lines of the files, and check each; None: there is no file."""
    if SCORE_FILE.value:
        return _count_sources((source for source, _ in read_pairs()), problem)
    if not _FROM_FILE.value:
        return None
    # Read twice: a file may be larger than memory.
    total = _count_sources(read_lines(), problem)
    if _PREFIX_FILE.value:
        _check_prefixes(total)
    return total


def _count_sources(lines, problem):
    """Count sources, which must have tags for a many-to-many model."""
    total = 0
    for total, line in enumerate(lines, 1):
        try:
            if problem.target_languages:
                problem.normalizers[0](line)
        except errors.UserError as error:
            raise errors.UserError(f"Line {total:,}: {error}") from error
    return total


def _check_splitter(problem):
    """Check that there is one for the source language, if it is needed."""
    if SPLIT_SENTENCES.value:
        long_lines.sentence_splitter(problem.source_language)


def _check_combinations():
    for flag, ignored in _IGNORED:
        for other in ignored if flag.value else ():
            if other.value != other.default:
                raise errors.UserError(
                    f"--{flag.name} ignores --{other.name}. Omit one of them."
                )
    for flag, needed in _NEEDED:
        if flag.value != flag.default and not needed.value:
            raise errors.UserError(
                f"--{flag.name} needs --{needed.name}. Give it, too, or omit "
                f"--{flag.name}."
            )
    count = len(files.split_paths(flags.FLAGS.checkpoint_path or ""))
    if ATTENTION.value and count > 1:
        raise errors.UserError(
            "--decode_attention looks into one model; --checkpoint_path names "
            f"{count}. Name one."
        )


def _check_prefixes(total):
    count = sum(1 for _ in read_prefixes())
    if count != total:
        raise errors.UserError(
            f"--{_PREFIX_FILE.name} has a line for each of "
            f"--{_FROM_FILE.name}; got {count} lines in {_PREFIX_FILE.value} "
            f"for {total}."
        )


def read_lines() -> Iterator[str]:
    """Yield the lines to translate."""
    if _FROM_FILE.value:
        return parallel_files.read_lines(files.reread(_FROM_FILE.value))
    # Iteration over sys.stdin would split lines at U+0085, too.
    return parallel_files.split_lines(sys.stdin.buffer, "standard input")


def read_prefixes() -> Iterable[str]:
    """Return the beginnings of the translations; "" without a file."""
    if not _PREFIX_FILE.value:
        return itertools.repeat("")
    return parallel_files.read_lines(files.reread(_PREFIX_FILE.value))


def read_pairs() -> Iterator[tuple[str, str]]:
    """Yield the pairs to score.

    Raises:
        UserError: a line is not a pair; names it.
    """
    name = SCORE_FILE.value or ""
    lines = parallel_files.read_lines(files.reread(name))
    for number, line in enumerate(lines, 1):
        source, *targets = line.split("\t")
        if len(targets) != 1:
            raise errors.UserError(
                f"{name}, line {number}: expected input, tab, target; got "
                f"{len(targets) + 1} fields: {line[:80]!r}."
            )
        yield source, targets[0]


@contextlib.contextmanager
def open_output() -> Iterator[Callable[[str], object]]:
    """Yield a function that writes a line to the file of translations."""
    if not _TO_FILE.value:
        yield functools.partial(print, flush=True)
        return
    with _open(_TO_FILE) as write:
        yield write


def open_alignments() -> AbstractContextManager[Callable[[str], object]]:
    """Yield a function that writes a line to the file of alignments."""
    if not ALIGNMENTS.value:
        return contextlib.nullcontext(lambda line: None)
    return _open(ALIGNMENTS)


def keeps_partial() -> bool:
    """Return whether an interrupted translation of a file leaves a file."""
    if not (_FROM_FILE.value and _TO_FILE.value):
        return False
    return not files.is_stream(files.expand_path(_TO_FILE.value))


@contextlib.contextmanager
def _open(flag):
    """Open a file; when it is interrupted, keep its lines in another one."""
    path = files.expand_path(flag.value)
    with files.atomic_text_file(path) as file:
        try:
            yield lambda line: file.write(f"{line}\n")
        except BaseException:
            if file.tell() and not files.is_stream(path):
                file.flush()
                partial = _free_name(path.with_name(f"{path.name}.partial"))
                os.rename(file.name, partial)
                print(
                    f"What is finished is in {partial}; {path} is not written.",
                    file=sys.stderr,
                )
            raise


def _free_name(path):
    """Return a path, with a number if there is such a file."""
    names = (path.with_name(f"{path.name}{n}") for n in itertools.count(2))
    return next(p for p in itertools.chain([path], names) if not p.exists())
