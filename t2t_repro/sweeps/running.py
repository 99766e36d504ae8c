"""Training and scoring of a table's rows, several at a time.

A row with a file is not trained again; an interrupted one resumes from its last
checkpoint. Commands of the package train and score in their own processes.
"""

import datetime
import functools
import math
import pathlib
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Any

from t2t_repro import errors, prepare, registry
from t2t_repro.data import manifest, subword_sampling
from t2t_repro.data.corpus import Corpus
from t2t_repro.evaluation import evaluation
from t2t_repro.io import fields, files
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import Suite
from t2t_repro.models import building, seq2seq
from t2t_repro.runs import checkpoint_files, history, run_json
from t2t_repro.runs.run import Run
from t2t_repro.sweeps import queue, tables
from t2t_repro.sweeps.rows import (
    BUDGET,
    FEWER,
    PATIENCE,
    STEPS,
    Job,
    Row,
    Table,
    Tests,
    finished_rows,
    read_finished,
    this_machine,
    write_paired_tests,
)
from t2t_repro.text import parallel_files
from t2t_repro.text.test_sets import TestSet

SAMPLES = 1_000  # of a paired test


def train_row(row: Row, job: Job, commands: queue.Commands) -> dict[str, Any]:
    """Train a row or resume it; return how it ended, for the row's file."""
    folder, hparams = job.training_folder(row), row.hparams
    flags = _trainer_flags(row, job)
    budget = queue.Budget(folder, job.options.budget_minutes)
    if job.averaged:
        _require_kept_checkpoints(folder, hparams.num_averaged_checkpoints)
    if not budget.exhausted:
        commands.run("trainer", *flags, budget=budget)
    if budget.exhausted:
        _validate_last(folder, flags, commands)
    steps = history.History(folder).steps
    if not steps:
        raise errors.UserError(
            f"{row}, has no validation after {budget.used:.1f} minutes. "
            "Validate earlier, with --trainer_flags=--eval_every=…, or let it "
            "train for longer."
        )
    ended_by = BUDGET if budget.exhausted else PATIENCE
    if steps[-1] >= hparams.train_steps:
        ended_by = STEPS
    fewer = {}
    if job.averaged:
        commands.run(
            "avg_checkpoints", *job.problem_flags, f"--output_dir={folder}"
        )
        saved = checkpoint_files.saved(folder)
        count = len(checkpoint_files.without_best(saved))
        if count < hparams.num_averaged_checkpoints:
            fewer = {FEWER: count}
    return fewer | {
        "ended_by": ended_by,
        # With a patience, the last step comes while the metric improves.
        "converged": ended_by
        == (PATIENCE if job.options.early_stopping_evals else STEPS),
        "minutes": round(budget.used, 1),
    }


def _validate_last(folder, flags, commands):
    """Validate the checkpoint that is scored: a budget's end skips this."""
    for path in checkpoint_files.saved(folder)[-1:]:
        step = checkpoint_files.step_of(path)
        if step not in history.History(folder).steps:
            commands.run("trainer", *flags, f"--train_steps={step}")


def _require_kept_checkpoints(folder, wanted):
    """Refuse to average a training that keeps its last checkpoint alone."""
    stored = run_json.read_resumable(folder) or {}
    kept = stored.get("options", {}).get("keep_checkpoint_max")
    if len(checkpoint_files.saved(folder)) == kept == 1 < wanted:
        raise errors.UserError(
            f"The training in {folder} has begun without --average, and keeps "
            f"1 checkpoint; {wanted} are to be averaged. Name another "
            "--output_dir."
        )


def _trainer_flags(row, job):
    options = job.options
    overrides = fields.join({k: str(v) for k, v in row.changes.items()})
    stopping = (
        f"--early_stopping_evals={options.early_stopping_evals}",
        f"--early_stopping_metric={options.early_stopping_metric}",
    )
    return (
        *job.problem_flags,
        f"--hparams_set={row.hparams_set}",
        *([f"--hparams={overrides}"] if overrides else []),
        f"--random_seed={row.seed}",
        f"--mixed_precision={options.mixed_precision}",
        f"--output_dir={job.training_folder(row)}",
        *([] if job.averaged else ["--keep_checkpoint_max=1"]),
        *(stopping if options.early_stopping_evals else []),
        *job.datagen_flags,
        *options.split_trainer_flags(),
    )


def open_corpus(run: Run, split: str) -> Corpus:
    """Open a split of the data of a run."""
    data = prepare.data_folder(run.settings["data_dir"], run.problem)
    return manifest.open_corpus(data, split, run.problem.reverse)


