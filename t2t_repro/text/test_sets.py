"""Test sets: from files, or out of sacreBLEU's store of the WMT and others."""

import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sacrebleu import utils
from sacrebleu.dataset import DATASETS

from t2t_repro import errors
from t2t_repro.text.parallel_files import read_lines


class TestSet(NamedTuple):
    """What is translated, and what translations are compared with."""

    sources: list[str] | None  # [lines]; None: not known
    references: list[list[str]]  # one or more of [lines]
    # Where a run keeps what it makes of it, as "test" or "files/my.en"; None:
    # nowhere.
    name: str | None = None

    @property
    def texts(self) -> list[list[str]]:
        """References, and the sources where they are known."""
        known = [] if self.sources is None else [self.sources]
        return [*self.references, *known]

    def normalized(self, source: Callable, target: Callable) -> "TestSet":
        """The same, each line changed by the function of its side."""
        sources = self.sources
        return self._replace(
            sources=None if sources is None else list(map(source, sources)),
            references=[list(map(target, lines)) for lines in self.references],
        )


def require_same_counts(*texts: Sequence[str]):
    """Raises a UserError unless all have as many lines, at least one."""
    counts = [len(lines) for lines in texts]
    if len(set(counts)) > 1 or not counts[0]:
        raise errors.UserError(
            "Sources, translations and references must have the same number of "
            "lines, at least one; got "
            f"{' and '.join(f'{n:,}' for n in counts)}."
        )


def from_files(references, sources=None) -> TestSet:
    """Reads files; a line is a sentence.

    Raises:
        UserError: there are sources alone.
    """
    if not references:
        raise errors.UserError(
            "--sources is the file that --references translate; got "
            f"--sources={sources} alone. Name --references, too; to "
            "translate without them there is t2t_repro.decoder."
        )
    return TestSet(
        list(read_lines(sources)) if sources else None,
        [list(read_lines(path)) for path in references],
        f"files/{pathlib.Path(sources).name}" if sources else None,
    )


def is_known(name: str) -> bool:
    """Whether sacreBLEU has a test set of this name: "wmt14/full"."""
    return name in DATASETS


def from_sacrebleu(name: str, languages: tuple[str, str]) -> TestSet:
    """A test set of sacreBLEU, downloaded on first use.

    It is kept in ~/.sacrebleu, or in the folder that $SACREBLEU names.

    Raises:
        UserError: it is not of these languages, or cannot be downloaded.
    """
    dataset, pair = DATASETS[name], "-".join(languages)
    if pair not in dataset.langpairs:
        raise errors.UserError(
            f"sacreBLEU's test set {name} is not of {pair}, but of "
            f"{', '.join(dataset.langpairs)}."
        )
    try:
        found = from_files(
            dataset.get_reference_files(pair), dataset.get_source_file(pair)
        )
        return found._replace(name=f"sacrebleu/{name.replace('/', '_')}")
    except (OSError, SystemExit) as error:  # it exits where a sum is wrong
        raise errors.UserError(
            f"sacreBLEU cannot fetch {name} {pair} into {utils.SACREBLEU_DIR}: "
            f"{error}. Without internet, copy that folder from a machine where "
            f"`sacrebleu -t {name} -l {pair} --echo ref` has run, or name "
            "plain files: --references and --sources of evaluate, --raw_dir "
            "of datagen."
        ) from error
