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

from scripts.paper import (
    reference_curves,
    table_jobs,
    table_layout,
    table_rows,
    table_runs,
)
from scripts.release import plant_faults
from t2t_repro import errors
from t2t_repro.cli import command_line
from t2t_repro.runs.run import open_run

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
    """Return scores and curve of a training, and the name of its reference.

    Raises:
        UserError: there is no reference with its settings.
    """
    run = open_run(folder)
    choice = reference_curves.choose(run.settings, reference_curves.load())
    if not choice or choice.differing:
        raise errors.UserError(
            f"There is no reference with the settings of {folder}. Record one "
            "with scripts.paper.reference_runs, with the same flags."
        )
    return {
        "scores": {key: stored[key] for key in stored["signatures"]},
        "signatures": stored["signatures"],
        "training": reference_curves.read_training(run),
        "reference": choice.name,
    }


def deviations(result, known) -> tuple[int, list[reference_curves.Deviation]]:
    """Return how many values were compared, and those outside their bands.

    Args:
        result: of one training.
        known: {name: reference}.
    """
    reference = known[result["figures"]["reference"]]
    training, _ = reference_curves.comparable(
        result, result["figures"]["training"], reference
    )
    shared, found = reference_curves.compare_curves(training, reference)
    return len(shared), found


def summarize(results, known=None) -> list[dict]:
    """Return for each fault how many of its trainings deviate, and where.

    Args:
        results: of all rows.
        known: {name: reference}; None: those that are recorded.
    """
    known = known or reference_curves.load()
    table = []
    for name, row_results in table_layout.by_row(results).items():
        compared = [deviations(result, known) for result in row_results]
        found = [deviating for _, deviating in compared if deviating]
        table.append(
            {
                "row": name,
                "seeds": [result["seed"] for result in row_results],
                "compared": [count for count, _ in compared],
                "found": len(found),
                "first": [_as_json(deviating[0]) for deviating in found],
                "deviations": [len(deviating) for deviating in found],
                "perplexity": _last_perplexity(row_results),
            }
        )
    return table


def _as_json(deviation):
    """Return a deviation without infinity, which JSON does not have."""
    end = deviation.step == reference_curves.LAST
    return deviation._asdict() | {"step": END if end else deviation.step}


def _last_perplexity(row_results):
    return statistics.fmean(
        result["figures"]["training"]["validations"][-1]["perplexity"]
        for result in row_results
    )


def lay_out(results, known=None) -> str:
    """Format the faults in Markdown, with what reveals each first.

    Args:
        results: of all rows.
        known: as of summarize().
    """
    table = summarize(results, known)
    lines = [
        (
            entry["row"].replace("_", " "),
            f"{entry['found']} of {len(entry['seeds'])}",
            "; ".join(map(_describe, entry["first"])),
            f"{entry['perplexity']:.3f}",
        )
        for entry in table
    ]
    columns = "fault", "found", "first outside its band", "last perplexity"
    first = results[0]
    compared = {count for entry in table for count in entry["compared"]}
    names = {result["figures"]["reference"] for result in results}
    return (
        f"{table_layout.markdown(columns, lines)}\n\n"
        f"{first['problem']}, {first['hparams']['train_steps']:,} steps; "
        f"compared with {', '.join(sorted(names))} in {min(compared)} to "
        f"{max(compared)} values; {first['machine']}; {first['date']}.\n"
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
    command_line.run(main)
