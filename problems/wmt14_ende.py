"""WMT14 English-German, the paper's first task (section 5.1)."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

from t2t_repro.problems.wmt14 import WMT14, FromTfds
from t2t_repro.registry import problems
from t2t_repro.text import moses
from t2t_repro.text.parallel_files import Pair, RawFile, locate, read_pairs

# The archives of statmt.org, with the checksums that TFDS has of them.
_ARCHIVES = {
    "training/europarl-v7.de-en": (
        "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "commoncrawl.de-en": (
        "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "training/news-commentary-v12.de-en": (
        "http://data.statmt.org/wmt17/translation-task/"
        "training-parallel-nc-v12.tgz",
        "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
    ),
}
_HELD_OUT = 100  # fairseq validates on each 100th pair


@problems.register("wmt14_ende")
class Wmt14EnDe(FromTfds):
    """WMT14 English to German: 4.5 million pairs, 37,000 subwords.

    The validation split is newstest2013, the test split newstest2014 with 3,003
    lines, both from sacreBLEU.
    """

    stored_languages = ("en", "de")
    tfds_name = "wmt14_translate/de-en"
    test_sets = {"validation": "wmt13", "test": "wmt14/full"}
    data_page = "https://www.statmt.org/wmt14/translation-task.html"
    data_citation = WMT14
    vocab_size = 37_000  # section 5.1


@problems.register("wmt14_ende_fairseq")
class Wmt14EnDeFairseq(Wmt14EnDe):
    """wmt14_ende with the training text of fairseq's example, cleaned.

    It differs from the paper's: a later News Commentary, punctuation in ASCII,
    40,000 subwords, and no pair with a side of more than 250 subwords or with
    1.5 times as many as the other side. Each 100th pair is left out, on which
    fairseq validates.

    Source: fairseq's examples/translation/prepare-wmt14en2de.sh.
    """

    vocab_size = 40_000
    max_length = 251  # 250 subwords and EOS
    max_length_ratio = 1.5

    def downloaded_pairs(
        self, split: str, download_dir: pathlib.Path
    ) -> Iterator[Pair]:
        """Yield the training pairs of the archives."""
        folder = download_dir / self.data_name
        normalizers = [
            moses.punctuation_normalizer(language)
            for language in self.stored_languages
        ]
        corpora = (
            read_pairs(*(locate(file, None, folder) for file in corpus))
            for corpus in self._corpora()
        )
        for number, pair in enumerate(itertools.chain.from_iterable(corpora)):
            if (number + 1) % _HELD_OUT:
                source, target = (
                    normalize(line)
                    for normalize, line in zip(normalizers, pair, strict=True)
                )
                yield source, target

    def sources(self, split: str) -> list[dict[str, Any]]:
        """Name the archives of training text, or sacreBLEU's test set."""
        if split in self.test_sets:
            return super().sources(split)
        return [dataclasses.asdict(f) for pair in self._corpora() for f in pair]

    def _corpora(self):
        """Yield the two files of each corpus."""
        for stem, (url, sha256) in _ARCHIVES.items():
            yield [
                RawFile(
                    f"{pathlib.PurePosixPath(stem).name}.{language}",
                    url,
                    sha256,
                    f"{stem}.{language}",
                )
                for language in self.stored_languages
            ]
