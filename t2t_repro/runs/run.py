"""Runs: training that is finished or in progress, for later commands."""

import itertools
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from t2t_repro import errors, fields, hparam
from t2t_repro.decoding import translate
from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.problem import Problem
from t2t_repro.runs import checkpoints, history, stored_run
from t2t_repro.runtime import keras_compat
from t2t_repro.text import long_lines, vocabulary_pair
from t2t_repro.text.vocabulary import Vocabulary
from t2t_repro.text.vocabulary_pair import Vocabularies


class Run(NamedTuple):
    """Run that a command has opened."""

    output_dir: pathlib.Path
    settings: dict  # run.json
    problem: Problem
    hparams: hparam.HParams
    vocabularies: Vocabularies


def stored_scores(output_dir: pathlib.Path) -> dict[str, dict]:
    """Return {split: scores} of the splits that `evaluate` translated."""
    folder = output_dir / stored_run.TRANSLATIONS
    return {
        str(path.relative_to(folder).with_suffix("")): files.read_json(
            path, dict
        )
        for path in sorted(folder.rglob("*.json"))
    }


def scores_of(
    output_dir: pathlib.Path,
    checkpoint_paths: list[pathlib.Path],
    search: hparam.DecodeHParams,
) -> dict[str, dict]:
    """Return the stored scores of checkpoints, found by the same search.

    Checksums are compared, too: an average may have been computed again.
    """
    names = stored_run.checkpoint_names(checkpoint_paths)
    checksums = stored_run.checkpoint_checksums(checkpoint_paths)
    return {
        split: stored
        for split, stored in stored_scores(output_dir).items()
        if stored.get("checkpoints") == names
        and stored.get("checkpoints_sha256", checksums) == checksums
        and _same_best(stored.get("decode_hparams", {}), vars(search))
    }


def _same_best(*searches):
    """Return whether two searches have the same best outputs."""
    complete = (
        fields.with_defaults(hparam.DecodeHParams, search)
        | {"return_beams": False, "distinct": False, "raw_scores": False}
        for search in searches
    )
    return next(complete) == next(complete)


def open_run(
    output_dir: str | pathlib.Path, expected: dict | None = None
) -> Run:
    """Read run.json and the vocabularies.

    Args:
        output_dir: folder of the run.
        expected: values that run.json must have; hparams as
            "key=value,key=value".

    Raises:
        UserError: the folder has no run, its settings differ from `expected`,
            or its vocabularies are not those it was trained on.
    """
    stored = stored_run.read(output_dir, expected)
    output_dir, settings, problem, _ = stored
    vocabularies = _read_vocabularies(output_dir, settings, problem)
    return Run(*stored, vocabularies)


def _read_vocabularies(output_dir, settings, problem):
    """Read a run's vocabularies, in its own direction."""
    paths = vocabulary_pair.paths(output_dir, problem.separate_vocabularies)
    vocabularies = vocabulary_pair.load(problem.vocabulary_type, paths)
    if vocabularies.sha256 != settings["vocabulary_sha256"]:
        them = " and ".join(map(str, paths))
        raise errors.UserError(
            f"This run was not trained with {them}: sha256 is "
            f"{vocabularies.sha256} instead of "
            f"{settings['vocabulary_sha256']}. Restore "
            f"{'the file' if vocabularies.is_shared else 'both files'}."
        )
    return vocabularies


def last_checkpoints(run: Run, number: int) -> list[pathlib.Path]:
    """Return the paths of the last checkpoints, oldest first.

    Older ones that the trainer keeps as the best are not among them.

    Raises:
        UserError: the run does not have so many.
    """
    folder = run.output_dir / stored_run.CHECKPOINTS
    listed = stored_run.list_checkpoints(folder)
    first = 0
    if run.settings.get("options", {}).get("keep_best_checkpoints"):
        first = _end_of_gaps(list(map(stored_run.step_of, listed)), run)
    paths = listed[first:][-number:]
    if len(paths) < number:
        older = f" after {first} older ones that are the best" if first else ""
        raise errors.UserError(
            f"{folder} has {len(paths)} checkpoints{older}; {number} are to be "
            f"averaged. Train on, with --keep_checkpoint_max={number} or more, "
            f"or say --num_last_checkpoints={len(paths) or '…'}."
        )
    return paths


