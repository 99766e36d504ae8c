"""Multi30k: 29,000 image captions (Elliott et al. 2016, W16-3210).

The files are the raw, cased files of the authors' repository. The test set is
test_2016_flickr.
"""

from t2t_repro.problem import Problem
from t2t_repro.problems.many_to_many import ManyToMany
from t2t_repro.registry import problems
from t2t_repro.text import moses
from t2t_repro.text.parallel_files import RawFile

_URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
_STEMS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
_SHA256 = {  # checksums of the .gz files
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}


class Multi30k(Problem):
    """Captions in English and another language."""

    vocab_size = 10_000
    data_page = "https://github.com/multi30k/dataset"
    data_citation = (
        "Elliott, Frank, Sima'an, Specia: Multi30K: Multilingual "
        "English-German Image Descriptions, 2016, W16-3210"
    )

    def raw_files(self, split: str) -> tuple[RawFile, ...]:
        return tuple(
            _raw_file(split, language) for language in self.stored_languages
        )


def _raw_file(split: str, language: str) -> RawFile:
    name = f"{_STEMS[split]}.{language}"
    return RawFile(name, f"{_URL}{name}.gz", _SHA256[name])


@problems.register("multi30k_ende")
class Multi30kEnDe(Multi30k):
    """Multi30k captions, English to German: 29,000 pairs."""

    stored_languages = ("en", "de")


@problems.register("multi30k_ende_lctok")
class Multi30kEnDeLcTok(Multi30kEnDe):
    """multi30k_ende in lower case, tokenized, as most papers score it.

    The text equals that of the authors' *.lc.norm.tok.* files. The decoder
    takes raw text; its translations are lowercased tokens.
    """

    tokenized = True

    def normalize(self, line: str, language: str) -> str:
        """Convert a line to lowercase tokens with plain punctuation."""
        return moses.lowercase_tokenizer(language)(line)


@problems.register("multi30k_enfr")
class Multi30kEnFr(Multi30k):
    """Multi30k captions, English to French: 29,000 pairs."""

    stored_languages = ("en", "fr")


@problems.register("multi30k_defr")
class Multi30kDeFr(Multi30k):
    """Multi30k captions, German to French: 29,000 pairs."""

    stored_languages = ("de", "fr")


@problems.register("multi30k_many")
class Multi30kMany(ManyToMany, Multi30k):
    """Multi30k captions in six directions: 29,000 pairs of each."""

    directions = "en-de:de-en:en-fr:fr-en:de-fr:fr-de"
    vocab_size = 10_000

    def raw_file(self, split: str, language: str) -> RawFile:
        return _raw_file(split, language)
