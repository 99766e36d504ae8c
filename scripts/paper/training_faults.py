"""Known faults of a training, and whether reference curves reveal them.

    python -m scripts.paper.training_faults --problem=number_words_ende \\
        --hparams_set=tiny --output_dir=FOLDER --seed=1 --seed=2 --seed=3

Each fault of training_faults.txt is planted in a copy of the project, which
trains and is compared with the reference of the same settings. The table lists
the step and the metric of the first value outside of its band, or that there is
none. Its first row has no fault. reference_runs records the references;
table3_variations describes how to resume and the other flags.
"""

import math
import pathlib
import shutil
import statistics

from absl import flags

from scripts.paper import (
    curve_bands,
    references,
    table_jobs,
    table_layout,
    table_rows,
    table_runs,
)
from scripts.release import plant_faults
from t2t_repro import common_flags, errors, runs

FAULTS = pathlib.Path(__file__).with_suffix(".txt")
NO_FAULT = "no_fault"
END = "end"  # the "step" of scores, which are computed after training


def main():
    faults = plant_faults.read_faults(FAULTS.read_text("utf-8"))
    if misfits := plant_faults.find_misfits(faults, plant_faults.ROOT):
        raise errors.UserError("\n".join(misfits))
    job = table_jobs.job(split="test", averaged=True)
    copies = job.output_dir / "code"
    rows = {NO_FAULT: table_rows.Variant()} | {
        fault.name: table_rows.Variant(code=copies / fault.name)
        for fault in faults
    }

    def plant(selected):
        for fault in faults:
            if fault.name in {row.name for row in selected}:
                plant_fault(fault, copies / fault.name)

    table_runs.run_all(
        table_rows.Variants(rows, NO_FAULT),
        job,
        summarize,
        lay_out,
        measure,
        plant,
    )


def plant_fault(fault: plant_faults.Fault, folder: pathlib.Path) -> None:
    """Write a copy of the project with a fault, instead of an earlier one."""
    shutil.rmtree(folder, ignore_errors=True)
    plant_faults.copy_project(folder)
    path = folder / fault.file
    text = path.read_text("utf-8")
    path.write_text(text.replace(fault.old, fault.new), "utf-8")


def measure(folder, stored) -> dict:
    """Return the values of a training that are outside of their bands.

    Raises:
        UserError: there is no reference with its settings.
    """
    run = runs.open_run(folder)
    settings = run.settings
    choice = references.choose(settings, references.load())
    if not choice or choice.differing:
        raise errors.UserError(
            f"There is no reference with the settings of {folder}. Record one "
            "with scripts.paper.reference_runs, with the same flags."
        )
    training = references.read_training(run)
    compared, _ = references.comparable(settings, training, choice.reference)
    shared, deviations = curve_bands.compare(compared, choice.reference)
    return {
        "scores": {key: stored[key] for key in stored["signatures"]},
        "signatures": stored["signatures"],
        "validations": training["validations"],
        "reference": choice.name,
        "compared": len(shared),
        "deviations": [
            deviation._asdict() | {"step": _step(deviation)}
            for deviation in deviations
        ],
    }


def _step(deviation):
    """Return a step as JSON has it, which has no infinity."""
    return END if deviation.step == curve_bands.LAST else deviation.step


def summarize(results) -> list[dict]:
    """Return for each fault how many of its trainings deviate, and where."""
    table = []
    for name, row_results in table_layout.by_row(results).items():
        found = [
            result["figures"]["deviations"]
            for result in row_results
            if result["figures"]["deviations"]
        ]
        table.append(
            {
                "row": name,
                "seeds": [result["seed"] for result in row_results],
                "found": len(found),
                "first": [deviations[0] for deviations in found],
                "deviations": [len(deviations) for deviations in found],
                "perplexity": _last_perplexity(row_results),
            }
        )
    return table


def _last_perplexity(row_results):
    return statistics.fmean(
        result["figures"]["validations"][-1]["perplexity"]
        for result in row_results
    )


def lay_out(results) -> str:
    """Format the faults in Markdown, with what reveals each first."""
    lines = [
        (
            entry["row"].replace("_", " "),
            f"{entry['found']} of {len(entry['seeds'])}",
            ", ".join(map(_describe, entry["first"])),
            f"{entry['perplexity']:.3f}",
        )
        for entry in summarize(results)
    ]
    columns = "fault", "found", "first outside its band", "last perplexity"
    first = results[0]
    compared = {result["figures"]["compared"] for result in results}
    names = {result["figures"]["reference"] for result in results}
    return (
        f"{table_layout.markdown(columns, lines)}\n\n"
        f"{first['problem']}, hparams set {first['hparams_set']}, "
        f"{first['hparams']['train_steps']:,} steps; compared with "
        f"{', '.join(sorted(names))} in {min(compared)} to {max(compared)} "
        f"values; {first['machine']}; {first['date']}.\n"
    )


def _describe(first):
    """Format a deviation: "step 50: perplexity 90.1 (55.0 to 82.3)"."""
    place = "end" if first["step"] == END else f"step {first['step']:,}"
    value, low, high = first["value"], first["low"], first["high"]
    digits = 3 if math.fabs(value) < 10 else 1
    return (
        f"{place}: {first['metric']} {value:.{digits}f} "
        f"({low:.{digits}f} to {high:.{digits}f})"
    )


if __name__ == "__main__":
    table_rows.define_flags()
    flags.adopt_module_key_flags(table_rows)
    common_flags.run(main)