def measure_training(run: Run, stored: dict[str, Any]) -> dict[str, Any]:
    """Return perplexities, scores, parameters, FLOPs and padding of a training.

    Perplexity is per subword, of the last weights on the validation split, even
    if scores are of averaged weights or another split. Padding is a share of
    tokens and padding, of both sides.
    """
    hparams, seed = run.hparams, run.settings["random_seed"]
    plan, _ = subword_sampling.training_plan(
        hparams, run.vocabularies, seed, open_corpus(run, "train")
    )
    model = building.build_abstract(hparams, **run.vocabularies.sizes)
    names = ("step", "perplexity", *run.problem.suite.names)
    curve = [
        {key: entry[key] for key in names if key in entry}
        for entry in history.History(run.output_dir).entries
    ]
    tokens = plan.target_tokens * curve[-1]["step"]
    return {
        "perplexity": curve[-1]["perplexity"],
        "scores": {key: stored[key] for key in stored["signatures"]},
        "signatures": stored["signatures"],
        "vocab_size": model.vocab_size,
        "parameters": model.count_params(),
        "training_flops": seq2seq.training_flops(
            model, tokens, *plan.mean_tokens
        ),
        "padding": plan.padding,
        "curve": curve,
    }


def run_row(row: Row, job: Job, measure: Callable = measure_training) -> bool:
    """Train and score a row, and write its file, unless it exists.

    A row that its budget ended is continued if the budget has grown, and scored
    again if its training has gone on. `measure` is a function of the training's
    run and its stored scores.

    Returns:
        Whether the row was not finished before.
    """
    path, folder = job.path(row), job.training_folder(row)
    finished = read_finished(path, job.settings(row))
    options, log = job.options, None
    if finished and not _is_continued(finished, folder, options.budget_minutes):
        changed = _changed_files(finished)
        code = f", with other code in {', '.join(changed)}" * bool(changed)
        print(f"{row}: finished on {finished['date']}{code}.")
        return False
    if options.processes > 1:
        log = folder.with_name(f"{folder.name}.log")
        print(f"{row}: its log is {log}.")
    commands = queue.Commands(log, options.processes)
    ended = train_row(row, job, commands)
    where = [f"--output_dir={folder}", f"--split={job.split}"]
    if not job.averaged and (folder / checkpoint_files.AVERAGED).exists():
        # The average that an earlier table of this training has scored.
        latest = checkpoint_files.saved(folder)[-1]
        where.append(f"--checkpoint_path={latest}")
    commands.run("evaluate", *job.problem_flags, *where)
    run = Run.open(folder)
    translations = run.stored(job.split).translations
    definitions = registry.definition_checksums(run.settings.get("usr_dir", []))
    result = job.settings(row) | {
        "figures": measure(run, run.stored_scores()[job.split]),
        "translations_sha256": files.sha256(translations),
        **ended,
        **({"definitions": definitions} if definitions else {}),
        "command": job.command,
        "machine": options.machine or this_machine(),
        "date": str(datetime.date.today()),
    }
    job.results_dir.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(translations, translations_path(job.results_dir, result))
    files.write_json(path, result)
    return True


def _is_continued(finished, folder, minutes):
    """Return whether a budget's end is not the end of a training any more."""
    if finished.get("ended_by") != BUDGET or not folder.exists():
        return False
    if not queue.Budget(folder, minutes).exhausted:
        return True
    steps = map(checkpoint_files.step_of, checkpoint_files.saved(folder))
    curve = finished["figures"].get("curve") or [{}]  # of earlier versions
    scored = curve[-1].get("step", math.inf)
    return any(step > scored for step in steps)


def _changed_files(result):
    """Return the files of --usr_dir that have changed since a training."""
    now = registry.definition_checksums()
    then = result.get("definitions", {})
    return sorted(n for n in then.keys() & now if then[n] != now[n])


def step_flops(row: Row, job: Job) -> float:
    """Return the FLOPs of a training step, on the mean of a batch plan.

    Its tokens are those of the sentences, without padding and as long as
    sampled subwords make them. The data must exist.
    """
    hparams = row.hparams
    corpus = manifest.open_corpus(job.data, "train", job.problem.reverse)
    vocabularies = manifest.open_vocabularies(job.data, job.problem.reverse)
    plan, _ = subword_sampling.training_plan(
        hparams, vocabularies, row.seed, corpus
    )
    model = building.build_abstract(hparams, **vocabularies.sizes)
    return seq2seq.training_flops(model, plan.target_tokens, *plan.mean_tokens)


def with_flops(table: Table, job: Job, flops: float) -> Table:
    """Return the table with as many steps in each row as take these FLOPs."""
    variants = {}
    for name, variant in table.variants.items():
        row = table.row(name, seed=1)  # all seeds have as many steps
        steps = max(round(flops / step_flops(row, job)), 1)
        changes = variant.changes | {"train_steps": steps}
        variants[name] = variant._replace(changes=changes)
    return table._replace(variants=variants)


