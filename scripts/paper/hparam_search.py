"""Hyperparameter search: the same number of trials for each hparams set.

    python -m scripts.paper.hparam_search --problem=multi30k_ende \\
        --output_dir=FOLDER --rows=base,table3_a_h1 --trials=20 \\
        --range=learning_rate_constant=0.1:2.0:log \\
        --range=layer_prepostprocess_dropout=0.0:0.4

A comparison of two models is fair only if both have been tuned, with the same
effort. Each trial is a run of the trainer with values that Optuna's TPE sampler
proposes, or of a grid if the choices of all ranges have --trials combinations;
its value is the lowest perplexity of its validations, or the best headline
metric. Run the program again to resume. The journal of all trials,
RESULTS_DIR/hparam_search.jsonl, is text for version control: a search resumes
from it with a new --output_dir, too, where only an unfinished trial starts
again. parse_ranges() describes the ranges; table3_variations describes the
other flags.
"""

import functools
import itertools
import json
import math
import pathlib
from collections.abc import Sequence

import optuna
from absl import flags
from optuna import distributions
from optuna.storages import journal
from optuna.trial import TrialState

from scripts.paper import table_rows
from t2t_repro import errors, registry
from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import fields, files
from t2t_repro.runs import history, run_json
from t2t_repro.sweeps import queue, rows, running, tables

PERPLEXITY = "perplexity"
JOURNAL = "hparam_search.jsonl"  # trials of all rows, beside the results
# Statuses of a trainer that SIGHUP, Ctrl-C or SIGTERM ended.
_INTERRUPTED = (-1, -2, -15, 129, 130, 143)
_ENDED = (TrialState.COMPLETE, TrialState.FAIL)


def define_flags():
    flags.DEFINE_integer("trials", 20, "Trials of each row.", lower_bound=1)
    flags.DEFINE_multi_string(
        "range", None, "Range of an hparam: NAME=0.1:1.0:log or NAME=2|4|8."
    )
    flags.DEFINE_string(
        "objective",
        PERPLEXITY,
        "What trials improve: perplexity, the headline of the problem, or "
        "--early_stopping_metric.",
    )
    table_rows.define_flags()


def main():
    values = flags.FLAGS
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if not values.rows:
        raise errors.UserError("--rows names hparams sets, as --rows=base,big.")
    settings = type(registry.build_hparams(values.rows[0]))
    ranges = parse_ranges(settings, common_flags.required("range"))
    variants = {name: rows.Variant(name) for name in values.rows}
    if len(values.seed) > 1:
        raise errors.UserError(
            f"A search has one seed; got {len(values.seed)}. Train the best "
            "values with several."
        )
    job = table_rows.job(split="validation", averaged=False)
    objective = Objective(values.objective, job)
    path = job.results_dir / "hparam_search.json"
    if path.exists():
        stored = files.read_json(path)["objective"]
        if stored != objective.name:
            raise errors.UserError(
                f"The rows of {path} have another objective, {stored}. Name "
                "another --results_dir."
            )
    job.datagen()
    table = table_rows.table(variants, values.rows[0])
    trained = table.rows(values.rows, values.seed)
    studies = {
        row.name: open_study(row, job, ranges, objective) for row in trained
    }
    tasks = {
        row.name: functools.partial(
            run_trials,
            studies[row.name],
            values.trials,
            ranges,
            functools.partial(run_trial, row, job, objective),
        )
        for row in trained
    }
    queue.run(tasks, job.options.processes)
    summary = summarize(studies, objective)
    if path.exists():  # rows of earlier calls
        summary["rows"] = files.read_json(path)["rows"] | summary["rows"]
    files.write_json(path, summary)
    text = lay_out(summary)
    files.write_text(path.with_suffix(".md"), text)
    print(f"\n{text}")


class Objective:
    """The quantity that trials improve."""

    def __init__(self, name: str, job):
        """Check the name, of a value that the validations of a trial have."""
        known = [PERPLEXITY]
        if job.options.trainer_flag("eval_bleu_sentences") != "0":
            known.append(job.problem.suite.names[0])
            metric = job.options.early_stopping_metric
            if job.options.early_stopping_evals and metric in registry.metrics:
                known.append(metric)
        if name not in known:
            raise errors.UserError(
                f"--objective is one of {', '.join(known)}, which validations "
                f"have; got --objective={name}. They have another metric as "
                "--early_stopping_metric, with --early_stopping_evals, and "
                "none but perplexity with --eval_bleu_sentences=0."
            )
        self.name = name
        self.maximize = (
            name != PERPLEXITY and registry.metrics[name].value.higher_is_better
        )

    def best(self, folder: pathlib.Path) -> float:
        """Return the best value among the validations of a run."""
        curve = history.History(folder).entries
        values = [entry[self.name] for entry in curve if self.name in entry]
        if not values:
            raise errors.UserError(
                f"The validations in {folder} have no {self.name}."
            )
        return (max if self.maximize else min)(values)


