"""Is yours like ours? A training beside the curves of correct ones.

    python -m scripts.paper.reference_curves --output_dir=RUN

compares perplexity and BLEU of every validation, and scores, with those of the
same training in scripts/results/reference_curves/: number words, and Multi30k.
WMT14 has none yet; there the program prints the paper's figures. Exit status 0:
like ours; 1: an error; 2: there is nothing to compare it with; 3: it departs,
and where.

    python -m scripts.paper.reference_curves \\
        --record=NAME --output_dir=SEED1,SEED2,SEED3

makes a reference of trainings that differ in their seed alone.
"""

import datetime
import pathlib

from absl import flags

from scripts.benchmarks import harness
from scripts.paper import curve_bands
from scripts.paper.table_rows import OF_LENGTH
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
# Compared beside the headline metric of the problem.
_ALWAYS = ("bleu", "exact_match")
_HOW = ("signature", "checkpoints", "decode_hparams")
LIKE, UNKNOWN, DEPARTS = 0, 2, 3  # exit status


def main():
    if flags.FLAGS.record:
        return record(flags.FLAGS.record)
    run = runs.open_run(
        common_flags.output_dir(), common_flags.expected_settings()
    )
    references = {
        path.stem: json_files.read(path) for path in FOLDER.glob("*.json")
    }
    status, text = judge(run.settings, training(run), references)
    print(text)
    return status


def training(run) -> dict:
    """Seed, validations and scores of a run."""
    path = run.output_dir / history.VALIDATION
    if not path.exists():
        raise errors.UserError(
            f"{run.output_dir} has no validation yet ({path.name} is missing). "
            "Let the training go on."
        )
    metrics = run.problem.suite.headline, *_ALWAYS
    return {
        "random_seed": run.settings["random_seed"],
        "validations": [
            _kept(entry, "step", "perplexity", *metrics)
            for entry in json_files.read(path, _VALIDATIONS)
        ],
        "scores": {
            split: _kept(stored, *metrics, *_HOW)
            for split, stored in runs.stored_scores(run.output_dir).items()
        },
    }


def _kept(entry, *keys):
    return {key: entry[key] for key in keys if key in entry}


def differences(settings: dict, reference: dict) -> list[str]:
    """What a training was told that the reference's was not."""
    found = []
    settings, reference = (
        run_json.with_defaults(settings),
        run_json.with_defaults(reference),
    )
    for part in ("hparams", "problem_arguments"):
        mine, ours = settings[part], reference[part]
        found += [
            f"{key} is {mine.get(key)!r}, ours {ours.get(key)!r}"
            for key in sorted(mine.keys() | ours.keys())
            if mine.get(key) != ours.get(key) and key not in OF_LENGTH
        ]
    return found


def judge(settings: dict, mine: dict, references: dict) -> tuple[int, str]:
    """Compares a training with the reference that is nearest to it.

    Args:
        settings: run.json.
        mine: of training().
        references: {name: reference}.

    Returns:
        The exit status, and what to say.
    """
    same = {
        name: differences(settings, reference)
        for name, reference in references.items()
        if reference["problem"] == settings["problem"]
    }
    if not same:
        return UNKNOWN, _no_curve(settings, references)
    name = min(same, key=lambda name: len(same[name]))
    if same[name]:
        return UNKNOWN, (
            f"Nothing to compare with: {name} was trained otherwise "
            f"({'; '.join(same[name])}). Its command: "
            f"{references[name]['command']}"
        )
    return _beside(settings, mine, name, references[name])


def _no_curve(settings, references):
    """Says that there is none, and what the paper has."""
    known = ", ".join(
        sorted({reference["problem"] for reference in references.values()})
    )
    text = (
        f"There is no curve of ours for {settings['problem']}. There are some "
        f"for {known or 'no problem'}."
    )
    name, hparams_set = settings["problem"], settings["hparams_set"]
    published = paper.table_2_row(name, hparams_set)
    if published:
        text += (
            f" The paper's end: BLEU {published.bleu} on newstest2014, an "
            "average of the last checkpoints."
        )
    row = paper.TABLE_3.get(hparams_set)
    if published and row and name == "wmt14_ende":
        text += (
            f" Without averaging, perplexity {row.perplexity} and BLEU "
            f"{row.bleu} on newstest2013 (all tokenized, compounds split)."
        )
    return text


