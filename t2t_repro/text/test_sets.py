"""Test sets from files or from sacreBLEU, which has those of WMT."""

import itertools
import pathlib
import socket
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sacrebleu import utils
from sacrebleu.dataset import DATASETS

from t2t_repro import errors
from t2t_repro.text.languages import (
    chosen_direction,
    matches_direction,
    two_letters,
)
from t2t_repro.text.parallel_files import Pair, read_lines, require_text

_TIMEOUT_SECS = 20


class TestSet(NamedTuple):
    """Sources to translate, and the references of translations."""

    sources: list[str] | None  # [lines]; None: unknown
    references: list[list[str]]  # one or more of [lines]
    # Folder of the run for results, such as "test" or "files/my.en"; None:
    # results are not stored.
    name: str | None = None
    # {"en-de": lines} of the directions of a many-to-many problem, in order.
    directions: Mapping[str, int] = types.MappingProxyType({})

    @property
    def parts(self) -> dict[str, range]:
        """Indices of the lines of each direction."""
        ends = itertools.accumulate(self.directions.values())
        return {
            name: range(end - self.directions[name], end)
            for name, end in zip(self.directions, ends, strict=True)
        }

    def select(self, indices: Sequence[int]) -> "TestSet":
        """Return some of the lines, without directions."""
        sources = self.sources
        return TestSet(
            None if sources is None else [sources[i] for i in indices],
            [[lines[i] for i in indices] for lines in self.references],
        )

    def toward(self, target: str, source: str = "") -> "TestSet":
        """Return the directions between two languages; "": any language.

        Those of "test" have the name test.en-de, test.de or test.en-.

        Raises:
            UserError: there is no such direction.
        """
        chosen = [
            name
            for name in self.directions
            if matches_direction(chosen_direction(name), (source, target))
        ]
        if len(chosen) == len(self.directions):
            return self
        languages = f"{source}-{target}" if source else target
        if not chosen:
            raise errors.UserError(
                f"The split {self.name} has no direction with {languages}; it "
                f"has {', '.join(self.directions)}."
            )
        indices = [i for name in chosen for i in self.parts[name]]
        return self.select(indices)._replace(
            name=f"{self.name}.{languages}",
            directions={name: self.directions[name] for name in chosen},
        )

    @property
    def texts(self) -> list[list[str]]:
        """References, and the sources if they are known."""
        known = [] if self.sources is None else [self.sources]
        return [*self.references, *known]

    def pairs(self) -> Iterator[Pair]:
        """Yield sources with the first reference; sources must be known."""
        assert self.sources is not None
        yield from zip(self.sources, self.references[0], strict=True)

    def normalized(
        self, source: Callable[[str], str], target: Callable[[str], str]
    ) -> "TestSet":
        """Apply a function to the lines of each side."""
        sources = self.sources
        return self._replace(
            sources=None if sources is None else list(map(source, sources)),
            references=[list(map(target, lines)) for lines in self.references],
        )


def require_same_counts(
    references: Sequence[Sequence[str]], **others: Sequence[str] | None
) -> None:
    """Raise a UserError unless all texts have equally many lines, above 0.

    The lines must be text, too. `others` are sources=, translations=, …; None:
    there are none.
    """
    texts = [("references", lines) for lines in references]
    texts += [(k, lines) for k, lines in others.items() if lines is not None]
    counts = [len(lines) for _, lines in texts]
    if len(set(counts)) > 1 or not counts[0]:
        raise errors.UserError(
            "Texts that are compared must have the same number of lines, at "
            "least one; got "
            f"{', '.join(f'{len(lines):,} {name}' for name, lines in texts)}."
        )
    for _, lines in texts:
        require_text(lines)


def from_files(
    references: Sequence[str | pathlib.Path],
    sources: str | pathlib.Path | None = None,
) -> TestSet:
    """Read a test set from files with one sentence a line.

    Raises:
        UserError: there are sources without references.
    """
    if not references:
        raise errors.UserError(
            "--sources needs --references, the files of its translations; got "
            f"--sources={sources} alone. To translate without references, use "
            "t2t_repro.decoder."
        )
    return TestSet(
        list(read_lines(sources)) if sources else None,
        [list(read_lines(path)) for path in references],
        f"files/{pathlib.Path(sources).name}" if sources else None,
    )


def is_known(name: str) -> bool:
    """Return whether sacreBLEU has a test set `name`, as "wmt14/full"."""
    return name in DATASETS


def language_pairs(name: str) -> list[tuple[str, str]]:
    """Return the languages of sources and references of a test set.

    Raises:
        UserError: sacreBLEU does not know it.
    """
    if not is_known(name):
        raise errors.UserError(
            "--translations need --references or a --split: a test set that "
            "sacreBLEU knows, such as wmt14/full, or a split of a --problem; "
            f"got --split={name} and neither --references nor --problem."
        )
    pairs = (pair.partition("-") for pair in DATASETS[name].langpairs)
    return [(source, target) for source, _, target in pairs]


def from_sacrebleu(name: str, languages: tuple[str, str]) -> TestSet:
    """Return a test set of sacreBLEU, which downloads it on first use.

    It is stored in ~/.sacrebleu, or in the folder that $SACREBLEU names.
    Languages may be codes such as de_DE and deu_Latn.

    Raises:
        UserError: it is unknown, has other languages, or cannot be downloaded.
    """
    known, dataset = language_pairs(name), DATASETS[name]
    if languages not in known:  # such as those of NLLB
        source, target = map(two_letters, languages)
        languages = source, target
    pair = "-".join(languages)
    if languages not in known:
        raise errors.UserError(
            f"sacreBLEU's test set {name} is not of {pair}, but of "
            f"{', '.join(dataset.langpairs)}."
        )
    # sacreBLEU would wait without end where a firewall drops its packets.
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_SECS)
    try:
        test_set = from_files(
            dataset.get_reference_files(pair), dataset.get_source_file(pair)
        )
        return test_set._replace(name=f"sacrebleu/{name.replace('/', '_')}")
    except (OSError, SystemExit) as error:  # exit: a checksum is wrong
        raise errors.UnavailableError(
            f"sacreBLEU cannot fetch {name} {pair} into {utils.SACREBLEU_DIR}: "
            f"{error}",
            "Without internet, copy that folder from a machine where "
            f"`sacrebleu -t {name} -l {pair} --echo ref` has run, or score "
            "plain files with --references and --sources.",
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)
