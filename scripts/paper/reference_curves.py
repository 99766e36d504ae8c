"""Comparison of a training with the curves of reference trainings.

    python -m scripts.paper.reference_curves --output_dir=RUN

It compares perplexity and BLEU of every validation, and scores, with those of
the same training in scripts/results/reference_curves/. There are references for
number words and Multi30k. Exit status 0: the training agrees; 1: an error; 2:
there is no reference; 3: the training deviates. --record=NAME --runs=RUN,RUN
writes a reference instead.
"""

import datetime
import itertools
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from scripts.paper import table_rows
from t2t_repro import errors, hparam
from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import fields, files
from t2t_repro.runs import history, run_json
from t2t_repro.runs.run import Run
from t2t_repro.sweeps import rows

AGREES, NO_REFERENCE, DEVIATES = 0, 2, 3  # exit status


def define_flags():
    flags.DEFINE_string("record", None, "Name of a reference to write.")
    flags.DEFINE_list(
        "runs", [], "With --record: runs that differ in their seed only."
    )
    flags.DEFINE_string(
        "machine", None, "With --record: description of the machine."
    )
    flags.adopt_module_key_flags(common_flags)


def main():
    values = flags.FLAGS
    if values.record:
        folders = map(pathlib.Path, common_flags.required("runs"))
        machine = values.machine or rows.this_machine()
        print(f"Recorded {record(values.record, list(folders), machine)}.")
        return None
    run = common_flags.open_run()
    status, text = compare(run.settings, read_training(run), load())
    print(text)
    return status


def compare(settings: dict, training: dict, known: dict) -> tuple[int, str]:
    """Compare a training with the reference that has the nearest settings.

    `known` is {name: reference}. The result is an exit status and a text.
    """
    choice = choose(settings, known)
    if not choice:
        problems = sorted({each["problem"] for each in known.values()})
        return NO_REFERENCE, (
            f"There is no reference curve for {settings['problem']}, only for "
            f"{', '.join(problems)}."
        )
    name, reference, differing = choice
    if differing:
        return NO_REFERENCE, (
            f"There is no reference with these settings. Compared with {name}: "
            f"{'; '.join(differing)}. Its command: {reference['command']}"
        )
    training, notes = comparable(settings, training, reference)
    ours, theirs = map(precision, (settings, reference))
    if ours != theirs:
        notes.append(f"The reference is in {theirs}, the training in {ours}.")
    shared, deviations = compare_curves(training, reference)
    if not shared:
        first = reference["seeds"][0]["validations"]
        steps = [str(entry["step"]) for entry in first]
        return NO_REFERENCE, (
            f"No validation is at a step of {name}: {', '.join(steps)}. Set "
            f"--eval_every={steps[0]}."
        )
    seeds = ", ".join(str(seed["random_seed"]) for seed in reference["seeds"])
    basis = f"{len(shared)} values compared with {name}, seeds {seeds}"
    if not deviations:
        text = f"The training agrees: {basis}, none outside its band."
        return AGREES, "\n".join([text, *notes])
    lines = [
        f"The training deviates: {basis}, {len(deviations)} outside their "
        "bands.",
        f"First, {deviations[0]}.",
        *(f"  {deviation}" for deviation in deviations[1:]),
        *notes,
    ]
    if settings["vocabulary_sha256"] != reference["vocabulary_sha256"]:
        lines.append(
            "The vocabulary is not the reference's, so perplexities differ."
        )
    first_step, _ = shared[0]
    lines.append(usual_cause(deviations, first_step))
    return DEVIATES, "\n".join(lines)


# Reference trainings: their files, and the one to compare a run with.

FOLDER = pathlib.Path(__file__).parents[1] / "results" / "reference_curves"
# Compared in addition to the headline metric of the problem.
_METRICS = ("bleu", "exact_match")
_SCORE_SETTINGS = ("signature", "checkpoints", "decode_hparams")


def load() -> dict[str, dict]:
    """Return {name: reference} of all recorded references."""
    return {path.stem: files.read_json(path) for path in FOLDER.glob("*.json")}


