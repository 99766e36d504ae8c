"""Run: training that is finished or in progress, as later commands use it."""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from t2t_repro import errors, hparam, registry
from t2t_repro.data import manifest
from t2t_repro.io import fields, files, storage
from t2t_repro.problem import Problem, build_problem
from t2t_repro.runs import checkpoint_files, history, run_json
from t2t_repro.text import languages, vocabulary_pair
from t2t_repro.text.vocabulary_pair import Vocabularies

if TYPE_CHECKING:
    from t2t_repro.models.seq2seq import Seq2Seq

# Checkpoints of a model or of an ensemble: names as commands take them,
# comma-separated or in a list, or paths. None: the checkpoint of the run.
Checkpoints: TypeAlias = str | Sequence[str | pathlib.Path] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """Run that a command has opened.

    It reads run.json once, and the rest of its folder when that is asked for.
    Only its models need TensorFlow.
    """

    output_dir: pathlib.Path
    settings: dict[str, Any]  # run.json
    problem: Problem
    hparams: hparam.HParams

    def toward(self, target_language: str) -> "Run":
        """Return the run of a direction; the argument of Problem.toward()."""
        chosen = self.problem.toward(target_language)
        return dataclasses.replace(self, problem=chosen)

    @classmethod
    def open(
        cls, output_dir: str | pathlib.Path, expected: dict | None = None
    ) -> "Run":
        """Read run.json, and load the definitions that it names.

        Args:
            output_dir: folder of the run, which is copied if it has a URL.
            expected: values that run.json must have; hparams as
                "key=value,key=value".

        Raises:
            UserError: the folder has no run, or its settings differ from
                `expected`.
        """
        output_dir = checkpoint_files.open_folder(output_dir)
        path = output_dir / run_json.RUN
        if not path.exists():
            raise errors.UserError(
                f"There is no run in {storage.name_of(output_dir)} "
                f"({run_json.RUN} is missing). Train one with the trainer, "
                "or name the right --output_dir."
            )
        settings = files.read_json(path, run_json.SHAPE)
        # Runs of earlier versions lack it.
        files.require_json_shape(path, settings.get("data", {}), {str: str})
        if "usr_dir" in settings:
            folders = registry.stored_folders(settings["usr_dir"])
            files.require_json_shape(path, folders, registry.SHAPE)
            registry.load_stored_definitions(folders, output_dir)
        options = settings.get("options", {})
        files.require_json_shape(path, options, dict)
        metrics = options.get("metrics") or ""
        files.require_json_shape(path, metrics, str)
        try:
            problem = build_problem(
                settings["problem"], settings["problem_arguments"]
            ).with_metrics(metrics)
            hparams = run_json.hparams_of(settings["hparams"])
        except errors.UserError as error:
            raise errors.UserError(f"Cannot use {path}. {error}") from error
        expected = dict(expected or {})
        if "hparams" in expected:
            expected["hparams"] = fields.parse(
                type(hparams), expected["hparams"]
            )
        run_json.refuse_differences(
            output_dir,
            settings,
            expected,
            "Omit these flags, or name another --output_dir.",
        )
        return cls(output_dir, settings, problem, hparams)

    @functools.cached_property
    def vocabularies(self) -> Vocabularies:
        """The vocabularies, in the direction of the run.

        Raises:
            UserError: they are not those that it was trained on.
        """
        paths = vocabulary_pair.paths(
            self.output_dir, self.problem.separate_vocabularies
        )
        found = vocabulary_pair.load(self.problem.vocabulary_type, paths)
        trained_on = self.settings["vocabulary_sha256"]
        if found.sha256 != trained_on:
            them = " and ".join(map(str, paths))
            raise errors.UserError(
                f"This run was not trained with {them}: sha256 is "
                f"{found.sha256} instead of {trained_on}. Restore "
                f"{'the file' if found.is_shared else 'both files'}."
            )
        return found

    @property
    def search(self) -> hparam.DecodeHParams:
        """The settings of the search that the problem names."""
        return self.problem.search

    # Data that the run was trained on.

    @property
    def data_dir(self) -> str | None:
        """The folder of generated data; None: the model is imported."""
        settings = self.settings
        return settings["data_dir"] if settings["manifest_sha256"] else None

    def has_split(self, folder: pathlib.Path, split: str) -> bool:
        """Return whether a split in a folder is as the run was trained on."""
        if "data" not in self.settings:  # a run of an earlier version
            return manifest.sha256(folder) == self.settings["manifest_sha256"]
        name = f"{split}_sha256"
        now = manifest.checksums(folder).get(name)
        return now is not None and now == self.settings["data"].get(name)

    # Checkpoints.

    @property
    def checkpoints_folder(self) -> pathlib.Path:
        """The folder of the checkpoints that the trainer saves."""
        return self.output_dir / checkpoint_files.CHECKPOINTS

    @property
    def averaged_folder(self) -> pathlib.Path:
        """The folder of averages of checkpoints."""
        return self.output_dir / checkpoint_files.AVERAGED

    def saved_checkpoints(self) -> list[pathlib.Path]:
        """Return the checkpoints that the trainer keeps, oldest first."""
        return checkpoint_files.saved(self.output_dir)

    def checkpoints(self, names: Checkpoints = None) -> list[pathlib.Path]:
        """Return the checkpoints of a model, or of each model of an ensemble.

        Paths are not looked up: what reads them refuses those that are missing.
        Without names it is the averaged checkpoint if there is one, else the
        latest; a note is printed if the run was trained on after the average.

        Raises:
            UserError: there is no such checkpoint.
        """
        if not names:
            return [self._own_checkpoint()]
        if isinstance(names, str):
            names = files.split_paths(names)
        return [
            checkpoint_files.require(name)
            if isinstance(name, str)
            else storage.local_path(name)
            for name in names
        ]

    def _own_checkpoint(self):
        averaged, saved = (
            checkpoint_files.list_checkpoints(folder)[-1:]
            for folder in (self.averaged_folder, self.checkpoints_folder)
        )
        steps = [checkpoint_files.step_of(path) for path in (*averaged, *saved)]
        if len(steps) == 2 and steps[0] < steps[1]:
            print(
                f"Note: {saved[0].name} is newer than the average "
                f"{averaged[0].name}, which is used. Run avg_checkpoints "
                "again, or name another by --checkpoint_path.",
                file=sys.stderr,
            )
        if paths := averaged or saved:
            return paths[0]
        raise errors.UserError(
            f"There is no checkpoint in {self.checkpoints_folder}. Run the "
            "trainer first."
        )

    def last_checkpoints(self, number: int | None = None) -> list[pathlib.Path]:
        """Return the paths of the last checkpoints, oldest first.

        Others that the trainer keeps as the best are not among them.
        None: as many as the hparams set says or, after a short training, as
        there are, of which a note is printed.

        Raises:
            UserError: the run does not have so many, or none.
        """
        wanted = number or self.hparams.num_averaged_checkpoints
        saved = self.saved_checkpoints()
        last = checkpoint_files.without_best(saved)
        options = self.settings.get("options", {})
        # Runs of earlier versions have no markers.
        if last == saved and options.get("keep_best_checkpoints"):
            kept = options.get("keep_checkpoint_max", checkpoint_files.MAX_KEPT)
            last = saved[-kept:]
        paths, others = last[-wanted:], len(saved) - len(last)
        beside = f" beside {others} that are kept as the best" if others else ""
        found = (
            f"{self.checkpoints_folder} has {len(paths)} checkpoints{beside}"
        )
        if paths and number is None and len(paths) < wanted:
            print(f"{found}; the hparams set averages {wanted}.")
        elif len(paths) < wanted:
            raise errors.UserError(
                f"{found}; {wanted} are to be averaged. Train on, with "
                f"--keep_checkpoint_max={wanted} or more, or say "
                f"--num_last_checkpoints={len(paths) or '…'}."
            )
        return paths

    def best_checkpoints(self, number: int | None = None) -> list[pathlib.Path]:
        """Return the paths of the best checkpoints, oldest first; print values.

        None: as many as the hparams set says.

        Raises:
            UserError: the run has fewer validations, or not their checkpoints.
        """
        number = number or self.hparams.num_averaged_checkpoints
        suite = self.problem.suite
        validations = history.History(self.output_dir)
        metric = validations.ranking_metric(suite)
        name = validations.key(metric)
        steps = validations.ranking(suite)[:number]
        wanted = [self.checkpoints_folder / f"ckpt-{step}" for step in steps]
        saved = self.saved_checkpoints()
        best = [path for path in wanted if path in saved]
        if len(best) < number:
            names = ", ".join(path.name for path in wanted) or "unknown"
            raise errors.UserError(
                f"The {number} best checkpoints by the validation {name} are "
                f"{names}; {self.checkpoints_folder} has {len(best)} of them. "
                "The trainer keeps them with "
                f"--keep_best_checkpoints={number}. Train so, or choose a "
                "smaller --num_last_checkpoints."
            )
        values = map(validations.values(metric).__getitem__, steps)
        shown = map("{0.name} {1:.4g}".format, best, values)
        print(f"Best by the validation {name}: {', '.join(shown)}.")
        return sorted(best, key=checkpoint_files.step_of)

    # Models, which import TensorFlow.

    def models(self, checkpoint_path: Checkpoints = None) -> list["Seq2Seq"]:
        """Load the models of checkpoints(), one or several of an ensemble.

        A path may lie in another run with the same vocabularies and languages;
        its model then has that run's hparams.

        Raises:
            UserError: there is no such checkpoint, or it does not fit.
        """
        from t2t_repro.runs import checkpoints
        from t2t_repro.runtime import keras_compat

        models = []
        for path in self.checkpoints(checkpoint_path):
            hparams = self._hparams_of(path)
            with keras_compat.without_random_values():
                model = self.build_model(hparams)
            checkpoints.restore_weights(model, path, self.vocabularies.sha256)
            models.append(model)
        return models

    def settings_of(self, path: pathlib.Path) -> dict[str, Any]:
        """Return the settings of the run that a checkpoint lies in."""
        file = checkpoint_files.run_of(path) / run_json.RUN
        if not file.exists() or file.samefile(self.output_dir / run_json.RUN):
            return self.settings
        shape = {"problem": str, "problem_arguments": dict, "hparams": dict}
        return files.read_json(file, shape)

    def _hparams_of(self, path):
        """Return the hparams of the run of a checkpoint, of our languages."""
        settings = self.settings_of(path)
        if settings is self.settings:
            return self.hparams
        self._require_languages(path, settings)
        return run_json.hparams_of(settings["hparams"])

    def _require_languages(self, path, settings):
        """Refuse a checkpoint of a run that translates other languages.

        The reverse run often has the same vocabulary.
        """
        try:
            there = build_problem(
                settings["problem"], settings["problem_arguments"]
            )
        except errors.UserError:  # of a user, whose definitions are not loaded
            return
        here = _languages(self.problem)
        if any(map(set.isdisjoint, _languages(there), here)):
            raise errors.UserError(
                f"The checkpoint {path} is of a run that does not translate "
                f"the languages of {self.output_dir}. Name its own run in "
                "--output_dir, or another checkpoint."
            )

    def require_same_model(self, paths: Sequence[pathlib.Path]) -> None:
        """Refuse checkpoints of runs whose model computes something else.

        Weights of the same shapes would be averaged, and used with the hparams
        of this run.

        Raises:
            UserError: the hparams of a model differ; names them.
        """
        here = hparam.of_model(self.hparams)
        for path in paths:
            there = hparam.of_model(self._hparams_of(path))
            if found := list(fields.differences(there, here)):
                raise errors.UserError(
                    f"{path} is of a run with another model: "
                    f"{'; '.join(found)}. Average checkpoints of one model."
                )

    def build_model(self, hparams: hparam.HParams | None = None) -> "Seq2Seq":
        """Build a model with initial weights, by default as the run has it."""
        from t2t_repro.models import building
        from t2t_repro.runtime import keras_compat

        keras_compat.require_defaults()
        return building.build(
            hparams or self.hparams,
            self.vocabularies.target.size,
            source_vocab_size=self.vocabularies.source.size,
        )

    # Translations of test sets, and their scores.

    @property
    def translations_folder(self) -> pathlib.Path:
        """The folder of the test sets that `evaluate` translated."""
        return self.output_dir / history.TRANSLATIONS_FOLDER

    def stored(self, name: str) -> history.StoredScores:
        """Return what is stored of a test set."""
        return history.StoredScores(self.translations_folder, name)

    def stored_scores(self) -> dict[str, dict]:
        """Return {test set: scores} of those that `evaluate` translated."""
        return history.read_by_test_set(self.translations_folder, dict)

    def scores_of(
        self, checkpoints: list[pathlib.Path], search: hparam.DecodeHParams
    ) -> dict[str, dict]:
        """Return the stored scores of checkpoints, found by the same search.

        Checksums are compared, too: an average may have been computed again.
        """
        names = checkpoint_files.names(checkpoints, self.output_dir)
        checksums = checkpoint_files.checksums(checkpoints)
        return {
            name: stored
            for name, stored in self.stored_scores().items()
            if stored.get("checkpoints") == names
            and stored.get(history.CHECKPOINTS_SHA256, checksums) == checksums
            and _same_best(stored.get("decode_hparams", {}), vars(search))
        }


