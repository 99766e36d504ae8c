"""Comparison of a training with the curves of reference trainings.

    python -m scripts.paper.reference_curves --output_dir=RUN

It compares perplexity and BLEU of every validation, and scores, with those of
the same training in scripts/results/reference_curves/. There are references for
number words and Multi30k; for WMT14 the program prints the paper's figures.
reference_runs records them. Exit status 0: the training agrees; 1: an error; 2:
there is no reference; 3: the training deviates.
"""

from absl import flags

from scripts.paper import curve_bands, references
from t2t_repro.cli import command_line, common_flags
from t2t_repro.evaluation.published import TABLE_3, table_2_row
from t2t_repro.runs.run import open_run

AGREES, NO_REFERENCE, DEVIATES = 0, 2, 3  # exit status


def main():
    run = open_run(common_flags.output_dir(), common_flags.expected_settings())
    status, text = compare(
        run.settings, references.read_training(run), references.load()
    )
    print(text)
    return status


def compare(settings: dict, training: dict, known: dict) -> tuple[int, str]:
    """Compare a training with the reference that has the nearest settings.

    Args:
        settings: run.json.
        training: of references.read_training().
        known: {name: reference}.

    Returns:
        The exit status, and a text.
    """
    choice = references.choose(settings, known)
    if not choice:
        return NO_REFERENCE, _published(settings, known)
    if choice.differing:
        return NO_REFERENCE, (
            f"There is no reference with these settings. Compared with "
            f"{choice.name}: {'; '.join(choice.differing)}. Its command: "
            f"{choice.reference['command']}"
        )
    return _compare_with(settings, training, choice.name, choice.reference)


def _published(settings, known):
    """Describe the paper's figures, since there is no reference."""
    problems = {reference["problem"] for reference in known.values()}
    text = (
        f"There is no reference curve for {settings['problem']}, only for "
        f"{', '.join(sorted(problems)) or 'no problem'}."
    )
    name, hparams_set = settings["problem"], settings["hparams_set"]
    published = table_2_row(name, hparams_set)
    if published:
        text += (
            f" The paper reports BLEU {published.bleu} on newstest2014, with "
            "an average of the last checkpoints."
        )
    row = TABLE_3.get(hparams_set)
    if published and row and name == "wmt14_ende":
        text += (
            f" Without averaging, it reports perplexity {row.perplexity} and "
            f"BLEU {row.bleu} on newstest2013 (tokenized, compounds split)."
        )
    return text


def _compare_with(settings, training, name, reference):
    """Compare a training with a reference that has its settings."""
    training, notes = references.comparable(settings, training, reference)
    ours, theirs = map(references.precision, (settings, reference))
    if ours != theirs:
        notes.append(f"The reference is in {theirs}, the training in {ours}.")
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
    lines.append(curve_bands.usual_cause(deviations, first_step))
    return DEVIATES, "\n".join(lines)


if __name__ == "__main__":
    flags.adopt_module_key_flags(common_flags)
    command_line.run(main)
