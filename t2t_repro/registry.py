"""Names of definitions of each kind, and where they are.

A definition registers itself when its module is imported:

    @problems.register("multi30k_ende")
    @hparams_sets.register("big", parent="base")
    @models.register("gru", hparams=GruHParams)
    @search_rules.register("no_numerals")
    @vocabularies.register("characters")
    @metrics.register("word_accuracy")

A built-in model is declared with its hparams instead, so that names and
settings are known without importing Keras; built-in metrics are declared, too.

Names are literals, so that ``git grep '"multi30k_ende"'`` finds the class.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import types
from typing import Any

from t2t_repro import errors, files

USER_PACKAGE = "t2t_usr_dir"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A registered definition."""

    name: str
    value: Any
    parent: str | None  # the hparams set that this one is a diff of
    file: str
    summary: str  # first line of the docstring


@dataclasses.dataclass(frozen=True)
class Declared:
    """A definition whose module is imported when it is first asked for."""

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


class Registry:
    """Maps names to definitions of one kind; a miss suggests near names."""

    def __init__(self, kind):
        self.kind = kind
        self._entries = {}

    def register(self, name, parent=None):
        """Return a decorator that enters a class or function under `name`."""

        def enter(value):
            file = inspect.getsourcefile(value)
            known = self._entries.get(name)
            # The same one again is a module that is reloaded.
            if known is not None and (known.file, known.value.__qualname__) != (
                file,
                value.__qualname__,
            ):
                raise errors.UserError(
                    f"The {self.kind} {name!r} of {file} is already defined "
                    f"in {known.file}; give one of them another name."
                )
            summary = (inspect.getdoc(value) or "").partition("\n")[0]
            self._entries[name] = Entry(name, value, parent, file, summary)
            return value

        return enter

    def declare(self, name, target, summary):
        """Enter a definition that is imported when it is first asked for.

        Args:
            name: it is registered under.
            target: "package.module.Name".
            summary: a sentence for --registry_help.
        """
        self._entries[name] = Declared(name, target, summary)

    def __contains__(self, name):
        return name in self._entries

    def __iter__(self):
        return (self._entries[name] for name in sorted(self._entries))

    def __getitem__(self, name):
        """Return the entry of `name`.

        Raises:
            UserError: unknown name, with near and known names.
        """
        if name not in self._entries:
            hint = errors.hint(name, self._entries, repr)
            known = ", ".join(sorted(self._entries)) or "none"
            raise errors.UserError(
                f"Unknown {self.kind} {name!r}.{hint} Known: {known}.",
                see="my-problem-or-hparams-set-is-not-found",
            )
        return self._entries[name]


class Models(Registry):
    """The registry of models, each with the dataclass of its settings."""

    def __init__(self):
        super().__init__("model")
        self._hparams_classes = {}

    def register(self, name, hparams=None):
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
            return super(Models, self).register(name)(cls)

        return enter

    def declare(self, name, target, hparams, summary):
        """Enter a model that is imported when it is first asked for."""
        self._hparams_classes[name] = hparams
        super().declare(name, target, summary)

    def hparams_class(self, name):
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
hparams_sets = Registry("hparams set")
models = Models()
# Called with the vocabulary of outputs: decoding.rules.Rule.
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
metrics = Registry("metric")


def build_hparams(name):
    """The HParams of a set: its function applied to its parent's HParams."""
    entry = hparams_sets[name]
    if entry.parent is None:
        return entry.value()
    return entry.value(build_hparams(entry.parent))


def load_definitions(usr_dir=None):
    """Imports every definition: ours, then those in the folder `usr_dir`.

    Raises:
        ImportError: of a definition, as it is; nothing is skipped.
        UserError: `usr_dir` is not a folder.
    """
    for package in ("problems", "hparams"):
        _import_modules(importlib.import_module(f"t2t_repro.{package}"))
    if usr_dir:
        _import_modules(_user_package(files.path(usr_dir)))


def _import_modules(package):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def _user_package(folder):
    """`folder` as the package t2t_usr_dir, with or without an __init__.py."""
    if not folder.is_dir():
        raise errors.UserError(
            f"--usr_dir must be a folder with Python modules; got {folder}, "
            "which is not a folder."
        )
    for name in list(sys.modules):  # of an earlier usr_dir
        if name.startswith(f"{USER_PACKAGE}."):
            del sys.modules[name]
    package = types.ModuleType(USER_PACKAGE)
    package.__path__ = [str(folder)]
    init = folder / "__init__.py"
    if init.exists():
        spec = importlib.util.spec_from_file_location(
            USER_PACKAGE, init, submodule_search_locations=[str(folder)]
        )
        package = importlib.util.module_from_spec(spec)
    sys.modules[USER_PACKAGE] = package
    if init.exists():
        package.__spec__.loader.exec_module(package)
    return package


def describe():
    """Text that lists every definition with its summary and its file."""
    lines = []
    for registry in (
        problems,
        hparams_sets,
        models,
        metrics,
        search_rules,
        vocabularies,
    ):
        lines.append(f"{registry.kind}s:")
        for entry in registry:
            summary = entry.summary or "(no description)"
            lines.append(f"  {entry.name:24} {summary}")
            lines.append(f"  {'':24} {entry.file}")
    lines.append(
        "Each problem X is also there as X_rev, with languages swapped."
    )
    return "\n".join(lines)
