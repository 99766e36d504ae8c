"""A user's own aligned files, with no Python written."""

import dataclasses
import re

from t2t_repro import errors
from t2t_repro.problem import Problem
from t2t_repro.registry import problems
from t2t_repro.text.corpora import RawFile


@problems.register("parallel_text")
@dataclasses.dataclass
class ParallelText(Problem):
    """Your files: --problem_args=name=mine,languages=en-de,vocab_size=8000.

    --raw_dir holds train.en, train.de, validation.en, … test.de (or .gz).
    """

    name: str
    languages: str
    vocab_size: int = 8000

    def __post_init__(self):
        if not re.fullmatch(r"[\w.]+", self.name):
            raise errors.UserError(
                "name must be of letters, digits, '_' and '.', since it "
                f"names a folder; got {self.name!r}."
            )
        if not re.fullmatch(r"[\w]+-[\w]+", self.languages):
            raise errors.UserError(
                "languages must be the two file extensions joined by '-', "
                f"as in en-de; got {self.languages!r}."
            )

    @property
    def data_name(self):
        source, target = self.languages.split("-")
        return f"{self.registered_name}_{self.name}_{source}{target}"

    def raw_files(self, split):
        return tuple(
            RawFile(f"{split}.{language}")
            for language in self.languages.split("-")
        )
