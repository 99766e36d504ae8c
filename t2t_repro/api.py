"""Models from Python: train, load, translate, score, evaluate and export.

import t2t_repro

model = t2t_repro.load("run")
print(model.translate(["Two dogs play in the snow."])[0].text)
"""

import dataclasses
import functools
import pathlib
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t2t_repro import errors, registry
from t2t_repro.data.settings import Data
from t2t_repro.decoding import reranking, translation
from t2t_repro.decoding.translate import BatchTranslator
from t2t_repro.evaluation import evaluation
from t2t_repro.io import files, storage
from t2t_repro.problem import Problem, build_problem
from t2t_repro.runs import checkpoint_files, run_json
from t2t_repro.runs.run import Checkpoints, Run
from t2t_repro.serving import client, connection, exporting, version_folders
from t2t_repro.serving.client import ExportedModel, RemoteModel
from t2t_repro.training import job
from t2t_repro.training.options import Options

Path = str | pathlib.Path
_MAX_SEARCHES = 4  # settings of searches whose graphs a model keeps


class Model(translation.Translator):
    """Trained model of a run.

    `keras_models` has its Keras model, or those of an ensemble.
    """

    def __init__(self, run: Run, checkpoint_path: Checkpoints = None):
        """Load the weights of Run.checkpoints(checkpoint_path)."""
        # The working directory may change.
        output_dir = run.output_dir.absolute()
        self.run = run = dataclasses.replace(run, output_dir=output_dir)
        paths = run.checkpoints(checkpoint_path)
        self._checkpoints = [path.absolute() for path in paths]
        self.keras_models = models = run.models(self._checkpoints)
        # Each traces its search once, and holds copies of some weights.
        self._translator = functools.lru_cache(maxsize=_MAX_SEARCHES)(
            lambda hparams, definitions: BatchTranslator(
                models, run.vocabularies, hparams
            )
        )

    def __repr__(self) -> str:
        folder = self.run.output_dir
        names = checkpoint_files.names(self._checkpoints, folder)
        return f"<Model of {folder}: {', '.join(names)}>"

    def translate(
        self,
        lines: Iterable[str],
        n_best: int = 1,
        target_language: str = "",
        *,
        prefixes: Iterable[str] | None = None,
        side: Iterable[str] | None = None,
        **search: Any,
    ) -> list[translation.Translation]:
        """Translate lines; see Translator.

        `search` has fields of DecodeHParams, such as beam_size=8; the others
        are those of the problem.

        Raises:
            UserError: a setting is unknown or wrong; side inputs are missing,
                or no rule reads them; or a line is longer than
                max_input_length, with side inputs or long_inputs="refuse".
        """
        lines = translation.require_lines(lines)
        problem = self.run.problem.toward(target_language)
        source, target = problem.normalizers
        if "return_beams" in search:
            raise errors.UserError(
                "return_beams follows from n_best; got return_beams="
                f"{search['return_beams']!r}. Give n_best=…, the number of "
                "translations."
            )
        search["return_beams"] = bool(n_best != 1)
        hparams = self._search(search, n_best)
        translator = self._translator_of(hparams)
        reranking.require_direction(translator.reranker, problem)
        starts = [""] * len(lines)
        if prefixes is not None:
            starts = translation.require_beside(lines, prefixes, "prefix")
        if side is not None:
            side = translation.require_beside(lines, side, "side input")
            side = translation.normalize_fields(side, target)
        translations = list(
            translator.translate(
                map(source, lines), None, map(target, starts), side=side
            )
        )
        if refused := translation.too_long(translations):
            raise errors.UserError(
                translation.refused_message(
                    refused, hparams.max_input_length, are_others_kept=False
                )
            )
        return [found.best(n_best) for found in translations]

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        target_language: str = "",
    ) -> list[float]:
        problem = self.run.problem.toward(target_language)
        source, target = problem.normalizers
        sources = translation.require_lines(sources)
        targets = translation.require_beside(sources, targets, "target")
        pairs = zip(map(source, sources), map(target, targets), strict=True)
        translator = self._translator_of(self.run.search)
        return [score.total for score in translator.score(pairs)]

    def attention(
        self, line: str, target_language: str = "", **search: Any
    ) -> translation.AttentionTrace:
        """Translate a line, and return the first model's attention weights.

        Raises:
            UserError: the line is blank or too long, or the model has no
                attention.
        """
        problem = self.run.problem.toward(target_language)
        source, _ = problem.normalizers
        (line,) = translation.require_lines([line])
        hparams = self._search(search | {"return_beams": False})
        translator = self._translator_of(hparams)
        reranking.require_direction(translator.reranker, problem)
        return translator.attention(source(line))

    def evaluate(
        self, test_set: str = "test", **settings: Any
    ) -> evaluation.Evaluation:
        """Translate a test set and score it; the run stores both.

        Args:
            test_set: a split of the problem, or a test set of sacreBLEU.
            **settings: other arguments of evaluation.evaluate().
                decode_hparams may be changes of the problem's, such as
                {"beam_size": 8}.
        """
        return evaluation.evaluate(
            self.run, test_set, **self._settings(settings)
        )

    def export(
        self, export_dir: Path | None = None, **settings: Any
    ) -> pathlib.Path:
        """Export the model for TensorFlow Serving, and return its folder.

        Args:
            export_dir: folder of versions; None: `export` in the run.
            **settings: other arguments of exporting.write(); decode_hparams as
                in evaluate().
        """
        return exporting.write(self.run, export_dir, **self._settings(settings))

    def _settings(self, given):
        changes = given.get("decode_hparams")
        if isinstance(changes, str | Mapping):
            given["decode_hparams"] = self.run.search.override(changes)
        return {"checkpoint_path": self._checkpoints, **given}

    def _translator_of(self, hparams):
        # They may have been defined again, as in a notebook.
        definitions = [entry.value for entry in registry.of_search(hparams)]
        # What a rule or a reranker may have read: a file, or a run, whose
        # folders have another time when a checkpoint is added.
        versions = [
            path.stat().st_mtime_ns
            for named in hparams.paths.values()
            for path in (named, *named.glob("*/"))
        ]
        return self._translator(hparams, (*definitions, *versions))

    def _search(self, changes, n_best=1):
        hparams = self.run.search.override(changes)
        translation.require_beams(n_best, hparams.beam_size)
        return hparams


