"""A whole training run, from its problem to its last checkpoint.

train() checks settings, opens folder and data, and starts the loop. Notes say
which settings fit badly together; Uploads copies a run to its URL.
"""

import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

from t2t_repro import errors, hparam, prepare, registry
from t2t_repro.data import batch_plan, manifest, subword_sampling
from t2t_repro.data.settings import Data
from t2t_repro.io import files, progress, storage
from t2t_repro.models import building
from t2t_repro.problem import Problem
from t2t_repro.runs import checkpoint_files, history, run_json
from t2t_repro.runtime import devices, keras_compat
from t2t_repro.training import (
    losses,
    model_check,
    optimizer,
    schedules,
    train_loop,
)
from t2t_repro.training.callbacks import Callback
from t2t_repro.training.callbacks import build as build_callbacks
from t2t_repro.training.options import Options, Task


@progress.outliving_screen()
def train(
    problem: Problem,
    hparams: hparam.HParams,
    output_dir: str | pathlib.Path,
    options: Options | None = None,
    data: Data | None = None,
    hparams_set: str = "",
    callbacks: Sequence[Callback] = (),
) -> int:
    """Train a model, or resume a run that was stopped; generate missing data.

    Args:
        problem: problem.Problem, as problem.build_problem() returns it.
        hparams: hparam.HParams, as registry.build_hparams() returns it.
        output_dir: folder of the run; at a URL, each checkpoint is uploaded.
        options: other settings, flags of the trainer; None: the defaults.
        data: folders of the data; None: the defaults.
        hparams_set: name of the hparams set, for run.json and reports.
        callbacks: observers, beside those that options.callbacks names.

    Returns:
        The exit code: 0, or 129, 130 or 143 after SIGHUP, Ctrl-C or SIGTERM.

    Raises:
        UserError: settings or folder do not fit, or a number is not finite.
    """
    options, data = options or Options(), data or Data()
    run_folder = _open_folder(output_dir, options)
    if stored := run_json.read_resumable(run_folder):
        hparams = _use_defaults_for_later_fields(hparams, stored["hparams"])
        options = _continue_options(options, stored, run_folder)
    problem = problem.with_metrics(options.metrics or ())
    _check(problem, hparams, options)
    uploads = [Uploads(run_folder)] if storage.url_of(run_folder) else []
    observers = [*callbacks, *build_callbacks(options.callbacks), *uploads]
    strategy = _choose_hardware(options)
    _check_by_running(problem, hparams, options)
    worker = devices.Worker(strategy)
    with worker.report_lost_workers(), contextlib.ExitStack() as stack:
        common = _common_settings(problem, hparams, options)
        devices.require_same_flags(worker, common)
        folder = _prepare_data(worker, problem, data)
        task = _build_task(problem, hparams, options, folder)
        if worker.is_chief:
            stack.enter_context(_writing(run_folder, options.dry_run))
            _show_notes(hparams_set, options, task, problem)
        settings = run_json.settings(
            problem,
            hparams_set,
            hparams,
            options.random_seed,
            folder,
            task.vocabularies,
            task.plan.rows_per_batch,
        ) | _of_session(options, hparams, run_folder, stored)
        if not options.dry_run:
            _write_run_json(
                worker, run_folder, settings, task, options, strategy
            )
        return train_loop.train(task, run_folder, options, strategy, observers)


@contextlib.contextmanager
def _writing(folder, dry_run):
    """Lock a run, log to it and upload it, except in a dry run."""
    if dry_run:
        yield
        return
    with (
        files.locked(folder),
        upload_at_the_end(folder),
        progress.logging_to(folder),
    ):
        yield


def _show_notes(hparams_set, options, task, problem):
    notes = notes_on_settings(
        hparams_set,
        task.hparams,
        options,
        task.plan.num_pairs,
        problem.max_length,
    )
    on_padding = batch_plan.padding_note(task.plan, task.hparams)
    for note in filter(None, [*notes, on_padding]):
        progress.show(f"Note: {note}")


def _choose_hardware(options):
    """Return the strategy; before it, no operation may run."""
    try:
        if options.logical_devices:
            devices.make_logical_devices(options.logical_devices)
        else:
            devices.choose_threads(options.distribution, options.xla)
        if options.deterministic:
            devices.make_deterministic()
        return devices.strategy(options.distribution)
    except RuntimeError as error:
        raise errors.UserError(
            f"The devices cannot be chosen any more: {error} TensorFlow has "
            "run an operation in this process. After an earlier training or "
            "translation, as in a notebook, use a new process or the devices "
            "of the first time. If a module of --usr_dir runs it when it is "
            "imported, or a callback when it is built, move it to a function "
            "or to on_train_begin()."
        ) from error


