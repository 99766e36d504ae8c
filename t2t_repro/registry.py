"""Registries: the names of definitions, by kind, and the definitions of users.

A definition registers itself when its module is imported:

    @problems.register("multi30k_ende")
    @hparams_sets.register("big", parent="base")
    @models.register("gru", hparams=GruHParams)
    @metrics.register("word_accuracy")

and so on; all registries are listed below, with what each takes. Built-in
models, metrics and the like are declared instead, so that their names are known
without importing them: models with their hparams, the others in a table.

Names are literals, so that ``git grep '"multi30k_ende"'`` finds the class.
"""

import ast
import contextlib
import dataclasses
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import pathlib
import pkgutil
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from t2t_repro import errors
from t2t_repro.io import arguments, files

# Kinds of registries: of definitions, of hparams sets and of models.

Definition = TypeVar("Definition")
_HELP = "my-problem-or-hparams-set-is-not-found"  # in troubleshooting.md
_MANY = 10  # names, of which an error shows only those near a misspelt one


@dataclasses.dataclass(frozen=True)
class Entry:
    """Registered definition."""

    name: str
    value: Any
    file: str
    summary: str  # first line of the docstring
    parent: str | None = None  # the hparams set that this one is a diff of
    # Numbers of training pairs that an hparams set suits.
    corpus_pairs: range | None = None
    hparams: Any = None  # dataclass of a model's settings


@dataclasses.dataclass(frozen=True)
class Declared:
    """Definition whose module is imported when it is first asked for."""

    name: str
    target: str  # "package.module.Name"
    hparams: Any = None  # dataclass of a model's settings
    parent = corpus_pairs = None

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

    @property
    def summary(self) -> str:
        """First line of the docstring, in the source."""
        source = pathlib.Path(self.file).read_text("utf-8")
        name = self.target.rpartition(".")[2]
        return next(
            (ast.get_docstring(node) or "").partition("\n")[0]
            for node in ast.parse(source).body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef))
            and node.name == name
        )


class Registry:
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
            known = f"Known: {', '.join(sorted(self._entries))}."
            if not self._entries:
                known = "None is known before registry.load_definitions()."
            elif hint and len(self._entries) > _MANY:
                known = f"--registry_help lists all {len(self._entries)}."
            raise errors.UserError(
                f"Unknown {self.kind} {name!r}.{hint} {known} If it is your "
                "own, name its folder with --usr_dir.",
                see=_HELP,
            )
        return self._entries[name]

    def register(self, name: str) -> Callable[[Definition], Definition]:
        """Return a decorator that enters a class or function under `name`."""
        self._require_name(name)
        return lambda value: self._enter(name, value)

    def declare(
        self, name: str, target: str, hparams: type | None = None
    ) -> None:
        """Enter "package.module.Class", which is imported at its first use.

        A model has a dataclass of its settings.
        """
        self._entries[name] = Declared(name, target, hparams)

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

    def _require_name(self, name):
        """Refuse @register without parentheses, as tensor2tensor has it."""
        if not isinstance(name, str):
            raise TypeError(
                f'a {self.kind} has a name: write register("NAME") above '
                f"{getattr(name, '__qualname__', name)}"
            )

    def _enter(self, name: str, value: Any, **attributes: Any) -> Any:
        """Enter a class or function; refuse another one of the same name."""
        file = value.__module__
        # That of a notebook, each cell of which is a file, has none.
        if hasattr(sys.modules.get(file), "__file__"):
            with contextlib.suppress(OSError, TypeError):
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
        self._entries[name] = Entry(
            name, value, str(file), summary, **attributes
        )
        return value

    def construct(
        self, text: str, setting: str, *given: Any, **settings: Any
    ) -> Any:
        """Call the definition that "name:key=value:key=value" names.

        Args:
            text: name and keyword arguments, as io.arguments reads them.
            setting: where the text is, for errors, such as "hparam norm".
            given: positional arguments.
            settings: keyword arguments, which the text must not have.

        Raises:
            UserError: a name is unknown, or an argument wrong or missing.
        """
        name, _, values = text.partition(":")
        definition = self[name].value
        setting = f"{setting}={text}"
        elsewhere = dict.fromkeys(settings, "another setting")
        parsed = arguments.parse(
            definition, values, setting, elsewhere, len(given)
        )
        return arguments.construct(
            definition, settings | parsed, setting, *given
        )