def open_study(row, job, ranges, objective) -> optuna.Study:
    """Open the study of a row, or create it.

    Raises:
        UserError: the stored study has other settings.
    """
    job.results_dir.mkdir(parents=True, exist_ok=True)
    path = str(job.results_dir / JOURNAL)
    storage = optuna.storages.JournalStorage(journal.JournalFileBackend(path))
    study = optuna.create_study(
        study_name=row.name,
        storage=storage,
        direction="maximize" if objective.maximize else "minimize",
        load_if_exists=True,
    )
    # Another seed after a restart: the sampler would repeat itself.
    study.sampler = optuna.samplers.TPESampler(
        seed=row.seed + len(study.get_trials())
    )
    settings = {
        "row": job.settings(row),
        "ranges": {name: repr(values) for name, values in ranges.items()},
        "objective": objective.name,
    }
    settings = json.loads(json.dumps(settings))  # as they are stored
    stored = study.user_attrs.get("settings", settings)
    # Settings that are newer than the journal have their defaults.
    known = {"eval_pairs": settings["row"]["eval_pairs"]} | stored["row"]
    stored = stored | {"row": run_json.with_defaults(known)}
    if stored != settings:
        differing = [k for k in settings if stored.get(k) != settings[k]]
        raise errors.UserError(
            f"{path} has trials of {row.name} with another "
            f"{' and '.join(differing)}. Name another --results_dir."
        )
    study.set_user_attr("settings", settings)
    return study


def run_trials(study, count: int, ranges, run) -> None:
    """Run trials until `count` have ended, after those that were interrupted.

    Trials of earlier calls count. Where all ranges are choices with `count`
    combinations, each has a trial. `run` is a function of a trial's number and
    parameters that returns its value.

    Raises:
        UserError: no trial succeeded, or one was interrupted.
    """
    choices = [getattr(values, "choices", ()) for values in ranges.values()]
    if math.prod(map(len, choices)) == count:
        for combination in itertools.product(*choices):
            params = dict(zip(ranges, combination, strict=True))
            study.enqueue_trial(params, skip_if_exists=True)
    interrupted = study.get_trials(states=(TrialState.RUNNING,))
    for trial in interrupted:
        _run_and_tell(study, trial.number, trial.params, run)
    while len(study.get_trials(states=_ENDED)) < count:
        trial = study.ask(ranges)
        _run_and_tell(study, trial.number, trial.params, run)
    if not study.get_trials(states=(TrialState.COMPLETE,)):
        raise errors.UserError(
            f"All {count} trials of {study.study_name} failed; see the "
            "messages of the trainer."
        )


def _run_and_tell(study, number, params, run):
    try:
        value = run(number, params)
    except queue.CommandError as error:
        if error.status in _INTERRUPTED:
            raise
        print(f"{study.study_name}, trial {number} failed: {error}")
        study.tell(number, state=TrialState.FAIL)
        return
    study.tell(number, value)
    print(
        f"{study.study_name}, trial {number}: {value:.3f} with "
        f"{_overrides(params)}; best {study.best_value:.3f}."
    )


def _overrides(params):
    """Format parameters for --hparams."""
    return ",".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in params.items()
    )


def run_trial(row, job, objective, number, params) -> float:
    """Train a row with the parameters of a trial; return its value."""
    trial = row._replace(
        name=f"{row.name}-trial{number}", changes=row.changes | params
    )
    folder = job.training_folder(trial)
    log = folder.with_name(f"{folder.name}.log")
    commands = queue.Commands(log, job.options.processes)
    running.train_row(trial, job, commands)
    return objective.best(folder)


def summarize(studies, objective) -> dict:
    """Return the best parameters and all trials of each row."""
    rows = {}
    for name, study in studies.items():
        trials = study.get_trials(states=_ENDED)
        rows[name] = {
            "value": study.best_value,
            "params": study.best_params,
            "trials": [
                {"params": trial.params, "value": trial.value}
                for trial in trials
            ],
        }
    return {
        "objective": objective.name,
        "command": table_rows.command_line(),
        "rows": rows,
    }


def lay_out(summary) -> str:
    """Format the best trial of each row in Markdown."""
    rows = [
        (
            name,
            f"{row['value']:.3f}",
            str(len(row["trials"])),
            _overrides(row["params"]),
        )
        for name, row in summary["rows"].items()
    ]
    best = f"best {summary['objective']}"
    columns = "row", best, "trials", "--hparams=…"
    return f"{tables.markdown(columns, rows)}\n"


def parse_ranges(
    cls: type, texts: Sequence[str]
) -> dict[str, distributions.BaseDistribution]:
    """Return {hparam: distribution} of ranges from the command line.

        learning_rate_constant=0.05:1.0:log     uniform in its logarithm
        layer_prepostprocess_dropout=0.0:0.4    uniform
        num_heads=2|4|8                         one of these values

    Raises:
        UserError: an hparam is unknown or has two ranges, or a range is not
            of one of the three forms.
    """
    ranges = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise _error(text, "It has no values")
        if name in ranges:
            raise _error(text, f"{name} has two ranges")
        ranges[name] = _distribution(cls, text, name, values)
    return ranges


def _distribution(cls, text, name, values):
    def parse(value):
        return fields.parse(cls, f"{name}={value}")[name]

    if "|" in values:
        choices = list(map(parse, values.split("|")))
        return distributions.CategoricalDistribution(choices)
    ends, log = values.removesuffix(":log"), values.endswith(":log")
    if ends.count(":") != 1:
        raise _error(text, "It has not two ends")
    low, high = map(parse, ends.split(":"))
    if type(low) not in (int, float):
        raise _error(text, f"{name} is not a number")
    if not (low < high < math.inf and low > (0 if log else -math.inf)):
        raise _error(
            text,
            "Its ends are not finite, not in ascending order, or not above 0",
        )
    if isinstance(low, int):
        return distributions.IntDistribution(low, high, log=log)
    return distributions.FloatDistribution(low, high, log=log)


def _error(text, reason):
    return errors.UserError(
        f"--range takes NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A|B|C. "
        f"{reason}; got --range={text}."
    )


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