def read_training(run: Run) -> dict[str, Any]:
    """Return seed, validations and scores of a run.

    Raises:
        UserError: it has no validation.
    """
    validations = history.History(run.output_dir).entries
    if not validations:
        raise errors.UserError(
            f"{run.output_dir} has no validation yet. Continue the training."
        )
    metrics = run.problem.suite.headline, *_METRICS
    return {
        "random_seed": run.settings["random_seed"],
        "validations": [
            _select(entry, "step", "perplexity", *metrics)
            for entry in validations
        ],
        "scores": {
            split: _select(stored, *metrics, *_SCORE_SETTINGS)
            for split, stored in run.stored_scores().items()
        },
    }


def _select(entry, *keys):
    return {key: entry[key] for key in keys if key in entry}


def precision(settings: Mapping[str, Any]) -> str:
    """Return the precision of a run's last session, or of a reference."""
    if "mixed_precision" in settings:
        return settings["mixed_precision"]
    session = (settings.get("hardware") or [""])[-1]
    known = "bfloat16", "float16"  # "bfloat16" has "float16" in it
    return next((name for name in known if name in session), "float32")


def differences(
    settings: Mapping[str, Any], reference: Mapping[str, Any]
) -> list[str]:
    """Describe the settings of a run that differ from the reference's.

    Settings without an effect on the run are left out: its length, and those of
    the other kind of batches.
    """
    settings = run_json.with_defaults(settings)
    reference = run_json.with_defaults(reference)
    differing, ignored = [], set(table_rows.LENGTH_HPARAMS)
    packed = settings["hparams"].get("batching") == "packed"
    ignored.add("reshuffle_buckets" if packed else "proportional_rows")
    for group in ("hparams", "problem_arguments"):
        wanted = {k: v for k, v in reference[group].items() if k not in ignored}
        form = "{} is {!r}, not {!r}"
        differing += fields.differences(settings[group], wanted, form)
    return differing


class Choice(NamedTuple):
    """A reference to compare a run with."""

    name: str
    reference: dict[str, Any]
    differing: list[str]  # the run's settings that the reference has not


def choose(
    settings: Mapping[str, Any], references: Mapping[str, dict]
) -> Choice | None:
    """Return the reference of a problem with the nearest settings, or None.

    Among equals it is one of the same precision.
    """
    wanted = precision(settings)
    return min(
        (
            Choice(name, reference, differences(settings, reference))
            for name, reference in sorted(references.items())
            if reference["problem"] == settings["problem"]
        ),
        key=lambda choice: (
            len(choice.differing),
            precision(choice.reference) != wanted,
        ),
        default=None,
    )


def comparable(
    settings: Mapping[str, Any], training: dict, reference: Mapping[str, Any]
) -> tuple[dict, list[str]]:
    """Drop scores of other checkpoints or another search than the reference's.

    Returns:
        The training, and a line for each split whose scores were dropped.
    """
    averaged = "num_averaged_checkpoints"
    count = reference["hparams"][averaged]
    kept, lines = {}, []
    for split, stored in training["scores"].items():
        wanted = reference["seeds"][0]["scores"].get(split)
        if not wanted:
            continue
        theirs = wanted["checkpoints"]
        checkpoints = stored.get("checkpoints", ["?"])
        search, wanted_search = _search_differences(stored, wanted)
        if settings["hparams"][averaged] != count or theirs != checkpoints:
            lines.append(
                f"Scores of {split} are not compared: they are of "
                f"{', '.join(checkpoints)}, the reference's of "
                f"{', '.join(theirs)}, an average of {count}."
            )
        elif search != wanted_search:
            lines.append(
                f"Scores of {split} are not compared: they are of {search}, "
                f"the reference's of {wanted_search}. Evaluate with "
                "--decode_hparams=…."
            )
        else:
            kept[split] = stored
    return training | {"scores": kept}, lines


def _search_differences(*scores):
    """Describe the searches of two scores by the settings that differ."""
    searches = [
        # Newer settings have defaults.
        fields.with_defaults(hparam.DecodeHParams, stored) if stored else {}
        for stored in (each.get("decode_hparams") for each in scores)
    ]
    return [
        ", ".join(fields.differences(*searches, form))
        for form in ("{0}={1}", "{0}={2}")
    ]