class HParamsSets(Registry):
    """Registry of hparams sets, some of which suit corpora of a size."""

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
        self._require_name(name)
        return lambda function: self._enter(
            name, function, parent=parent, corpus_pairs=corpus_pairs
        )

    def better_suited(self, name: str, pairs: int) -> str | None:
        """Return the set for corpora of `pairs` pairs, unless `name` suits.

        None, too, if `name` is not for a size of corpora.
        """
        sizes = {
            entry.name: entry.corpus_pairs
            for entry in self._entries.values()
            if entry.corpus_pairs
        }
        if pairs in sizes.get(name, (pairs,)):
            return None
        return next((other for other in sizes if pairs in sizes[other]), None)


class Models(Registry):
    """Registry of models, each with the dataclass of its settings."""

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
        self._require_name(name)
        return lambda cls: self._enter(
            name, cls, hparams=hparams or self._inherited(name, cls)
        )

    def _inherited(self, name, cls):
        known = {
            getattr(entry, "target", None) or _target(entry.value): entry
            for entry in self
        }
        for base in cls.__mro__[1:]:
            if _target(base) in known:
                return known[_target(base)].hparams
        raise errors.UserError(
            f"The model {name!r} of {inspect.getsourcefile(cls)} has no "
            "settings: say register(name, hparams=…) with a subclass of "
            "hparam.HParams, or subclass a registered model."
        )


