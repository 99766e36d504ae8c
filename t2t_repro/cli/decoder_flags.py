"""Options of decoder, and the files that they name."""

import contextlib
import dataclasses
import functools
import glob
import itertools
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import common_flags
from t2t_repro.cli.common_flags import at_least, at_most, flag, one_of
from t2t_repro.io import files
from t2t_repro.problem import Problem
from t2t_repro.text import parallel_files

_Writer: TypeAlias = AbstractContextManager[Callable[[str], object]]
# Files with a line for each line of --decode_from_file.
_BESIDE_LINES = "decode_prefix_file", "decode_side_file"
# Options that replace the translation of a file, and those that they ignore.
_OF_TRANSLATIONS = (
    *_BESIDE_LINES,
    "output_format",
    "alignments",
    "decode_to_dir",
)
_IGNORED = {
    "decode_interactive": (
        "decode_from_file",
        "decode_to_file",
        "score_file",
        "decode_attention",
        *_OF_TRANSLATIONS,
    ),
    "score_file": (
        "decode_from_file",
        "decode_attention",
        "split_sentences",
        *(each for each in _OF_TRANSLATIONS if each != "alignments"),
    ),
    "decode_attention": ("split_sentences", *_OF_TRANSLATIONS),
    "decode_to_dir": ("decode_to_file", "alignments", *_BESIDE_LINES),
    "decode_side_file": ("split_sentences",),
    "export_dir": (  # those of a run
        *itertools.chain(*common_flags.RUN.values()),
        "checkpoint_path",
        "decode_hparams",
        "split_sentences",
    ),
}
# Options, and the option without which they mean nothing.
_NEEDED = {
    "score_subwords": "score_file",
    **dict.fromkeys(_BESIDE_LINES, "decode_from_file"),
    "alignment_layer": "alignments",
    "decode_to_dir": "decode_from_file",
    **dict.fromkeys(
        ("export_dir", "shard_lines", "engine", "num_workers"), "decode_to_dir"
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of decoder, each a flag of the same name."""

    decode_to_dir: str | None = flag(
        None,
        "Translate all files that match the pattern --decode_from_file, "
        "such as 'mono/*.en.gz', into this folder. A command that was killed "
        "continues.",
    )
    export_dir: str | None = flag(
        None, "With --decode_to_dir: folder of an export, instead of a run."
    )
    shard_lines: int | None = flag(
        None,
        "With --decode_to_dir: lines that a worker translates and writes at "
        "once, by default 5,000.",
        at_least(1),
        at_most(sys.maxsize),
    )
    engine: str = flag(
        "local",
        "With --decode_to_dir: engine that translates: local, processes "
        "on this machine; or dask:ADDRESS, the workers of a Dask cluster.",
    )
    num_workers: int | None = flag(
        None,
        "With --decode_to_dir: processes of the local engine, each with "
        "the model; by default one for each GPU, or without for each core, at "
        "most 8.",
        at_least(1),
        at_most(math.inf),
    )
    decode_from_file: str | None = flag(
        None,
        "File of sentences, one a line; by default standard input. With "
        "--decode_to_dir: a pattern.",
    )
    decode_to_file: str | None = flag(
        None, "File for the translations; by default standard output."
    )
    decode_prefix_file: str | None = flag(
        None,
        "With --decode_from_file: file whose lines are the beginnings of "
        "the translations; lines may be empty.",
    )
    decode_side_file: str | None = flag(
        None,
        "With --decode_from_file: file whose lines are the side inputs, which "
        "a search rule reads; lines may be empty.",
    )
    output_format: str = flag(
        "text",
        "text: a line for each sentence, several outputs separated by "
        "tabs. tsv: a line for each output: sentence, rank, score, text. "
        "jsonl: a JSON object for each sentence: the line, and its outputs "
        "with their scores.",
        one_of("text", "tsv", "jsonl"),
    )
    alignments: str | None = flag(
        None,
        "File for the word alignments of the best translations, or of "
        "the targets of --score_file, a line for each sentence, in Pharaoh "
        "format: source-target, as 0-0 1-2.",
    )
    alignment_layer: int | None = flag(
        None,
        "With --alignments: layer of the decoder, from 1, whose attention "
        "aligns; by default the head that was trained to align, or the last "
        "layer but one.",
        at_least(1),
        at_most(math.inf),
    )
    split_sentences: bool = flag(
        False,
        "Split each line into sentences, translate them, and join their "
        "translations by a space. Needs the extra `sentences`.",
    )
    decode_interactive: bool = flag(
        False, "Translate each line as it is typed."
    )
    score_file: str | None = flag(
        None,
        "File with lines of input, tab, target. Instead of translations, "
        "write each target's log-probability, a tab, and its length in "
        "subwords with EOS.",
    )
    score_subwords: bool = flag(
        False,
        "With --score_file: also write, after another tab, each subword "
        "with its log-probability.",
    )
    decode_attention: bool = flag(
        False,
        "Write a JSON object a line: the translation, the subwords of "
        "both sides, and the attention weights of target to source, "
        "[layers][target][source], averaged over heads.",
    )
    target_language: str = flag("", common_flags.TARGET_LANGUAGE)
    source_language: str = flag("", common_flags.SOURCE_LANGUAGE)

    def read_lines(self) -> Iterator[str]:
        """Yield the lines to translate."""
        if name := self.decode_from_file:
            return parallel_files.read_lines(files.reread(name))
        # Iteration over sys.stdin would split lines at U+0085, too.
        return parallel_files.split_lines(sys.stdin.buffer, "standard input")

    def read_beside(self, name: str) -> Iterator[str] | None:
        """Return the lines of a flag's file, one for each line to translate.

        None: the flag is not given.
        """
        path = getattr(self, name)
        return parallel_files.read_lines(files.reread(path)) if path else None

    def read_pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs to score.

        Raises:
            UserError: a line is not a pair; names it.
        """
        name = self.score_file or ""
        lines = parallel_files.read_lines(files.reread(name))
        for number, line in enumerate(lines, 1):
            source, *targets = line.split("\t")
            if len(targets) != 1:
                raise errors.UserError(
                    f"{name}, line {number}: expected input, tab, target; got "
                    f"{len(targets) + 1} fields: {line[:80]!r}."
                )
            yield source, targets[0]

    def count_lines(self, problem: Problem) -> int | None:
        """Count the lines of the files, and check each; None: there is no file.

        Sources must have tags for a many-to-many model.
        """
        lines: Iterable[str]
        if self.score_file:
            lines = (source for source, _ in self.read_pairs())
        elif self.decode_from_file:
            # Read twice: a file may be larger than memory.
            lines = self.read_lines()
        else:
            return None
        total = 0
        for total, line in enumerate(lines, 1):
            try:
                if problem.target_languages:
                    problem.normalizers[0](line)
            except errors.UserError as error:
                raise errors.UserError(f"Line {total:,}: {error}") from error
        for name in _BESIDE_LINES:
            beside = self.read_beside(name)
            if beside and (count := sum(1 for _ in beside)) != total:
                raise errors.UserError(
                    f"--{name} has a line for each of --decode_from_file; got "
                    f"{count} lines in {getattr(self, name)} for {total}."
                )
        return total

    def find_files(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Return the files to translate into a folder, sorted.

        Those in the folder itself are left out: a pattern such as */*.en
        matches translations of an earlier command.
        """
        pattern = self.decode_from_file or ""
        path = files.expand_path(pattern)
        matches = (
            [path]
            if path.is_file()
            else map(pathlib.Path, glob.iglob(str(path), recursive=True))
        )
        # A pattern with several ** finds files again.
        found = sorted({path for path in matches if path.is_file()})
        outputs = folder.resolve()
        sources = [
            path for path in found if outputs not in path.resolve().parents
        ]
        if found and not sources:
            raise errors.UserError(
                f"--decode_to_dir={folder} has the files of --decode_from_file="
                f"{pattern} itself. Name another folder."
            )
        if not sources:
            raise errors.UserError(
                f"No file matches --decode_from_file={pattern}. Quote the "
                "pattern, so that the shell does not replace it."
            )
        return sources

    def open_output(self) -> _Writer:
        """Yield a function that writes a line to the file of translations."""
        return _open(self.decode_to_file, functools.partial(print, flush=True))

    def open_alignments(self) -> _Writer:
        """Yield a function that writes a line to the file of alignments."""
        return _open(self.alignments, lambda line: None)

    def check_outputs(self, others: Iterable[pathlib.Path]) -> None:
        """Check names of files to write, beside each other and the inputs.

        `others` are files that are read, beside those of flags.
        """

        def paths(*names):
            given = filter(None, (getattr(self, name) for name in names))
            return [files.expand_path(name) for name in given]

        outputs = paths("decode_to_file", "alignments")
        inputs = paths("decode_from_file", "score_file", *_BESIDE_LINES)
        for path in outputs:
            files.require_replaceable(path, [*inputs, *others])
            if path.suffix in parallel_files.SUFFIXES[1:]:
                raise errors.UserError(
                    f"{path} would be plain text. Omit {path.suffix}, or "
                    "compress what the command writes to standard output."
                )
        if len({path.resolve() for path in outputs}) < len(outputs):
            raise errors.UserError(
                "--decode_to_file and --alignments are the same file: "
                f"{outputs[0]}. Name two."
            )

    @property
    def keeps_partial(self) -> bool:
        """True if an interrupted translation of a file leaves a file."""
        if not (self.decode_from_file and self.decode_to_file):
            return False
        return not files.is_stream(files.expand_path(self.decode_to_file))


@contextlib.contextmanager
def _open(name, otherwise):
    """Open a file; when it is interrupted, keep its lines in another one.

    Without a name, yield the function `otherwise`.
    """
    if not name:
        yield otherwise
        return
    path = files.expand_path(name)
    with files.atomic_text_file(path) as file:
        try:
            yield lambda line: file.write(f"{line}\n")
        except BaseException:
            with contextlib.suppress(OSError):  # of a full disk
                file.flush()
            if not files.is_stream(path) and os.path.getsize(file.name):
                # Beside the target of a link, which may be on another disk.
                folder = pathlib.Path(file.name).parent
                partial = _free_name(folder / f"{path.name}.partial")
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


def check() -> None:
    """Check that no flag ignores or lacks another one."""
    common_flags.refuse_ignored(_IGNORED)
    for name, needed in _NEEDED.items():
        flag = flags.FLAGS[name]
        if flag.value != flag.default and not flags.FLAGS[needed].value:
            raise errors.UserError(
                f"--{name} needs --{needed}. Give it, too, or omit --{name}."
            )