def load(
    path: Path, usr_dir: Path | Sequence[Path] | None = None, **server: Any
) -> Model | ExportedModel | RemoteModel:
    """Load a model from a run, a checkpoint or an export, or ask a server.

    Args:
        path: folder of a run or of an export, or a checkpoint such as
            RUN/checkpoints/ckpt-1500; several, comma-separated, make an
            ensemble. Any of them may be a URL, s3:// or gs://. A server is
            http://HOST:PORT/v1/models/NAME or grpc://HOST:PORT/NAME. A model of
            the Hugging Face Hub is hf://ORGANIZATION/MODEL, perhaps with
            @REVISION; it is imported once into a cache.
        usr_dir: folder of your own definitions, or several; an export needs
            none.
        **server: fields of serving.connection.Options, such as token_file.

    Raises:
        UserError: there is no model, or it is damaged.
    """
    if connection.is_server(path):
        options = connection.Options().override(server)
        return client.connect(str(path), options)
    if server:
        raise errors.UserError(
            f"{', '.join(server)} of load() are for a server; got {path}. Name "
            "a server as http://HOST:PORT/v1/models/NAME, or omit them."
        )
    if str(path).startswith("hf://"):
        from t2t_repro.importing import hub  # with modules that few need

        path = hub.run_folder(hub.parse(str(path)))
    several = files.split_paths(str(path)) or [""]
    at_urls = all(map(files.is_url, several))
    folder = storage.local_path(several[0] if at_urls else path)
    run_dir, checkpoint_path = folder, None
    if names := storage.names(folder):
        if run_json.RUN in names:
            checkpoint_files.open_folder(folder)
        else:
            version_folders.open_folder(folder)
    if not (folder / run_json.RUN).exists():
        if version_folders.is_saved_model(folder) or (
            folder.is_dir() and version_folders.list_versions(folder)
        ):
            return ExportedModel(folder)
        checkpoint_path = str(path)
        first = storage.local_path(several[0])
        run_dir = checkpoint_files.open_folder(first.parent.parent)
    if not (run_dir / run_json.RUN).exists():
        raise errors.UserError(
            f"There is no model in {storage.name_of(folder)}: it has neither "
            f"{run_json.RUN}, as a run, nor versions, as an export, and is "
            "not a checkpoint in a run (RUN/checkpoints/ckpt-1500)."
        )
    registry.load_definitions(usr_dir)
    return Model(Run.open(run_dir), checkpoint_path)


def train(
    problem: str | Problem,
    hparams_set: str,
    output_dir: Path,
    *,
    problem_args: Mapping[str, Any] | None = None,
    hparams: Mapping[str, Any] | None = None,
    usr_dir: Path | Sequence[Path] | None = None,
    **settings: Any,
) -> Model:
    """Train a model, or resume its training, and load it.

    Args:
        problem: a registered name, or a result of build_problem().
        hparams_set: a registered name.
        output_dir: folder of the run.
        problem_args: arguments of the problem.
        hparams: values that differ from the set's.
        usr_dir: folder of your own definitions, or several.
        **settings: fields of training.options.Options, such as
            train_steps=500, and of data.settings.Data, such as data_dir.

    Raises:
        UserError: a setting does not fit, or the folder holds another run.
        KeyboardInterrupt: after Ctrl-C, when the last step is saved.
    """
    registry.load_definitions(usr_dir)
    data = {
        field.name: settings.pop(field.name)
        for field in dataclasses.fields(Data)
        if field.name in settings
    }
    options = Options().override(settings)
    if options.dry_run:
        raise errors.UserError(
            "train() returns a model, and dry_run=True trains none. Say "
            "t2t trainer --dry_run."
        )
    if isinstance(problem, str):
        problem = build_problem(problem, problem_args or {})
    elif problem_args:
        raise errors.UserError(
            f"problem_args are of a problem's name; got {problem_args!r} and "
            f"the built problem {problem.requested_name!r}. Give them to "
            "build_problem(), or name the problem."
        )
    status = job.train(
        problem,
        registry.build_hparams(hparams_set).override(hparams),
        output_dir,
        options,
        Data(**data),
        hparams_set,
    )
    if status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if status:
        raise SystemExit(status)
    return Model(Run.open(output_dir))
