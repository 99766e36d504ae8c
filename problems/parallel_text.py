"""Problem of a user's own aligned files, without Python code."""

import re

from t2t_repro import errors, fields
from t2t_repro.fields import setting
from t2t_repro.hparam import DecodeHParams
from t2t_repro.problem import Problem
from t2t_repro.registry import problems


@problems.register("parallel_text")
class ParallelText(Problem):
    """Your files: --problem_args=name=mine,languages=en-de,vocab_size=8000.

    --raw_dir holds train.en, train.de, validation.en, … test.de (or .gz).
    """

    name: str = setting(help="Name of your choice for the data.")
    languages: str = setting(
        help="Extensions of the files, joined by a hyphen: en-de."
    )
    decode_hparams: str = setting(
        default="",
        help="Settings of the search that differ from the paper's, joined by "
        "':', as beam_size=6:alpha=1.0.",
    )
    vocab_size = 8000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[\w.]+", self.name):
            raise errors.UserError(
                "name must consist of letters, digits, '_' and '.', since it "
                f"names a folder; got {self.name!r}."
            )
        if not re.fullmatch(r"[\w]+-[\w]+", self.languages):
            raise errors.UserError(
                "languages must be the two file extensions joined by '-', "
                f"as in en-de; got {self.languages!r}."
            )
        source, target = self.languages.split("-")
        self.stored_languages = source, target

    @property
    def search(self) -> DecodeHParams:
        return fields.override(
            DecodeHParams(), self.decode_hparams.replace(":", ",")
        )

    @property
    def data_name(self) -> str:
        pair = "".join(self.stored_languages)
        return f"{self.registered_name}_{self.name}_{pair}"