def record(
    name: str, folders: Sequence[pathlib.Path], machine: str
) -> pathlib.Path:
    """Write runs that differ in their seed as a reference; return its path.

    Raises:
        UserError: the runs differ in more than their seed.
    """
    opened = list(map(Run.open, folders))
    first = opened[0].settings
    for run in opened[1:]:
        differing = differences(run.settings, first)
        if differing or run.settings["problem"] != first["problem"]:
            raise errors.UserError(
                f"{run.output_dir} is not {opened[0].output_dir} with another "
                f"seed: {'; '.join(differing) or run.settings['problem']}."
            )
    named = ("problem", "problem_arguments", "hparams_set", "hparams")
    _, _, arguments = first["command_lines"][0].partition(" ")
    path = FOLDER / f"{name}.json"
    FOLDER.mkdir(parents=True, exist_ok=True)
    reference = {
        **{key: first[key] for key in (*named, "vocabulary_sha256")},
        "mixed_precision": precision(first),
        "command": f"t2t trainer {common_flags.without_folders(arguments)}",
        "machine": machine,
        "date": str(datetime.date.today()),
        "versions": first["versions"],
        "seeds": [read_training(run) for run in opened],
    }
    files.write_json(path, reference)
    return path


# Bands around the curves of reference trainings, and deviations from them.
#
# A reference is the same training with several seeds: {"problem", "hparams", …,
# "seeds": [{"random_seed", "validations", "scores": {split: …}}]}.

# A correct training may be ahead or behind by this share of the steps. Where
# curves are steep this is a large difference, where they are flat it is none.
SHIFT = 0.15
# A band covers the values of the seeds at that step. On either side it is wider
# by the range of the seeds plus this floor, since few seeds show less than the
# true range. Perplexities are compared by their logarithms, so 0.1 is about
# 10%. Metrics are percentages.
PERPLEXITY_FLOOR, METRIC_FLOOR = 0.1, 1.0
# Perplexities of single validations jump, their medians over a few validations
# do not: a level that differs by 2% shows, if the seeds are not too few.
MEDIAN, MEDIAN_OF, MEDIAN_FLOOR, MEDIAN_SEEDS = "median perplexity", 5, 0.02, 3
LOGARITHMIC = ("perplexity",)
LAST = math.inf  # the "step" of scores, which are computed after training


class Deviation(NamedTuple):
    """A metric outside of its band."""

    step: float  # LAST for a score
    metric: str  # "perplexity", "bleu", or with a split, "test bleu"
    value: float
    low: float
    high: float

    @property
    def above(self) -> bool:
        """The value is above the band, or NaN."""
        return not self.value < self.low

    def __str__(self):
        place = "at the end" if self.step == LAST else f"at step {self.step:,}"
        edge = self.high if self.above else self.low
        if _kind(self.metric) in LOGARITHMIC:
            distance = f"{100 * abs(self.value / edge - 1):.0f}%"
        else:
            distance = f"{abs(self.value - edge):.1f}"
        side = "above" if self.above else "below"
        return (
            f"{place}, {self.metric} is {self.value:.2f}, {distance} {side} "
            f"the band from {self.low:.2f} to {self.high:.2f}"
        )


def _kind(metric):
    """Return the name of a metric without its split."""
    return metric.split()[-1]


def band(
    metric: str, values: Sequence[float], nearby: Sequence[float] = ()
) -> tuple[float, float]:
    """Return the low and the high end of a metric's band.

    It depends on the values of each seed, and on `nearby` ones of other steps.
    """
    logarithmic = _kind(metric) in LOGARITHMIC
    if logarithmic:
        values, nearby = map(math.log, values), map(math.log, nearby)
    values, nearby = list(values), list(nearby)
    floor = MEDIAN_FLOOR if metric == MEDIAN else PERPLEXITY_FLOOR
    floor = floor if logarithmic else METRIC_FLOOR
    margin = max(values) - min(values) + floor
    low = min(values + nearby) - margin
    high = max(values + nearby) + margin
    return (math.exp(low), math.exp(high)) if logarithmic else (low, high)


