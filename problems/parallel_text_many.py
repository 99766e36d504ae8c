"""Problem of a user's own files in several languages, without Python code."""

import pathlib

from t2t_repro import errors
from t2t_repro.fields import setting
from t2t_repro.io import files
from t2t_repro.problem import Path
from t2t_repro.problems.many_to_many import ManyToMany
from t2t_repro.problems.parallel_text import check_name
from t2t_repro.registry import problems
from t2t_repro.text.parallel_files import SUFFIXES, find


@problems.register("parallel_text_many")
class ParallelTextMany(ManyToMany):
    """Files of several languages: name=mine,directions=en-de:de-en:en-fr.

    --raw_dir holds train.en-de.en and train.en-de.de for both directions, and
    so on; or train.en, train.de, … in which line n means the same.
    """

    name: str = setting(help="Name of your choice for the data.")
    vocab_size = 8000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name)

    @property
    def data_name(self) -> str:
        return f"{self.registered_name}_{self.name}"

    def text_files(
        self,
        split: str,
        languages: tuple[str, str],
        raw_dir: Path | None,
        download_dir: Path,
    ) -> tuple[pathlib.Path, pathlib.Path]:
        """Find the files of both languages, or else those of each."""
        if raw_dir is None:
            return super().text_files(split, languages, raw_dir, download_dir)
        folder = files.expand_path(raw_dir)
        a, b = languages
        stems = f"{split}.{a}-{b}", f"{split}.{b}-{a}", split
        for stem in stems:
            if any((folder / f"{stem}.{a}{s}").is_file() for s in SUFFIXES):
                return find(f"{stem}.{a}", folder), find(f"{stem}.{b}", folder)
        raise errors.UserError(
            f"--raw_dir={folder} has no text of {a}-{b}: none of "
            f"{', '.join(f'{stem}.{a}' for stem in stems)}, plain, .gz or "
            ".zst. Put it there, with the other language."
        )
