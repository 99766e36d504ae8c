"""Settings of data: what a problem's corpus is, and how it is generated."""

import dataclasses
import functools
import pathlib

from t2t_repro.data.filtering import PairFilters
from t2t_repro.io import fields
from t2t_repro.io.fields import at_least, flag, setting
from t2t_repro.text.vocabulary_pair import VocabularySettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSettings(VocabularySettings):
    """The part of a problem's arguments that turns its text into a corpus."""

    max_length: int = setting(
        at_least(2),  # a subword and EOS
        default=256,
        help="Maximum number of subwords of each side of a training pair, with "
        "EOS; longer pairs are dropped.",
    )
    max_length_ratio: float = setting(
        default=0.0,
        help="Drop training pairs whose longer side has more than this many "
        "times the subwords of the shorter one; 0: none.",
    )
    allow_empty_source: bool = setting(
        default=False,
        help="Keep training pairs whose source is empty, as of a language "
        "model, which predicts the targets alone.",
    )
    filters: str = setting(
        default="",
        help="Filters of training pairs with their values, joined by ':', such "
        "as max_words=100:letters=0.5:unique; --registry_help lists them.",
    )

    # Not arguments, so not annotated.
    tokenized = False  # whether normalize() tokenizes; scores are of tokens
    reverse = False  # True for X_rev: the sides are swapped on reading

    @functools.cached_property  # which an instance may replace
    def stored_languages(self) -> tuple[str, str]:
        """Languages of inputs and targets: ("en", "de")."""
        return ("", "")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            "max_length_ratio",
            not self.max_length_ratio or self.max_length_ratio >= 1,
            "at least 1, or 0 for any",
        )
        PairFilters(self.filters, ("", ""))  # checks

    @property
    def pair_filters(self) -> PairFilters | None:
        """The filters of training pairs; None if there are none."""
        if not self.filters:
            return None
        return PairFilters(
            self.filters,
            self.stored_languages,
            self.allow_empty_source,
            self.source_tags,
        )


@dataclasses.dataclass(frozen=True)
class Data(fields.Settings):
    """Folders of a problem's data, and settings for generating it.

    All but data_dir are flags of the commands that may generate data.
    """

    data_dir: str | pathlib.Path = "~/t2t_data"  # generated data and downloads
    raw_dir: str | None = flag(
        None,
        "Folder of the raw files, or an archive of datagen --archive_file, "
        "instead of a download.",
    )
    num_workers: int | None = flag(
        None,
        "Threads that encode text, and processes that filter it, by default "
        "one for each core.",
        at_least(1),
    )
    engine: str = flag(
        "local",
        "Engine that filters and encodes text: local, threads of this process; "
        "or dask:ADDRESS, the workers of a Dask cluster.",
    )
    verify: bool = flag(
        False, "Compare every file of the data with its checksum first."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("data_dir", self.data_dir is not None, "a folder")