def _languages(problem):
    """Return codes of the languages of sources, and of those of targets."""
    sides = [
        {*map(languages.two_letters, names.split("+"))}
        for names in problem.stored_languages
    ]
    return sides[::-1] if problem.reverse else sides


def table_rows(folder: str | pathlib.Path) -> list[tuple[str, ...]]:
    """Return a head, and a row for each run below a folder.

    Definitions of users are not loaded.

    Raises:
        UserError: there is no run.
    """
    folder = files.expand_path(folder)
    rows: list[tuple[str, ...]] = [
        ("run", "problem", "hparams set", "step", "scores")
    ]
    for path in sorted(folder.rglob(run_json.RUN)):
        name = str(path.parent.relative_to(folder))
        try:
            rows.append((name, *_summary(path)))
        except errors.UserError as error:
            rows.append((name, "", "", "", f"cannot be read: {error}"))
    if len(rows) == 1:
        raise errors.UserError(
            f"There is no run below {folder}: no folder there has a run.json. "
            "Name another --runs_dir."
        )
    return rows


def _summary(path):
    """Return what a row says of the run of a run.json."""
    settings = files.read_json(path, run_json.SHAPE)
    folder = path.parent
    saved = checkpoint_files.saved(folder)
    step = checkpoint_files.step_of(saved[-1]) if saved else 0
    scores = []
    found = history.read_by_test_set(folder / history.TRANSLATIONS_FOLDER, dict)
    for test_set, stored in found.items():
        values = {k: v for k, v in stored.items() if isinstance(v, float)}
        name = stored.get("headline")  # of earlier versions the first one
        if name not in values:
            name = next(iter(values), None)
        if name:  # one of translations has no checkpoint
            source = " + ".join(map(str, stored.get("checkpoints", ())))
            scores.append(
                f"{test_set}: {name} {values[name]:.2f}"
                + (f" of {source}" if source else "")
            )
    return (
        settings["problem"],
        settings["hparams_set"],
        f"{step:,}" if step else "none",
        ", ".join(scores),
    )


def _same_best(*searches):
    """Return whether two searches have the same best outputs."""
    first, second = (
        fields.with_defaults(hparam.DecodeHParams, search)
        | {"return_beams": False, "distinct": False, "xla": "auto"}
        for search in searches
    )
    ignored = {} if first["rerank"] else {"raw_scores": False}
    return first | ignored == second | ignored