def _open_folder(output_dir, options):
    """Return the folder of the run, which is copied if it has a URL."""
    folder = storage.local_path(output_dir)
    url = storage.url_of(folder)
    if url and devices.is_multi_worker(options.distribution):
        raise errors.UserError(
            f"Several workers need a shared folder for the run; got {url}. "
            "Name such a folder with --output_dir. --data_dir may be a URL."
        )
    checkpoint_files.open_folder(folder)
    left = checkpoint_files.saved(folder)
    if left and not (folder / run_json.RUN).exists():
        raise errors.UserError(
            f"There is no run at {url} any more, and its copy {folder} has "
            f"{left[-1].name}, which was not uploaded. Move the copy to "
            "another place, or remove it to train from the start."
            if url
            else f"{folder} has {left[-1].name}, but no {run_json.RUN}, which "
            "tells the settings that it was trained with. Restore the file "
            "from a copy. To train from these weights with any settings, name "
            f"another --output_dir and --warm_start_from={left[-1]}."
        )
    if not left and options.warm_start_from is None:
        _note_lost_start(folder / run_json.RUN)
    return folder


def _note_lost_start(path):
    """Print a note if a try that saved no checkpoint had a warm start."""
    stored = files.read_json(path, {}) if path.exists() else {}
    if start := stored.get("options", {}).get("warm_start_from"):
        progress.show(
            "Note: this training starts from random weights. Its first try "
            f"said --warm_start_from={start}."
        )


def _use_defaults_for_later_fields(hparams, stored):
    """Replace hparams that a run lacks by their defaults, and show them.

    A run of an earlier version lacks fields that were added later. Their
    defaults mean "as before", even if the hparams set has other values.
    """
    later = {
        field.name: field.default
        for field in dataclasses.fields(hparams)
        if field.name not in stored and field.default is not dataclasses.MISSING
    }
    for name, value in later.items():
        if value != vars(hparams)[name]:
            progress.show(
                f"The run is older than the hparam {name}, and continues with "
                f"{name}={value} instead of {vars(hparams)[name]}."
            )
    return dataclasses.replace(hparams, **later)


def _continue_options(options, run_settings, run_folder):
    """Keep metrics and number of best checkpoints, unless options say.

    What the run's first weights were stays, too.
    """
    stored = run_settings.get("options", {})
    kept = {"metrics": options.metrics or stored.get("metrics")}
    given, start = options.warm_start_from, stored.get("warm_start_from")
    if checkpoint_files.saved(run_folder):
        kept["warm_start_from"] = start
        if given is not None and str(given) != start:
            progress.show(
                "The run continues from its own checkpoint: "
                f"--warm_start_from={given} has no effect."
            )
    number = stored.get("keep_best_checkpoints")
    if options.keep_best_checkpoints is None and number:
        kept["keep_best_checkpoints"] = number
        progress.show(
            f"The run continues with --keep_best_checkpoints={number}. To "
            "remove its best checkpoints, say --keep_best_checkpoints=0."
        )
    return dataclasses.replace(options, **kept)


def _of_session(options, hparams, folder, stored):
    """Return options, of the last session with a step, and origin."""
    given = options.given()
    saved = checkpoint_files.saved(folder) if stored else []
    last = options.resolved(hparams).train_steps
    if saved and checkpoint_files.step_of(saved[-1]) >= last:
        given = stored.get("options", given)
    return {"options": given, **_origin(options.warm_start_from, stored)}


def _origin(start, stored):
    """Return {"imported_from": origin} of weights that were imported, or {}."""
    if start and not stored:
        stored = run_json.of_checkpoint(checkpoint_files.require(start))
    origin = (stored or {}).get("imported_from")
    return {"imported_from": origin} if origin else {}


def _check(problem, hparams, options):
    """Refuse settings that do not match each other, before any work."""
    if not problem.registered_name:
        raise errors.UserError(
            f"A run stores its problem by name; got a {type(problem).__name__} "
            "without one. Register the class, and build the problem with "
            "problem.build_problem('NAME')."
        )
    keras_compat.require_defaults()
    problem.check_hparams(hparams)
    building.check_model(hparams, options.recompute_grad)
    losses.build(hparams.loss)
    registry.of_search(problem.search)  # of validations
    history.require_stopping_metric(
        options.early_stopping_metric,
        options.early_stopping_evals,
        problem.suite,
        options.resolved(hparams).eval_bleu_sentences,
    )


def _check_by_running(problem, hparams, options):
    """Run an update of a small matrix, and a small model of a user."""
    optimizer.check(hparams, options.train_steps)
    model = registry.models[hparams.model].value
    if not model.__module__.startswith("t2t_repro."):  # tests check ours
        model_check.check(
            hparams,
            devices.dtype_policy(options.mixed_precision),
            problem.separate_vocabularies,
        )


def _write_run_json(worker, output_dir, settings, task, options, strategy):
    """Let the chief write run.json; the others compare their settings."""
    if worker.is_chief:
        hardware_used = devices.summary(
            strategy,
            devices.dtype_policy(options.mixed_precision),
            devices.use_xla(options.xla),
        )
        run_json.start(output_dir, settings, task.vocabularies, hardware_used)
        storage.upload(output_dir)  # an error shows before the first step
        # Others write averages and scores, the trainer alone checkpoints.
        storage.remove_unfinished(output_dir / checkpoint_files.CHECKPOINTS)
    fingerprint = worker.broadcast(run_json.fingerprint(output_dir))
    if not worker.is_chief:
        run_json.compare_with_chief(output_dir, settings, fingerprint)


