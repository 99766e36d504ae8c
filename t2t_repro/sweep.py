"""Train variants and seeds, and compare them in a table.

    t2t sweep --problem=multi30k_ende --hparams_set=small,mine --usr_dir=… \\
        --seeds=1,2,3 --output_dir=…
    t2t sweep --config=sweep.yaml

Each set of --hparams_set is a row, as it is and with each --variant. The rows
are a queue: run the command again to resume, and finished ones are not trained
again. The tables are RESULTS_DIR/table.txt, .md, .tex and .json.
"""

from absl import flags

from t2t_repro import errors, prepare
from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import at_least, flag
from t2t_repro.data.settings import Data
from t2t_repro.io import storage
from t2t_repro.sweeps import rows


@common_flags.options
class Options:
    """Options of sweep, each a flag of the same name."""

    variant: common_flags.Repeated = flag(
        (),
        "Hparams of further rows, NAME:HPARAM=VALUE,HPARAM=VALUE; may be "
        "repeated. In a file for --config, {NAME: {HPARAM: VALUE}}.",
    )
    seeds: common_flags.List = flag((), "Seeds of each row (default: 1).")
    baseline: str | None = flag(
        None, "Row to compare the others with (default: the first)."
    )
    metric: str | None = flag(
        None, "Metric to compare (default: the headline of the problem)."
    )
    margin: float = flag(
        0.5, "A smaller difference of the metric is none.", at_least(0)
    )
    split: str = flag("test", "Split to score.")
    average: bool = flag(
        False, "Score the average of each training's last checkpoints."
    )
    budget_flops: float | None = flag(
        None,
        "FLOPs of each training, in place of train_steps: rows whose steps "
        "cost more have fewer.",
        at_least(1),
    )
    row: int | None = flag(
        None,
        "Train only the row of this number, and write no table: a task of an "
        "array job.",
        at_least(1),
    )
    list_: bool = flag(False, "List the numbers of the rows, and exit.")

    def read_seeds(self) -> list[int]:
        """Return the seeds, each once."""
        seeds = self.seeds or ("1",)
        for seed in seeds:
            is_whole = seed.isascii() and seed.isdigit() and len(seed) < 11
            if not is_whole or int(seed) >= 2**31:
                raise errors.UserError(
                    f"A seed is a whole number below 2^31; got --seeds={seed}."
                )
        return list(dict.fromkeys(map(int, seeds)))


common_flags.define_fields(Data, ("raw_dir", "num_workers"))
common_flags.define_fields(rows.Options)


def main(inputs: tuple[rows.Table, rows.Job]) -> None:
    table, job = inputs
    options = common_flags.field_values(Options)
    trainings = table.rows([], options.read_seeds())
    if options.list_:
        for number, row in enumerate(trainings, 1):
            state = _state(row, job, options)
            print(f"{number:4}  {row}{state}")
        return
    from t2t_repro.sweeps import running, tables

    job.datagen()
    if options.budget_flops:
        table = running.with_flops(table, job, options.budget_flops)
        trainings = table.rows([], options.read_seeds())
    if options.row:
        running.run_rows([trainings[options.row - 1]], job)
        return
    compared = tables.Comparison(
        job.results_dir, job.score, table.base_row, options.margin
    )
    running.run_all(trainings, table, job, compared.write)
    print(f"\nWrote {job.results_dir}/table.txt, .md, .tex and .json.")


def _state(row, job, options):
    """Return whether a row is finished, as text for --list."""
    if not (path := job.path(row)).exists():
        return ""
    try:
        if not options.budget_flops:  # whose steps only the data tells
            rows.read_finished(path, job.settings(row))
    except errors.UserError:
        return "  has a file that does not fit"
    return "  finished"


def _read_inputs():
    options = common_flags.field_values(Options)
    problem = common_flags.problem()
    sets = common_flags.required("hparams_set").split(",")
    variants = rows.cross(sets, options.variant, flags.FLAGS.hparams)
    splits = [name for name in problem.splits if name != "train"]
    if options.split not in splits:
        raise errors.UserError(
            f"--split is one of {', '.join(splits)}; got {options.split}."
            f"{errors.hint(options.split, splits)}"
        )
    base = options.baseline or next(iter(variants))
    rows.select(variants, [base])
    count = len(variants) * len(options.read_seeds())
    if options.row and options.row > count:
        raise errors.UserError(
            f"There are {count} rows; got --row={options.row}. --list has them."
        )
    shared = common_flags.field_values(rows.Options)
    output_dir = storage.local_path(common_flags.required("output_dir"))
    results_dir = storage.local_path(shared.results_dir or "")
    for name, folder in ("output", output_dir), ("results", results_dir):
        if url := storage.url_of(folder):
            raise errors.UserError(
                f"A sweep needs local folders; got --{name}_dir={url}."
            )
    job = rows.Job(
        problem,
        options.split,
        options.average,
        prepare.data_folder(common_flags.data_dir(), problem),
        output_dir.absolute(),
        shared,
        rows.require_metric(problem, options.metric),
        common_flags.given("problem", "problem_args", "usr_dir", "data_dir"),
        common_flags.given("raw_dir", "num_workers"),
        f"t2t sweep {common_flags.portable('config', 'list', 'row')}",
    )
    shared.check(problem)
    return rows.Table(variants, base), job


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Required": ("problem", "hparams_set", "output_dir"),
            "Settings": ("problem_args", "hparams"),
            "Data": ("data_dir", "raw_dir", "num_workers"),
        },
        _read_inputs,
    )