def _beside(settings, mine, name, reference):
    """The verdict on a training with the reference's settings."""
    mine, other = _comparable(settings, mine, reference)
    shared, departures = curve_bands.compare(mine, reference)
    seeds = ", ".join(str(seed["random_seed"]) for seed in reference["seeds"])
    if not shared:
        steps = [
            entry["step"] for entry in reference["seeds"][0]["validations"]
        ]
        return UNKNOWN, (
            f"No validation of yours is at a step of {name}'s: "
            f"{', '.join(map(str, steps))}. Say --eval_every={steps[0]}."
        )
    basis = f"{len(shared)} figures compared with {name}, seeds {seeds}"
    if not departures:
        like = f"Yours is like ours: {basis}, none outside its band."
        return LIKE, "\n".join([like, *other])
    lines = [
        f"Yours departs: {basis}, {len(departures)} outside their bands.",
        f"First, {departures[0]}.",
        *(f"  {departure}" for departure in departures[1:]),
        *other,
    ]
    if settings["vocabulary_sha256"] != reference["vocabulary_sha256"]:
        lines.append("Your vocabulary is not ours: perplexities differ by it.")
    first_step, _ = shared[0]
    lines.append(curve_bands.cause(departures, first_step))
    return DEPARTS, "\n".join(lines)


def _comparable(settings, mine, reference):
    """A training with the scores that the reference's may be compared with.

    They are of the same checkpoints and of the same search.

    Returns:
        The training, and a line for each split whose scores are left out.
    """
    averaged = "num_averaged_checkpoints"
    alike = settings["hparams"][averaged] == reference["hparams"][averaged]
    kept, lines = {}, []
    for split, stored in mine["scores"].items():
        ours = reference["seeds"][0]["scores"].get(split)
        if not ours:
            continue
        not_compared = f"Scores of {split} are not compared: yours are of"
        search, our_search = _search(stored, ours), _search(ours, stored)
        if not alike or ours["checkpoints"] != stored.get("checkpoints"):
            lines.append(
                f"{not_compared} "
                f"{', '.join(stored.get('checkpoints', ['?']))}, ours of "
                f"{', '.join(ours['checkpoints'])}, an average of "
                f"{reference['hparams'][averaged]}."
            )
        elif search != our_search:
            lines.append(
                f"{not_compared} {search}, ours of {our_search}. "
                "Evaluate with --decode_hparams=…."
            )
        else:
            kept[split] = stored
    return mine | {"scores": kept}, lines


def _search(stored, other):
    """Return the search of stored scores, where it differs from another's."""
    mine, its = (_decode_hparams(one) for one in (stored, other))
    return ", ".join(
        f"{key}={mine.get(key, '?')}"
        for key in sorted(mine.keys() | its.keys())
        if mine.get(key) != its.get(key)
    )


def _decode_hparams(scores):
    """Return the settings of a search, also of those that came after it."""
    stored = scores.get("decode_hparams")
    return stored and fields.with_defaults(hparam.DecodeHParams, stored) or {}


def record(name):
    """Writes a reference of the runs that --output_dir names."""
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
        "seeds": [training(run) for run in opened],
    }
    json_files.write(FOLDER / f"{name}.json", reference)
    print(f"Wrote {FOLDER / name}.json.")


if __name__ == "__main__":
    flags.DEFINE_string("record", None, "Name of a reference to write.")
    flags.DEFINE_string("command", "", "Of its trainings, for --record.")
    flags.DEFINE_string("machine", None, "What to say of it, for --record.")
    flags.adopt_module_key_flags(common_flags)
    common_flags.run(main)