def _common_settings(
    problem: Problem, hparams: hparam.HParams, options: Options
) -> dict[str, Any]:
    """Return {flag: value} of the settings that all workers must share."""
    return {
        "problem": problem.requested_name,
        "problem_args": problem.arguments,
        **{f"hparams={key}": value for key, value in vars(hparams).items()},
        **vars(options.resolved(hparams)),
        "usr_dir": registry.definition_checksums(),
        # "auto" depends on the GPU.
        "mixed_precision": devices.dtype_policy(options.mixed_precision),
    }


def _prepare_data(
    worker: devices.Worker, problem: Problem, data: Data
) -> pathlib.Path:
    """Return the folder of the data; the chief generates missing data."""
    if not worker.is_chief:
        with devices.interruptible():
            worker.barrier()  # until the chief is done
        return prepare.wait_for_data(problem, data.data_dir)
    folder = prepare.prepare(problem, **vars(data))
    worker.barrier()
    return folder


def _build_task(
    problem: Problem,
    hparams: hparam.HParams,
    options: Options,
    folder: pathlib.Path,
) -> Task:
    corpora = {
        split: manifest.open_corpus(folder, split, problem.reverse)
        for split in ("train", "validation")
    }
    vocabularies = manifest.open_vocabularies(folder, problem.reverse)
    plan, sampler = subword_sampling.training_plan(
        hparams, vocabularies, options.random_seed, corpora["train"]
    )
    if sampler:  # alignments are of the stored subwords
        corpora["train"].is_aligned = False
    return Task(
        hparams,
        vocabularies,
        plan,
        corpora,
        problem.search,
        problem.suite,
        sampler,
        manifest.directions(folder, "validation"),
    )


def notes_on_settings(
    hparams_set: str,
    hparams: hparam.HParams,
    options: Options,
    num_pairs: int,
    generated_length: int,
) -> Iterator[str]:
    """Yield a sentence for each pair of settings that fit badly together.

    `num_pairs` training pairs are used, and the data was generated with the
    problem's max_length `generated_length`.
    """
    if better := registry.hparams_sets.better_suited(hparams_set, num_pairs):
        yield (
            f"--hparams_set={better} suits a corpus of {num_pairs:,} pairs "
            f"better than {hparams_set}."
        )
    if hparams.max_length > generated_length:
        yield (
            f"hparams allow max_length={hparams.max_length}, but the data has "
            f"no training pairs above {generated_length} subwords. To have "
            "longer ones, say --problem_args=max_length=… and name another "
            "--data_dir."
        )
    averaged = hparams.num_averaged_checkpoints
    kept = options.keep_checkpoint_max
    if averaged > kept:
        yield (
            f"avg_checkpoints averages the last {averaged} checkpoints "
            f"(num_averaged_checkpoints), but --keep_checkpoint_max={kept} "
            f"keeps {kept}. To average {averaged}, keep as many."
        )
    steps = options.train_steps or hparams.train_steps
    if steps != hparams.train_steps and schedules.has_end(hparams):
        yield (
            f"--train_steps={steps} does not change the schedule "
            f"{hparams.learning_rate_schedule}, which is for "
            f"{hparams.train_steps:,} steps by default. In a new run, "
            f"--hparams=train_steps={steps} changes both."
        )


_PATIENCE = 10  # seconds until a wait is explained


class Uploads(Callback):
    """Uploads after each checkpoint, in a thread beside the training."""

    def __init__(self, folder: pathlib.Path):
        """Keep the folder of the run."""
        self._folder = folder
        self._executor = futures.ThreadPoolExecutor(1)
        self._running: futures.Future | None = None

    def on_checkpoint_written(self, step: int) -> None:
        """Wait for the last upload, whose files may be removed then."""
        running, self._running = self._running, None
        if running is None:
            return
        try:
            if futures.wait([running], _PATIENCE).not_done:
                progress.show(
                    f"Waiting for an upload to {storage.url_of(self._folder)}. "
                    f"The checkpoint of step {step:,} is in {self._folder}."
                )
            running.result()
        except errors.UserError as error:
            progress.show(
                f"{error} Training continues, and the next checkpoint is "
                "uploaded with what is missing.",
                logging.ERROR,
            )

    def on_checkpoint_saved(self, step: int, path: pathlib.Path) -> None:
        self._running = self._executor.submit(storage.upload, self._folder)

    def on_train_end(self) -> None:
        self._executor.shutdown()  # upload_at_the_end() reports errors


@contextlib.contextmanager
def upload_at_the_end(folder: pathlib.Path) -> Iterator[None]:
    """Copy what has changed to its URL at the end, also after an error.

    Raises:
        UserError: the upload failed; the run is complete in `folder`.
    """
    is_complete = False
    try:
        yield
        is_complete = True
    finally:
        try:
            storage.upload(folder)
        except errors.UserError as error:
            message = (
                f"The last files of {folder} are not uploaded. {error} The "
                "same command uploads them."
            )
            if is_complete:
                raise errors.UserError(message) from error
            progress.show(message, logging.ERROR)
