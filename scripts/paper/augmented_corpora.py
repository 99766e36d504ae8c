"""Texts of augmentation: the human pairs, and pairs with machine translations.

All are aligned files in one folder, as the problem parallel_text reads them.
"""

import pathlib
import shutil
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scripts.paper.commands import Commands
from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.problem import SPLITS, Path, Problem
from t2t_repro.text import parallel_files
from t2t_repro.text.parallel_files import Pair

ORIGINAL, ALL, MONOLINGUAL = "original", "all", "monolingual"
_SETTINGS = "settings.json"


class Texts(NamedTuple):
    """A folder of aligned files."""

    folder: pathlib.Path
    languages: tuple[str, str]  # of sources and of translations

    def path(self, name: str, side: int) -> pathlib.Path:
        """Return the file of the sources (side 0) or translations (1)."""
        return self.folder / f"{name}.{self.languages[side]}"


def write(
    problem: Problem,
    folder: pathlib.Path,
    raw_dir: Path | None,
    download_dir: Path,
    parallel_pairs: int,
    monolingual: Sequence[Path],
) -> Texts:
    """Write the human text, unless it is there.

    The first pairs are the small corpus. Of the others, which are part of the
    large one, only the translations are monolingual text.

    Args:
        problem: where the text is from.
        folder: folder of the files.
        raw_dir: folder of the raw files; None: download them.
        download_dir: folder of the downloads.
        parallel_pairs: size of the small corpus.
        monolingual: files of more monolingual text.

    Raises:
        UserError: the small corpus is not smaller than the large one, or the
            files that are there have other settings.
    """
    texts = Texts(folder, (problem.source_language, problem.target_language))
    settings = {
        "problem": problem.requested_name,
        "arguments": problem.arguments,
        "parallel_pairs": parallel_pairs,
        "monolingual": [
            files.sha256(files.expand_path(path)) for path in monolingual
        ],
    }
    path = folder / _SETTINGS
    if path.exists():
        if files.read_json(path) != settings:
            raise errors.UserError(
                f"{folder} has text of another problem, --parallel_pairs or "
                "--monolingual. Repeat those, or name another --output_dir."
            )
        return texts
    folder.mkdir(parents=True, exist_ok=True)
    human = _human_pairs(problem, raw_dir, download_dir)
    pairs = human.pop("train")
    if not 0 < parallel_pairs < len(pairs):
        raise errors.UserError(
            "--parallel_pairs must leave training pairs over, whose "
            f"translations are the monolingual text: 1 to {len(pairs) - 1:,}; "
            f"got {parallel_pairs:,}."
        )
    human |= {ORIGINAL: pairs[:parallel_pairs], ALL: pairs}
    for name, corpus in human.items():
        _write_pairs(texts, name, corpus)
    lines = _monolingual_lines(problem, pairs[parallel_pairs:], monolingual)
    _write_lines(texts.path(MONOLINGUAL, 1), lines)
    files.write_json(path, settings)
    return texts


def _human_pairs(problem, raw_dir, download_dir) -> dict[str, list[Pair]]:
    """Return the pairs of each split, in the direction of the problem."""
    return {
        split: [
            pair[::-1] if problem.reverse else pair
            for pair in problem.normalized_pairs(split, raw_dir, download_dir)
        ]
        for split in SPLITS
    }


def _monolingual_lines(problem, pairs, paths) -> list[str]:
    """Return translations and normalized lines of files, no empty ones."""
    lines = [target for _, target in pairs]
    for path in paths:
        read = parallel_files.read_lines(path)
        lines += (problem.normalize(x, problem.target_language) for x in read)
    return [line for line in lines if line.strip()]


def back_translate(
    texts: Texts, name: str, flags: Iterable[str], commands: Commands, tag: str
):
    """Write pairs of the monolingual text and tagged translations of it.

    Args:
        texts: the folder of all texts.
        name: name of the new pairs.
        flags: the decoder's, which name the reversed model.
        commands: how to run the decoder.
        tag: first word of each source; "": none.
    """
    translated = texts.folder / f"{name}.translated"
    targets = texts.path(MONOLINGUAL, 1)
    _translate(targets, translated, flags, commands)
    # Without translation a source stays empty, so that its pair is dropped.
    tagged = (
        f"{tag} {line}".lstrip() if line.strip() else ""
        for line in parallel_files.read_lines(translated)
    )
    _write_lines(texts.path(name, 0), tagged)
    _copy(targets, texts.path(name, 1))


def distill(texts: Texts, name: str, flags: Iterable[str], commands: Commands):
    """Write pairs of all sources and a teacher's translations of them.

    Args:
        texts: the folder of all texts.
        name: name of the new pairs.
        flags: the decoder's, which name the teacher.
        commands: how to run the decoder.
    """
    sources = texts.path(ALL, 0)
    _translate(sources, texts.path(name, 1), flags, commands)
    _copy(sources, texts.path(name, 0))


def _translate(source, translated, flags, commands):
    """Translate a file, unless its translation is there."""
    if not translated.exists():
        commands.run(
            "decoder",
            *flags,
            f"--decode_from_file={source}",
            f"--decode_to_file={translated}",
        )


def _copy(source, copy):
    with files.atomic_path(copy) as temporary:
        shutil.copyfile(source, temporary)


def _write_pairs(texts: Texts, name: str, pairs: Iterable[Pair]):
    for side, lines in enumerate(zip(*pairs, strict=True)):
        _write_lines(texts.path(name, side), lines)


def _write_lines(path: pathlib.Path, lines: Iterable[str]):
    with files.atomic_text_file(path) as file:
        file.writelines(f"{line}\n" for line in lines)
