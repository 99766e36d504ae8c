"""Kinds of registries: of definitions, of hparams sets and of models."""

import dataclasses
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from t2t_repro import errors

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
        """Definition, whose module is imported when it is asked for."""
        module, _, name = self.target.rpartition(".")
        return getattr(importlib.import_module(module), name)

    @property
    def file(self) -> str:
        """Path of the module, which is not imported."""
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
        entry = self[name]
        cls = entry.value
        if not (isinstance(cls, type) and issubclass(cls, base)):
            raise errors.UserError(
                f"The {self.kind} {name!r} of {entry.file} must be a subclass "
                f"of {base.__module__}.{base.__qualname__}; got {cls!r}."
            )
        return cls

    def _enter(self, name: str, value: Any, parent: str | None = None) -> Any:
        """Enter a class or function; refuse another one of the same name."""
        try:
            file = inspect.getsourcefile(value)
        except (OSError, TypeError):  # of a notebook
            file = value.__module__
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

    def register(self, name: str) -> Callable[[Definition], Definition]:
        """Return a decorator that enters a class or function under `name`."""
        return lambda value: self._enter(name, value)

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
