"""Average the weights of a run's last or best checkpoints.

t2t avg_checkpoints --output_dir=…
t2t avg_checkpoints --output_dir=… --best
"""

import pathlib
from typing import TYPE_CHECKING

from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import at_least, flag
from t2t_repro.io import storage
from t2t_repro.runs import checkpoint_files

if TYPE_CHECKING:
    from t2t_repro.runs.run import Run


@common_flags.options
class Options:
    """Options of avg_checkpoints, each a flag of the same name."""

    num_last_checkpoints: int | None = flag(
        None,
        "Number of checkpoints to average; by default the "
        "hparams set's or, of the last ones, as many as there are.",
        at_least(1),
    )
    best: bool = flag(
        False,
        "Average the best checkpoints by the run's validations, not the last.",
    )
    checkpoints: common_flags.Paths = flag(
        (),
        "Paths of checkpoints to average, comma-separated, instead of the "
        "last.",
    )


def main(chosen: tuple["Run", list[pathlib.Path]]) -> None:
    from t2t_repro.runs import checkpoints
    from t2t_repro.runtime import devices

    devices.hide_gpus()
    run, paths = chosen
    averaged = checkpoints.average(paths, run.averaged_folder)
    names = ", ".join(path.name for path in paths)
    print(f"Averaged {names} into {averaged}.")
    if run.hparams.ema_decay:
        print(
            "Note: these are the weights of the steps, not the moving averages "
            "of ema_decay, which validations measure."
        )
    flags = ["--split=test"]
    if checkpoint_files.list_checkpoints(run.averaged_folder)[-1] != averaged:
        flags.append(f"--checkpoint_path={storage.name_of(averaged)}")
    common_flags.print_next("evaluate", *flags)


def _choose():
    options = common_flags.field_values(Options)
    common_flags.refuse_ignored(
        {"checkpoints": ("best", "num_last_checkpoints")}
    )
    run = common_flags.open_run()
    if options.checkpoints:
        paths = run.checkpoints(options.checkpoints)
        run.require_same_model(paths)
        return run, paths
    choose = run.best_checkpoints if options.best else run.last_checkpoints
    return run, choose(options.num_last_checkpoints)


if __name__ == "__main__":
    command_line.run(main, common_flags.RUN, _choose)