def nearby_values(
    metric: str, curve: dict[float, float], step: float
) -> list[float]:
    """Return a curve's values SHIFT earlier and later than a step.

    Between validations they are interpolated linearly, as logarithms for a
    perplexity. Before the first validation the line is extrapolated; after the
    last it is flat.
    """
    if len(curve) < 2 or step == LAST:
        return []
    steps, values = np.array(sorted(curve.items())).T
    logarithmic = _kind(metric) in LOGARITHMIC
    if logarithmic:
        values = np.log(values)
    gradient = (values[1] - values[0]) / (steps[1] - steps[0])
    earlier, later = step * (1 - SHIFT), step * (1 + SHIFT)
    shifted = np.interp([earlier, later], steps, values)
    shifted += gradient * np.minimum([earlier - steps[0], later - steps[0]], 0)
    return (np.exp(shifted) if logarithmic else shifted).tolist()


def values_by_step(training: dict) -> dict[tuple[float, str], float]:
    """Return {(step, metric): value} of a training's validations and scores."""
    validations = {
        (entry["step"], name): value
        for entry in training["validations"]
        for name, value in entry.items()
        if name != "step"
    }
    return validations | {
        (LAST, f"{split} {name}"): value
        for split, stored in training["scores"].items()
        for name, value in stored.items()
        if isinstance(value, int | float)
    }


def compare_curves(
    training: dict, reference: dict
) -> tuple[list[tuple[float, str]], list[Deviation]]:
    """Return (step, metric)s that have a band, and deviations, by step."""
    actual, *seeds = map(values_by_step, (training, *reference["seeds"]))
    if len(seeds) >= MEDIAN_SEEDS:
        _add_medians(actual, *seeds)
    shared = sorted(key for key in actual if all(key in each for each in seeds))
    deviations = []
    for step, name in shared:
        nearby = []
        for values in seeds:
            curve = {
                at: value
                for (at, metric), value in values.items()
                if metric == name and at != LAST
            }
            nearby += nearby_values(name, curve, step)
        low, high = band(name, [values[step, name] for values in seeds], nearby)
        value = actual[step, name]
        if not low <= value <= high:  # NaN is outside
            deviations.append(Deviation(step, name, value, low, high))
    return shared, deviations


def _add_medians(*trainings):
    """Add to trainings the medians over each few of their common steps."""
    steps = sorted(
        step
        for step, metric in trainings[0]
        if metric == "perplexity"
        and all((step, metric) in values for values in trainings)
    )
    for values, end in itertools.product(
        trainings, range(MEDIAN_OF, len(steps) + 1)
    ):
        few = steps[end - MEDIAN_OF : end]
        values[few[-1], MEDIAN] = statistics.median(
            values[step, "perplexity"] for step in few
        )


def usual_cause(deviations: Sequence[Deviation], first_step: float) -> str:
    """Return the usual causes of deviations, which are in order of steps."""
    first = deviations[0]
    perplexities = [d for d in deviations if _kind(d.metric) in LOGARITHMIC]
    if any(math.isnan(d.value) for d in deviations):
        return (
            "The loss is NaN: the cause is arithmetic, not data. Try float32."
        )
    if not perplexities:
        return (
            "Perplexity agrees with the reference, scores do not: the cause is "
            "the search or the scoring. Compare beam and alpha, the number of "
            "averaged checkpoints, and the scores' signatures and references."
        )
    if not perplexities[0].above:
        return (
            "Better than the reference: validation sentences in the training "
            "data, another validation split, or another vocabulary with other "
            "subwords (perplexity is per subword)."
        )
    if first.step == first_step:
        return (
            "Worse from the start. Compare the first lines of the trainer: "
            "tokens of a step over all replicas, peak learning rate and "
            "warm-up, pairs read and dropped, the vocabulary's sha256."
        )
    return (
        "Like the reference at first, then worse: another decay of the "
        "learning rate, or a restart of it, data that repeats after a resume, "
        "or a peak that is too high for this precision. Look at the curves of "
        "learning rate and gradient norm around that step."
    )


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
