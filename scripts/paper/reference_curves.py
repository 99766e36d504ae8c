"""Comparison of a training with the curves of reference trainings.

    python -m scripts.paper.reference_curves --output_dir=RUN

It compares perplexity and BLEU of every validation, and scores, with those of
the same training in scripts/results/reference_curves/. There are references for
number words and Multi30k; for WMT14 the program prints the paper's figures.
Exit status 0: the training agrees; 1: an error; 2: there is no reference; 3:
the training deviates.

    python -m scripts.paper.reference_curves \\
        --record=NAME --output_dir=SEED1,SEED2,SEED3

It records a reference from trainings that differ only in their seed.
"""

import datetime
import pathlib

from absl import flags

from scripts.benchmarks import harness
from scripts.paper import curve_bands
from scripts.paper.table_rows import LENGTH_HPARAMS
from t2t_repro import (
    common_flags,
    errors,
    fields,
    hparam,
    json_files,
    run_json,
    runs,
)
from t2t_repro.reports import paper
from t2t_repro.training import history

FOLDER = pathlib.Path(__file__).parents[1] / "results" / "reference_curves"
_VALIDATIONS = [{"step": int, "perplexity": float}]
# Compared in addition to the headline metric of the problem.
_METRICS = ("bleu", "exact_match")
_SCORE_SETTINGS = ("signature", "checkpoints", "decode_hparams")
AGREES, NO_REFERENCE, DEVIATES = 0, 2, 3  # exit status


def main():
    if flags.FLAGS.record:
        return record(flags.FLAGS.record)
    run = runs.open_run(
        common_flags.output_dir(), common_flags.expected_settings()
    )
    references = {
        path.stem: json_files.read(path) for path in FOLDER.glob("*.json")
    }
    status, text = compare(run.settings, read_training(run), references)
    print(text)
    return status


def read_training(run) -> dict:
    """Return seed, validations and scores of a run."""
    path = run.output_dir / history.VALIDATION
    if not path.exists():
        raise errors.UserError(
            f"{run.output_dir} has no validation yet ({path.name} is missing). "
            "Continue the training."
        )
    metrics = run.problem.suite.headline, *_METRICS
    return {
        "random_seed": run.settings["random_seed"],
        "validations": [
            _select(entry, "step", "perplexity", *metrics)
            for entry in json_files.read(path, _VALIDATIONS)
        ],
        "scores": {
            split: _select(stored, *metrics, *_SCORE_SETTINGS)
            for split, stored in runs.stored_scores(run.output_dir).items()
        },
    }


def _select(entry, *keys):
    return {key: entry[key] for key in keys if key in entry}


def differences(settings: dict, reference: dict) -> list[str]:
    """Describe the settings of a run that differ from the reference's.

    Settings without an effect on the run are left out: its length, and with
    packed rows what happens to buckets.
    """
    settings = run_json.with_defaults(settings)
    reference = run_json.with_defaults(reference)
    differing, ignored = [], set(LENGTH_HPARAMS)
    if settings["hparams"].get("batching") == "packed":
        ignored.add("reshuffle_buckets")
    for group in ("hparams", "problem_arguments"):
        actual, wanted = settings[group], reference[group]
        differing += [
            f"{key} is {actual.get(key)!r}, not {wanted.get(key)!r}"
            for key in sorted(actual.keys() | wanted.keys())
            if actual.get(key) != wanted.get(key) and key not in ignored
        ]
    return differing


def compare(
    settings: dict, training: dict, references: dict
) -> tuple[int, str]:
    """Compare a training with the reference that has the nearest settings.

    Args:
        settings: run.json.
        training: of read_training().
        references: {name: reference}.

    Returns:
        The exit status, and a text.
    """
    differing = {
        name: differences(settings, reference)
        for name, reference in references.items()
        if reference["problem"] == settings["problem"]
    }
    if not differing:
        return NO_REFERENCE, _published(settings, references)
    name = min(differing, key=lambda name: len(differing[name]))
    if differing[name]:
        return NO_REFERENCE, (
            f"There is no reference with these settings. Compared with {name}: "
            f"{'; '.join(differing[name])}. Its command: "
            f"{references[name]['command']}"
        )
    return _compare_with(settings, training, name, references[name])