def _target(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


# Definitions of users: folders of --usr_dir, and installed packages.
#
# The modules of a folder are read once: what is imported is what was summed. A
# run stores its folder with the checksums, and later commands load it again.
# But who gives a run away also writes its run.json. Therefore a run may name
# only what a training on this computer has used, of which remember() keeps a
# list.

PACKAGE = "t2t_usr_dir"
SHAPE = [{"folder": str, "sha256": {str: str}}]  # of stored_folders()
# Group of the entry points of installed packages; each is a module.
ENTRY_POINTS = "t2t_repro.definitions"


class Folder(NamedTuple):
    """Modules of a folder, as they were read."""

    path: pathlib.Path  # absolute
    sources: Mapping[str, bytes]  # by path in the folder: parts/__init__.py

    @property
    def checksums(self) -> dict[str, str]:
        """{file: sha256}."""
        return {
            name: hashlib.sha256(source).hexdigest()
            for name, source in self.sources.items()
        }

    @property
    def stored(self) -> dict[str, Any]:
        """The folder with its checksums, for run.json."""
        return {"folder": str(self.path), "sha256": self.checksums}


# Folders whose modules are one package. Each module is of one of them; the
# __init__.py of each runs as that of the package.
Definitions: TypeAlias = tuple[Folder, ...]
_imported: Definitions = ()
_named: Definitions = ()  # by a user; the others are of runs


def read(*paths: str | os.PathLike) -> Definitions:
    """Read the modules of folders, and of the packages in them.

    Text may have several paths, comma-separated.

    Raises:
        UserError: one is no folder, or two have a module of the same name.
    """
    names = [n for path in paths for n in files.split_paths(str(path))]
    definitions: Definitions = ()
    for path in dict.fromkeys(files.expand_path(n).absolute() for n in names):
        if not path.is_dir():
            raise errors.UserError(
                f"--usr_dir must be a folder with Python modules; got {path},"
                " which is not a folder."
            )
        definitions = _with(definitions, _read(path))
    return definitions


def _read(path):
    return Folder(
        path,
        {
            str(file.relative_to(path)): file.read_bytes()
            for file in sorted(_module_files(path))
        },
    )


def _with(definitions, folder):
    """Return definitions with one more folder; refuse equal modules."""
    for other in definitions:
        first, second = _by_module(other.sources), _by_module(folder.sources)
        for name in first.keys() & second.keys():
            raise errors.UserError(
                f"Two folders of definitions have a module {name!r}: "
                f"{other.path / first[name]} and {folder.path / second[name]}."
                " Their modules form one package: rename one of the two."
            )
    return (*definitions, folder)


def _module_of(file):
    """Return "parts.first" of parts/first.py, "parts" of parts/__init__.py."""
    parts = pathlib.PurePath(file).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _by_module(names):
    """Return {module: file} of the files of a folder, but its __init__.py."""
    return {_module_of(name): name for name in names if name != "__init__.py"}


def imported() -> Definitions:
    """Return the definitions that are imported, of a user or of runs."""
    return _imported


def stored_definitions() -> Any:
    """Return the named definitions for run.json; None: there are none."""
    stored = [folder.stored for folder in _named]
    # A run with one folder is as of before.
    return (stored if len(stored) > 1 else stored[0]) if stored else None


def stored_folders(known: Any) -> list[dict[str, Any]]:
    """Return the folders of a run.json's usr_dir, which is one or a list."""
    return known if isinstance(known, list) else [known]


def definition_checksums(known: Any = None) -> dict[str, str]:
    """Return {file: sha256} of the named definitions, or of a run's usr_dir."""
    if known is None:
        known = stored_definitions() or []
    result: dict[str, str] = {}
    for folder in stored_folders(known):
        for name, sha256 in folder["sha256"].items():
            result[name] = result.get(name, "") + sha256  # several __init__.py
    return result


def checksums_of_class(definition: type) -> dict[str, str]:
    """Return {file: sha256} of a class and its bases in the named folders.

    A definition may be a function, too.
    """
    bases = getattr(definition, "__mro__", [definition])
    used = {base.__module__ for base in bases}
    return {
        file: sha256
        for file, sha256 in definition_checksums().items()
        if _module_of(f"{PACKAGE}/{file}") in used
    }


def changed_definitions(
    before: Mapping[str, str], now: Mapping[str, str]
) -> list[str]:
    """Return which files of {file: sha256} were changed, added or removed."""
    names = sorted(before.keys() | now.keys())
    return [name for name in names if before.get(name) != now.get(name)]


def remember() -> None:
    """Add the named definitions to the list of this computer.

    Runs that name them need no flag here. Without a home folder, or if it
    cannot be written, a note says so.
    """
    try:
        for folder in _named:
            path = _entry(folder.stored)
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_json(path, folder.stored)
    except (OSError, errors.UserError) as error:
        print(
            f"Note: commands that open this run will need --usr_dir, since the "
            f"list of definitions cannot be written: {error}",
            file=sys.stderr,
        )


def load_stored_definitions(known: Any, run: pathlib.Path) -> None:
    """Load the definitions of a run again, beside those that a user named.

    The arguments and errors are those of of_run().
    """
    loaded = [folder.stored for folder in _imported]
    missing = [each for each in stored_folders(known) if each not in loaded]
    if missing:
        _import(_replacing(_imported, of_run(missing, run, _named)))


def of_run(
    known: Any, run: pathlib.Path, named: Definitions = ()
) -> Definitions:
    """Read the definitions that a run names, and print their folders.

    Nothing is read that is not in the list of this computer.

    Args:
        known: what stored_definitions() was when the run was trained; its
            stored_folders() have SHAPE.
        run: folder of the run, for errors.
        named: definitions of the user. A folder that has all files of one
            of the run takes its place.

    Returns:
        Those of the user and of the run.

    Raises:
        UserError: the list lacks a folder, or it is missing or has changed, and
            the user has named none; or two have a module of the same name.
    """
    result = named
    for each in stored_folders(known):
        path = pathlib.Path(each["folder"])
        if any(
            path == other.path or each["sha256"].keys() <= other.sources.keys()
            for other in named
        ):
            continue
        if not _is_remembered(each):
            reason = "no training on this computer has used them"
        elif not path.is_dir():
            reason = "the folder is missing"
        else:
            folder = _read(path)
            changed = changed_definitions(each["sha256"], folder.checksums)
            if not changed:
                result = _with(result, folder)
                print(f"Definitions: {path}.", file=sys.stderr)
                continue
            reason = f"these files have changed: {', '.join(changed)}"
        text = (
            f"The definitions of {run} are not loaded from "
            f"{each['folder']!r:.200}: {reason}. To use them as they are now, "
            f"name their folder with --usr_dir{', too' if named else ''}. "
            "Their Python code then runs with your rights: read it first if it "
            "comes from others."
        )
        if not named:
            raise errors.UserError(text, see=_HELP)
        print(f"Note: {text}", file=sys.stderr)
    return result


def _is_remembered(known):
    try:
        return os.path.exists(_entry(known))
    except errors.UserError:  # no home folder
        return False


def _entry(known):
    """Return the path at which the list has a folder.

    Each entry is a file of its own, so that processes need no lock.
    """
    home = os.environ.get("XDG_DATA_HOME", "")
    folder = files.expand_path(
        home if os.path.isabs(home) else "~/.local/share"
    )
    if not folder.is_absolute():  # it would be one of whoever chose the folder
        raise errors.UserError(f"The home folder {folder} is not absolute.")
    name = f"{files.json_checksum(known)}.json"
    return folder / "t2t_repro" / "definitions" / name


def explain_import_error(error: Exception) -> str | None:
    """Return the lines of a user's modules that raised an error at import.

    Returns:
        None: the import of a folder did not raise the error.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is _import.__code__:
            break
    else:
        return None
    folders = [folder.path for folder in frame.f_locals["definitions"]]
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if any(map(pathlib.Path(line.filename).is_relative_to, folders))
    ]
    shown = traceback.format_list(lines)
    shown += traceback.format_exception_only(error)
    return (
        f"the definitions in {frame.f_locals['folder'].path} cannot be "
        f"imported. Correct them:\n{''.join(shown).rstrip()}"
    )


def import_modules(package: types.ModuleType) -> None:
    """Import every module of a package."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder and loader of the modules of folders, from what was read.

    Python's own would take other files for them: compiled ones, and folders
    without __init__.py.
    """

    def __init__(self, definitions: Definitions):
        self._folders = [folder.path for folder in definitions]
        self._sources = {
            path / name: source
            for path, sources in definitions
            for name, source in sources.items()
        }

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module of PACKAGE is; None: another module."""
        package, *parts = fullname.split(".")
        if package != PACKAGE:
            return None
        for folder in self._folders:
            place = folder.joinpath(*parts)
            if not parts or place / "__init__.py" in self._sources:
                return importlib.util.spec_from_file_location(
                    fullname,
                    place / "__init__.py",
                    loader=self,
                    submodule_search_locations=[str(place)],
                )
            if (file := folder / f"{'/'.join(parts)}.py") in self._sources:
                return importlib.util.spec_from_file_location(
                    fullname, file, loader=self
                )
        raise ModuleNotFoundError(
            f"{' and '.join(map(str, self._folders))} has no module "
            f"{'/'.join(parts)}.py, nor a package of this name with an "
            "__init__.py.",
            name=fullname,
        )

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the source of a module; that of PACKAGE is run by folder."""
        if module.__name__ != PACKAGE:
            self.run(module, pathlib.Path(str(module.__file__)))

    def run(self, module: types.ModuleType, file: pathlib.Path) -> None:
        """Run a file, if it was read, as the module."""
        module.__file__ = str(file)
        source = self._sources.get(file, b"")
        try:
            exec(compile(source, file, "exec", dont_inherit=True), vars(module))
        except SystemExit as error:
            raise ImportError(
                f"{file} ends the program, which definitions must not do"
            ) from error


def _replacing(definitions, others):
    """Return `others`, and the definitions if they share no module with them.

    Runs of one process may have folders with modules of the same name: the last
    ones are those that can be imported.
    """
    rest = tuple(folder for folder in definitions if folder not in others)
    used = {name for folder in others for name in _by_module(folder.sources)}
    paths = [folder.path for folder in others]
    if any(
        folder.path in paths or not used.isdisjoint(_by_module(folder.sources))
        for folder in rest
    ):
        return others
    return others + rest


def _import(definitions):
    """Import all modules of the folders as the package t2t_usr_dir.

    Modules that are imported already stay if all of their folders do: classes
    of a second import would be others than those of the first.
    """
    global _imported
    known, _imported = _imported, ()
    if not all(folder in definitions for folder in known):
        known = ()
    if not known:
        for name in list(sys.modules):
            if name.partition(".")[0] == PACKAGE:
                del sys.modules[name]
    finder = _Finder(definitions)
    sys.meta_path[:] = [
        finder,
        *(each for each in sys.meta_path if not isinstance(each, _Finder)),
    ]
    package = importlib.import_module(PACKAGE)
    for folder in definitions:
        if folder in known:
            continue
        finder.run(package, folder.path / "__init__.py")
        for name in _by_module(folder.sources):
            # setup.py, which tensor2tensor had beside definitions, builds them.
            if name != "setup" and "." not in name:
                importlib.import_module(f"{PACKAGE}.{name}")
        _require_eager_execution(folder.path)
    _imported = definitions


def _require_eager_execution(folder):
    """Refuse definitions with tf.disable_v2_behavior() or the like."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    if not tensorflow.compat.v1.executing_eagerly_outside_functions():
        raise errors.UserError(
            f"The definitions in {folder} turn off eager execution, which is "
            "needed here. Remove tf.disable_v2_behavior(), or what does this.",
            see=_HELP,
        )


def _module_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for path in folder.iterdir():
        if path.suffix == ".py" and path.is_file():
            yield path
        elif (path / "__init__.py").is_file():
            yield from _module_files(path)


problems = Registry("problem")
hparams_sets = HParamsSets("hparams set")
models = Models("model")
metrics = Registry("metric")
# Functions with the arguments of decoding.beam_search.beam_search, and others.
searches = Registry("beam search")
# Subclasses of decoding.rules.Rule, called with the vocabulary of outputs.
search_rules = Registry("search rule")
vocabularies = Registry("vocabulary type")
callbacks = Registry("callback")  # subclasses of training.callbacks.Callback
# Functions (updates done, hparams, …), and subclasses of Keras's schedules.
schedules = Registry("learning-rate schedule")
# Subclasses of keras.optimizers.Optimizer, and functions that return one.
optimizers = Registry("optimizer")
losses = Registry("loss function")  # see training.losses
# Subclasses of text.pair_filters.PairFilter.
pair_filters = Registry("filter")
rerankers = Registry("reranker")  # subclasses of decoding.reranking.Reranker
norms = Registry("norm")  # layers of one vector, called with epsilon
_ALL = [each for each in vars().values() if isinstance(each, Registry)]
# Built-in definitions, as name=Class, which are imported at their first use.
_BUILT_IN = {
    losses: {
        "training.losses": "cross_entropy=cross_entropy "
        "guided_alignment=GuidedAlignment"
    },
    vocabularies: {
        "text.sentence_piece": "bpe=Bpe unigram=Unigram char=Characters "
        "mapped_sentence_piece=MappedSentencePiece "
        "multilingual_pieces=MultilingualPieces",
        "text.t2t_subwords": "t2t_subwords=T2TSubwords",
        "text.byte_pair_encoding": "bpe_codes=BpeCodes byte_level=ByteLevel",
        "text.vocabulary": "whitespace_tokens=WhitespaceTokens",
    },
    pair_filters: {
        "text.pair_filters": "max_characters=MaxCharacters max_words=MaxWords "
        "character_ratio=CharacterRatio word_ratio=WordRatio letters=Letters "
        "script=Script different=Different language=Language web=Web "
        "unique=Unique",
    },
    rerankers: {
        "decoding.reranking": "mbr=MinimumBayesRisk",
        "evaluation.noisy_channel": "channel=NoisyChannel",
    },
    callbacks: {"training.callbacks": "csv=Csv wandb=Wandb mlflow=MLflow"},
    norms: {"layers.sublayers": "layer=LayerNorm rms=RmsNorm"},
    search_rules: {
        "decoding.forbidden": "forbid=forbid",
        "decoding.constraints": "require=Require",
    },
    searches: {
        "decoding.beam_search": "tensor2tensor=beam_search "
        "huggingface=huggingface "
        "huggingface_early_stopping=huggingface_early_stopping "
        "diverse=diverse_beam_search",
    },
    metrics: {
        "metrics.translation": "bleu=Bleu bleu_lc=BleuLc bleu_intl=BleuIntl "
        "bleu_intl_lc=BleuIntlLc bleu_tok=BleuTok "
        "bleu_compound_split=BleuCompoundSplit chrf=Chrf ter=Ter "
        "exact_match=ExactMatch length_ratio=LengthRatio "
        "bits_per_byte=BitsPerByte word_perplexity=WordPerplexity "
        "subword_perplexity=SubwordPerplexity aer=AlignmentErrorRate",
        "metrics.parsing": "bracketing_f1=F1 bracketing_precision=Precision "
        "bracketing_recall=Recall bracketing_exact_match=ExactMatch "
        "unbalanced_trees=UnbalancedTrees miscounted_trees=MiscountedTrees",
    },
}
for _kind, _modules in _BUILT_IN.items():
    for _module, _pairs in _modules.items():
        for _pair in _pairs.split():
            _name, _, _class = _pair.partition("=")
            _kind.declare(_name, f"t2t_repro.{_module}.{_class}")


def of_search(decode_hparams: Any) -> list[Entry | Declared]:
    """Return what a search's settings name: itself, rules and the reranker.

    Raises:
        UserError: a name is unknown.
    """
    named = (
        (searches, [decode_hparams.beam_search]),
        (search_rules, decode_hparams.rule_texts),
        (rerankers, [decode_hparams.rerank] if decode_hparams.rerank else []),
    )
    return [
        kind[text.partition(":")[0]] for kind, texts in named for text in texts
    ]


def build_hparams(name: str) -> Any:
    """Build the HParams of a set: its function, applied to its parent's.

    Raises:
        UserError: the name is unknown, the set is its own ancestor, or the
            function changes what it is given or returns nothing.
    """
    parent: tuple = ()
    for entry in reversed(lineage(name)):
        parent = (_apply(entry, parent),)
    return parent[0]


def lineage(name: str) -> list[Entry | Declared]:
    """Return the entries of an hparams set, its parent, and so on.

    Raises:
        UserError: a name is unknown, or a set is its own ancestor.
    """
    entries = [hparams_sets[name]]
    while (parent := entries[-1].parent) is not None:
        if parent in (names := [entry.name for entry in entries]):
            raise errors.UserError(
                "Each of these hparams sets is the parent of the one before: "
                f"{', '.join((*names, parent))}. One must have none.",
                see=_HELP,
            )
        entries.append(hparams_sets[parent])
    return entries


def _apply(entry, parent):
    """Return the HParams of a set, whose function gets those of its parent."""
    name = entry.name
    try:
        hparams = entry.value(*parent)
    except dataclasses.FrozenInstanceError as error:
        raise errors.UserError(
            f"The hparams set {name!r} of {entry.file}: {error}. Return "
            "dataclasses.replace(parent, NAME=VALUE).",
            see=_HELP,
        ) from error
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if not (unknown and parent):
            raise
        raise errors.UserError(
            f"The hparams set {name!r} of {entry.file} sets {unknown[1]}, "
            f"which is no hparam.{errors.hint(unknown[1], vars(*parent))}",
            see=_HELP,
        ) from error
    if not dataclasses.is_dataclass(hparams):
        raise errors.UserError(
            f"The hparams set {name!r} of {entry.file} returns {hparams!r:.60}."
            " End it with return dataclasses.replace(parent, NAME=VALUE).",
            see=_HELP,
        )
    return hparams


def load_definitions(
    usr_dir: str | os.PathLike | Sequence[str | os.PathLike | Folder] | None = (
        None
    ),
) -> None:
    """Import every definition: ours, installed ones, and those in `usr_dir`.

    Args:
        usr_dir: folder that a user names; several, as a list or
            comma-separated; or what was read from them.

    Raises:
        ImportError: from a definition, unchanged; nothing is skipped.
        UserError: `usr_dir` is not a folder, or an installed package cannot be
            imported.
    """
    global _named
    for package in ("problems", "hparams"):
        import_modules(importlib.import_module(f"t2t_repro.{package}"))
    if usr_dir is None or isinstance(usr_dir, (str, os.PathLike)):
        usr_dir = [usr_dir or ""]
    if not all(isinstance(each, Folder) for each in usr_dir):
        usr_dir = read(*cast(Sequence[str], usr_dir))
    definitions = cast(Definitions, tuple(usr_dir))
    _named = ()
    for point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # of the package
            package = point.dist.name if point.dist else point.name
            raise errors.UserError(
                f"The installed package {package} cannot be used: "
                f"{point.value}: {error}. Repair or uninstall it.",
                see=_HELP,
            ) from error
    if not all(folder in _imported for folder in definitions):
        _import(_replacing(_imported, definitions))
    _named = definitions


def summary() -> str:
    """Return a list of every definition, with its first line and its file."""
    lines = []
    for registry in _ALL:
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