def run_rows(
    rows: Sequence[Row],
    job: Job,
    measure: Callable = measure_training,
    after_each: Callable[[], Any] = lambda: None,
) -> None:
    """Run rows in a queue.

    Args:
        rows: the trainings to run.
        job: settings that all rows share.
        measure: of run_row().
        after_each: called after each row, one at a time.

    Raises:
        UserError: a row saves fewer checkpoints than it averages, or failed.
    """
    lock = threading.Lock()
    kept = job.options.trainer_flag("keep_checkpoint_max")
    for row in rows if job.averaged else ():
        hparams = row.hparams
        steps, every = hparams.train_steps, hparams.save_checkpoints_steps
        wanted = hparams.num_averaged_checkpoints
        if steps // every < wanted:
            raise errors.UserError(
                f"{row.name} is an average of {wanted} checkpoints, and "
                f"{steps:,} steps with one every {every:,} make "
                f"{steps // every}. Set --hparams=save_checkpoints_steps=… or "
                "num_averaged_checkpoints=…."
            )
        if kept and int(kept) < wanted:
            raise errors.UserError(
                f"{row.name} is an average of {wanted} checkpoints; got "
                f"--trainer_flags={job.options.trainer_flags}. Omit "
                "--keep_checkpoint_max."
            )

    def run_one(row):
        has_worked = run_row(row, job, measure)
        with lock:
            after_each()
        return has_worked

    tasks = {str(row): functools.partial(run_one, row) for row in rows}
    queue.run(tasks, job.options.processes)


def run_all(
    rows: Sequence[Row],
    table: Table,
    job: Job,
    write: Callable[[tables.Results], str],
    measure: Callable = measure_training,
) -> None:
    """Run rows, and write the table after each.

    The table has all finished rows, including those that are not in `rows`.
    paired_tests.json has bootstrap tests between rows and base.

    `write` writes the table's files, and returns its text.

    Raises:
        UserError: some rows failed, after the table of the others.
    """
    failure = None
    try:
        run_rows(rows, job, measure, lambda: write(finished_rows(table, job)))
    except errors.UserError as error:
        failure = error
    if results := finished_rows(table, job):
        _report(results, table, job, write)
    if failure:
        raise failure


def _report(results, table, job, write):
    """Write the paired tests and the table, and print it."""
    tests = compare_with_base(
        results,
        table.base_row,
        job.problem.suite,
        job.score,
        evaluation.open_split(job.problem, job.data, job.split),
        job.results_dir,
    )
    write_paired_tests(job.results_dir, tests)
    print(f"\n{write(results)}")


# Paired bootstrap tests between rows and base, seed by seed.


def translations_path(
    results_dir: pathlib.Path, result: dict[str, Any]
) -> pathlib.Path:
    """Return the path of the translations of a finished row.

    Git ignores them; the row's file has their sha256.
    """
    return results_dir / f"{result['row']}-seed{result['seed']}.txt"


def compare_with_base(
    results: Sequence[dict],
    base: str,
    suite: Suite,
    metric: str,
    test_set: TestSet,
    results_dir: pathlib.Path,
) -> Tests:
    """Test the difference of each row from base, for each seed of both.

    The test samples sentences: it says what the difference of two trainings is
    worth on this test set. It does not see the noise between seeds.

    Returns:
        {row: [{"seed": …, "difference": …, "p_value": …, "base": …,
        "metric": …, "translations_sha256": of both}]}. Seeds without
        translations are left out, and how to make them again is printed. {}
        where scores are means of several directions.

    Raises:
        UserError: translations are not those that a row was scored with.
    """
    scorer = Suite((metric,), *suite[1:]).build()
    if test_set.directions:
        return {}
    sources, references = test_set.sources, test_set.references
    counts = scores.resample(len(references[0]), SAMPLES)
    counted, sha256 = {}, {}
    for result in results:
        path = translations_path(results_dir, result)
        if _has_translations(result, path):
            lines = list(parallel_files.read_lines(path))
            found = scores.count(scorer, lines, references, sources)
            key = result["row"], result["seed"]
            counted[key] = found[metric]
            sha256[key] = result.get("translations_sha256")
    tests: Tests = {}
    for (row, seed), statistics in counted.items():
        if row == base or (base, seed) not in counted:
            continue
        test = scores.paired_test(
            metric, scorer[metric], statistics, counted[base, seed], counts
        )
        difference = test.system - test.baseline
        tests.setdefault(row, []).append(
            {
                "seed": seed,
                "difference": difference,
                "p_value": test.p_value,
                "base": base,
                "metric": metric,
                "translations_sha256": [sha256[row, seed], sha256[base, seed]],
            }
        )
    return tests


def _has_translations(result, path):
    """Return whether the translations of a row are there, and check them."""
    expected = result.get("translations_sha256")
    if not path.exists():
        print(
            f"{path.stem} has no paired test, because {path} is absent. This "
            "command, with another --results_dir, makes it again, with sha256 "
            f"{expected} on an equal machine: {result.get('command')}"
        )
        return False
    if expected and files.sha256(path) != expected:
        raise errors.UserError(
            f"{path} has other translations than those that {path.stem}.json "
            f"has scores of: its sha256 is not {expected}. Remove it."
        )
    return True
