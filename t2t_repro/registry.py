"""Registries: the names of definitions, by kind.

A definition registers itself when its module is imported:

    @problems.register("multi30k_ende")
    @hparams_sets.register("big", parent="base")
    @models.register("gru", hparams=GruHParams)
    @search_rules.register("no_numerals")
    @vocabularies.register("characters")
    @metrics.register("word_accuracy")
    @callbacks.register("csv_tracker")
    @pair_filters.register("no_urls")

A built-in model is declared with its hparams instead, so that names and
settings are known without importing Keras; built-in metrics are declared, too.

Names are literals, so that ``git grep '"multi30k_ende"'`` finds the class.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from t2t_repro import errors, files, user_definitions

Definition = TypeVar("Definition")


@dataclasses.dataclass(frozen=True)
class Entry:
    """Registered definition."""

    name: str
    value: Any
    parent: str | None  # the hparams set that this one is a diff of
    file: str
    summary: str  # first line of the docstring


@dataclasses.dataclass(frozen=True)
class Declared:
    """Definition whose module is imported when it is first asked for."""

    name: str
    target: str  # "package.module.Name"
    summary: str
    parent: None = None

    @property
    def value(self) -> Any:
        """Import the module and return the definition."""
        module, _, name = self.target.rpartition(".")
        return getattr(importlib.import_module(module), name)

    @property
    def file(self) -> str:
        """Return the path of the module, which is not imported."""
        spec = importlib.util.find_spec(self.target.rpartition(".")[0])
        return str(spec and spec.origin)


class _Entries:
    """Map of names to definitions of one kind; a miss suggests near names."""

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, Entry | Declared] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Entry | Declared]:
        return (self._entries[name] for name in sorted(self._entries))

    def __getitem__(self, name: str) -> Entry | Declared:
        """Return the entry of `name`.

        Raises:
            UserError: unknown name, with near and known names.
        """
        if name not in self._entries:
            hint = errors.hint(name, self._entries, repr)
            known = ", ".join(sorted(self._entries)) or "none"
            raise errors.UserError(
                f"Unknown {self.kind} {name!r}.{hint} Known: {known}. If it is "
                "your own, name its folder with --usr_dir.",
                see="my-problem-or-hparams-set-is-not-found",
            )
        return self._entries[name]

    def subclass(self, name: str, base: type[Definition]) -> type[Definition]:
        """Return the class of `name`.

        Raises:
            UserError: the name is unknown, or not that of a subclass of `base`.
        """
        cls = self[name].value
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise errors.UserError(
                f"The {self.kind} {name!r} must be a subclass of "
                f"{base.__module__}.{base.__qualname__}; got {cls!r}."
            )
        return cls

    def _enter(self, name: str, value: Any, parent: str | None = None) -> Any:
        """Enter a class or function; refuse another one of the same name."""
        file = inspect.getsourcefile(value)
        known = self._entries.get(name)
        # The same definition again comes from a module that is reloaded.
        if known is not None and (known.file, known.value.__qualname__) != (
            file,
            value.__qualname__,
        ):
            raise errors.UserError(
                f"The {self.kind} {name!r} of {file} is already defined "
                f"in {known.file}; give one of them another name."
            )
        summary = (inspect.getdoc(value) or "").partition("\n")[0]
        self._entries[name] = Entry(name, value, parent, str(file), summary)
        return value


class Registry(_Entries):
    """Registry of definitions of one kind."""

    def register(
        self, name: str, parent: str | None = None
    ) -> Callable[[Definition], Definition]:
        """Return a decorator that enters a class or function under `name`."""
        return lambda value: self._enter(name, value, parent)

    def declare(self, name: str, target: str, summary: str) -> None:
        """Enter a definition that is imported at its first use.

        Args:
            name: under which it is registered.
            target: "package.module.Name".
            summary: a sentence for --registry_help.
        """
        self._entries[name] = Declared(name, target, summary)


class HParamsSets(Registry):
    """Registry of hparams sets, some of which suit corpora of a size."""

    def __init__(self) -> None:
        super().__init__("hparams set")
        self._corpus_pairs: dict[str, range] = {}

    def register(
        self,
        name: str,
        parent: str | None = None,
        corpus_pairs: range | None = None,
    ) -> Callable[[Definition], Definition]:
        """Return a decorator that enters a function under `name`.

        Args:
            name: value of --hparams_set.
            parent: the set that this one is a diff of.
            corpus_pairs: numbers of training pairs that the set suits, apart
                from those of other sets; None: it is not for a size.
        """

        def enter(function):
            if corpus_pairs is not None:
                self._corpus_pairs[name] = corpus_pairs
            return self._enter(name, function, parent)

        return enter

    def better_suited(self, name: str, pairs: int) -> str | None:
        """Return the set for corpora of `pairs` pairs, unless `name` suits.

        None, too, if `name` is not for a size of corpora.
        """
        if pairs in self._corpus_pairs.get(name, (pairs,)):
            return None
        suited = (
            other
            for other, sizes in self._corpus_pairs.items()
            if pairs in sizes
        )
        return next(suited, None)


class Models(_Entries):
    """Registry of models, each with the dataclass of its settings."""

    def __init__(self) -> None:
        super().__init__("model")
        self._hparams_classes: dict[str, type] = {}

    def register(
        self, name: str, hparams: type | None = None
    ) -> Callable[[Definition], Definition]:
        """Return a decorator that enters a model class under `name`.

        Args:
            name: value of the hparam `model`.
            hparams: dataclass of its settings; None: that of the registered
                class which the model subclasses.

        Raises:
            UserError: neither the class nor one that it subclasses has one.
        """

        def enter(cls):
            self._hparams_classes[name] = hparams or self._inherited(name, cls)
            return self._enter(name, cls)

        return enter

    def declare(
        self,
        name: str,
        target: str,
        hparams: type,
        summary: str,
    ) -> None:
        """Enter a model that is imported at its first use."""
        self._hparams_classes[name] = hparams
        self._entries[name] = Declared(name, target, summary)

    def hparams_class(self, name: str) -> type[Any]:
        """Return the dataclass of a model's settings, without the model.

        Raises:
            UserError: unknown name.
        """
        return self._hparams_classes[self[name].name]

    def _inherited(self, name, cls):
        known = {
            getattr(entry, "target", None) or _target(entry.value): entry.name
            for entry in self
        }
        for base in cls.__mro__[1:]:
            if _target(base) in known:
                return self._hparams_classes[known[_target(base)]]
        raise errors.UserError(
            f"The model {name!r} of {inspect.getsourcefile(cls)} has no "
            "settings: say register(name, hparams=…) with a subclass of "
            "hparam.HParams, or subclass a registered model."
        )


def _target(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


problems = Registry("problem")
hparams_sets = HParamsSets()
models = Models()
# Subclasses of decoding.rules.Rule, called with the vocabulary of outputs.
search_rules = Registry("search rule")
vocabularies = Registry("vocabulary type")
vocabularies.declare(
    "bpe",
    "t2t_repro.text.sentence_piece.Bpe",
    "Byte pair encoding, by SentencePiece.",
)
vocabularies.declare(
    "unigram",
    "t2t_repro.text.sentence_piece.Unigram",
    "Unigram model, by SentencePiece.",
)
vocabularies.declare(
    "char",
    "t2t_repro.text.sentence_piece.Characters",
    "Characters, by SentencePiece.",
)
vocabularies.declare(
    "mapped_sentence_piece",
    "t2t_repro.text.mapped_sentence_piece.MappedSentencePiece",
    "SentencePiece model with another program's ids, made by the importer.",
)
vocabularies.declare(
    "t2t_subwords",
    "t2t_repro.text.t2t_subwords.T2TSubwords",
    "tensor2tensor's SubwordTextEncoder, which the importer reads.",
)
vocabularies.declare(
    "bpe_codes",
    "t2t_repro.text.bpe_codes.BpeCodes",
    "Codes of subword-nmt or fastBPE, perhaps after Moses, by the importer.",
)
vocabularies.declare(
    "whitespace_tokens",
    "t2t_repro.text.whitespace_tokens.WhitespaceTokens",
    "Tokens of text that is tokenized already, separated by spaces.",
)
metrics = Registry("metric")
callbacks = Registry("callback")  # subclasses of training.callbacks.Callback

# Subclasses of text.pair_filters.PairFilter.
pair_filters = Registry("filter")
for _name, _class, _summary in (
    ("max_characters", "MaxCharacters", "Characters of a side: 1000."),
    ("max_words", "MaxWords", "Words of a side: 200."),
    ("character_ratio", "CharacterRatio", "Ratio of characters: 3."),
    ("word_ratio", "WordRatio", "Ratio of words: 3."),
    ("letters", "Letters", "Least share of letters: 0.5."),
    ("script", "Script", "Least share of the language's script: 0.5."),
    ("different", "Different", "Sides that differ."),
    ("language", "Language", "Sides in their language, by py3langid: 0.9."),
    ("unique", "Unique", "The first of equal pairs."),
):
    pair_filters.declare(
        _name, f"t2t_repro.text.pair_filters.{_class}", _summary
    )


def build_hparams(name: str) -> Any:
    """Build the HParams of a set: its function, applied to its parent's."""
    entry = hparams_sets[name]
    if entry.parent is None:
        return entry.value()
    return entry.value(build_hparams(entry.parent))


def load_definitions(usr_dir: str | os.PathLike | None = None) -> None:
    """Import every definition: ours, installed ones, and those in `usr_dir`.

    Raises:
        ImportError: from a definition, unchanged; nothing is skipped.
        UserError: `usr_dir` is not a folder.
    """
    for package in ("problems", "hparams"):
        user_definitions.import_modules(
            importlib.import_module(f"t2t_repro.{package}")
        )
    user_definitions.load(files.expand_path(usr_dir) if usr_dir else None)


def summary() -> str:
    """Return a list of every definition, with its first line and its file."""
    lines = []
    for registry in (
        problems,
        hparams_sets,
        models,
        metrics,
        search_rules,
        vocabularies,
        callbacks,
        pair_filters,
    ):
        lines.append(f"{registry.kind}s:")
        for entry in registry:
            text = entry.summary or "(no description)"
            lines.append(f"  {entry.name:24} {text}")
            lines.append(f"  {'':24} {entry.file}")
    lines.append(
        "Each problem X of one direction also exists as X_rev, with its "
        "languages swapped."
    )
    return "\n".join(lines)