def _published(settings, references):
    """Describe the paper's figures, since there is no reference."""
    known = {reference["problem"] for reference in references.values()}
    text = (
        f"There is no reference curve for {settings['problem']}, only for "
        f"{', '.join(sorted(known)) or 'no problem'}."
    )
    name, hparams_set = settings["problem"], settings["hparams_set"]
    published = paper.table_2_row(name, hparams_set)
    if published:
        text += (
            f" The paper reports BLEU {published.bleu} on newstest2014, with "
            "an average of the last checkpoints."
        )
    row = paper.TABLE_3.get(hparams_set)
    if published and row and name == "wmt14_ende":
        text += (
            f" Without averaging, it reports perplexity {row.perplexity} and "
            f"BLEU {row.bleu} on newstest2013 (tokenized, compounds split)."
        )
    return text


def _compare_with(settings, training, name, reference):
    """Compare a training with a reference that has its settings."""
    training, not_compared = _comparable(settings, training, reference)
    shared, deviations = curve_bands.compare(training, reference)
    seeds = ", ".join(str(seed["random_seed"]) for seed in reference["seeds"])
    if not shared:
        steps = [
            entry["step"] for entry in reference["seeds"][0]["validations"]
        ]
        return NO_REFERENCE, (
            f"No validation is at a step of {name}: "
            f"{', '.join(map(str, steps))}. Set --eval_every={steps[0]}."
        )
    basis = f"{len(shared)} values compared with {name}, seeds {seeds}"
    if not deviations:
        text = f"The training agrees: {basis}, none outside its band."
        return AGREES, "\n".join([text, *not_compared])
    lines = [
        f"The training deviates: {basis}, {len(deviations)} outside their "
        "bands.",
        f"First, {deviations[0]}.",
        *(f"  {deviation}" for deviation in deviations[1:]),
        *not_compared,
    ]
    if settings["vocabulary_sha256"] != reference["vocabulary_sha256"]:
        lines.append(
            "The vocabulary is not the reference's, so perplexities differ."
        )
    first_step, _ = shared[0]
    lines.append(curve_bands.usual_cause(deviations, first_step))
    return DEVIATES, "\n".join(lines)


def _comparable(settings, training, reference):
    """Drop scores that cannot be compared with the reference's.

    Comparable scores are of the same checkpoints and of the same search.

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
        checkpoints = stored.get("checkpoints", ["?"])
        search, wanted_search = _search_differences(stored, wanted)
        if (
            settings["hparams"][averaged] != count
            or wanted["checkpoints"] != checkpoints
        ):
            lines.append(
                f"Scores of {split} are not compared: they are of "
                f"{', '.join(checkpoints)}, the reference's of "
                f"{', '.join(wanted['checkpoints'])}, an average of {count}."
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
    searches = [_decode_hparams(stored) for stored in scores]
    first, second = searches
    differing = [
        key
        for key in sorted(first.keys() | second.keys())
        if first.get(key) != second.get(key)
    ]
    return [
        ", ".join(f"{key}={search.get(key, '?')}" for key in differing)
        for search in searches
    ]


def _decode_hparams(scores):
    """Return the settings of a search, with defaults for newer settings."""
    stored = scores.get("decode_hparams")
    return stored and fields.with_defaults(hparam.DecodeHParams, stored) or {}


def record(name):
    """Write a reference of the runs that --output_dir names."""
    opened = [runs.open_run(folder) for folder in common_flags.output_dirs()]
    first = opened[0].settings
    for run in opened[1:]:
        differing = differences(run.settings, first)
        if differing or run.settings["problem"] != first["problem"]:
            raise errors.UserError(
                f"{run.output_dir} is not {opened[0].output_dir} with another "
                f"seed: {'; '.join(differing) or run.settings['problem']}."
            )
    named = ("problem", "problem_arguments", "hparams_set", "hparams")
    FOLDER.mkdir(parents=True, exist_ok=True)
    reference = {
        **{key: first[key] for key in (*named, "vocabulary_sha256")},
        "command": flags.FLAGS.command,
        "machine": flags.FLAGS.machine or harness.machine(),
        "date": str(datetime.date.today()),
        "versions": first["versions"],
        "seeds": [read_training(run) for run in opened],
    }
    json_files.write(FOLDER / f"{name}.json", reference)
    print(f"Wrote {FOLDER / name}.json.")


if __name__ == "__main__":
    flags.DEFINE_string("record", None, "Name of the reference to record.")
    flags.DEFINE_string("command", "", "Command of the trainings, to record.")
    flags.DEFINE_string("machine", None, "Description of the machine.")
    flags.adopt_module_key_flags(common_flags)
    common_flags.run(main)