def _end_of_gaps(steps, run):
    """Return the first index after which no checkpoint has been removed."""
    distance = (
        run.settings["options"].get("save_checkpoints_steps")
        or run.hparams.save_checkpoints_steps
    )
    gaps = [
        index
        for index, (step, following) in enumerate(itertools.pairwise(steps), 1)
        if following - step > distance
    ]
    return gaps[-1] if gaps else 0


def best_checkpoints(run: Run, number: int) -> list[pathlib.Path]:
    """Return the paths of the best checkpoints, oldest first; print values.

    Raises:
        UserError: the run has fewer validations, or not their checkpoints.
    """
    folder = run.output_dir / stored_run.CHECKPOINTS
    validations = history.History(run.output_dir)
    metric = validations.ranking_metric(run.problem.suite)
    values = validations.values(metric)
    name = "perplexity" if metric == history.LOSS else metric
    steps = validations.ranking(run.problem.suite)[:number]
    kept = {
        stored_run.step_of(path): path
        for path in stored_run.list_checkpoints(folder)
    }
    best = [step for step in steps if step in kept]
    if len(best) < number:
        wanted = ", ".join(f"ckpt-{step}" for step in steps) or "unknown"
        raise errors.UserError(
            f"The {number} best checkpoints by the validation {name} are "
            f"{wanted}; {folder} has {len(best)} of them. The trainer keeps "
            f"them with --keep_best_checkpoints={number}. Train so, or choose "
            "a smaller --num_last_checkpoints."
        )
    shown = (f"ckpt-{step} {values[step]:.4g}" for step in best)
    print(f"Best by the validation {name}: {', '.join(shown)}.")
    return [kept[step] for step in sorted(best)]


def load_models(
    run: Run, checkpoint_path: stored_run.Checkpoints = None
) -> tuple[list[Seq2Seq], list[pathlib.Path]]:
    """Load a model with its weights, or several of an ensemble.

    A path may lie in another run with the same vocabularies; its model then has
    that run's hparams.

    Args:
        run: result of open_run().
        checkpoint_path: argument of stored_run.find_checkpoints().

    Returns:
        Models, and the paths of their checkpoints.
    """
    paths = stored_run.find_checkpoints(run.output_dir, checkpoint_path)
    models = []
    for path in paths:
        model = build_model(run, _hparams_of(path, run))
        checkpoints.restore_weights(model, path, run.vocabularies.sha256)
        models.append(model)
    return models, paths


def num_weights(
    run: Run, checkpoint_path: stored_run.Checkpoints = None
) -> int:
    """Return how many weights the models of load_models() have together."""
    paths = stored_run.find_checkpoints(run.output_dir, checkpoint_path)
    return sum(checkpoints.CheckpointReader(path).num_weights for path in paths)


def build_model(run: Run, hparams: hparam.HParams | None = None) -> Seq2Seq:
    """Build a model for a run's vocabularies, with initial weights.

    Args:
        run: result of open_run().
        hparams: settings of the model; None: the run's.
    """
    keras_compat.require_defaults()
    return building.build(
        hparams or run.hparams,
        run.vocabularies.target.size,
        source_vocab_size=run.vocabularies.source.size,
    )


def line_functions(
    problem: Problem, source: Vocabulary, split_sentences: bool
) -> tuple[Callable[[str], str], Callable[[str], list[str]]]:
    """Return the function of each line to translate, and Translator's `split`.

    Args:
        problem: result of Problem.toward().
        source: vocabulary of the sources, with their tags.
        split_sentences: whether lines are split into sentences. A splitter
            reads plain lines: a normalized one may be tokenized.

    Raises:
        UserError: sentencex is needed, and not installed.
    """
    normalize, _ = problem.normalizers
    if not split_sentences:
        return normalize, translate.whole_line
    return str, long_lines.sentence_splitter(
        problem.source_language,
        normalize,
        source.split_tag,
        adds_tag=bool(problem.target_languages),
    )


def _hparams_of(path, run):
    """Return the hparams of a checkpoint's own run, else those of `run`."""
    file = path.parent.parent / stored_run.RUN
    if not file.exists():
        return run.hparams
    settings = files.read_json(file, {"hparams": {"model": str}})
    return stored_run.hparams_of(settings["hparams"])
