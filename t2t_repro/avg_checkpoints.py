"""Average the weights of a run's last or best checkpoints.

t2t avg_checkpoints --output_dir=…
t2t avg_checkpoints --output_dir=… --best
"""

import pathlib
from typing import TYPE_CHECKING

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags

if TYPE_CHECKING:
    from t2t_repro.runs.run import Run

_NUM_LAST = flags.DEFINE_integer(
    "num_last_checkpoints",
    None,
    "Number of checkpoints to average; by default the hparams set's.",
    lower_bound=1,
)
_BEST = flags.DEFINE_bool(
    "best",
    False,
    "Average the best checkpoints by the run's validations, not the last.",
)
_CHECKPOINTS = common_flags.define_list(
    "checkpoints",
    "Paths of checkpoints to average, comma-separated, instead of the last.",
    of_paths=True,
)


def main(chosen: tuple["Run", list[pathlib.Path]]) -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.runs import checkpoints
    from t2t_repro.runtime import devices

    devices.hide_gpus()
    run, paths = chosen
    averaged = checkpoints.average(paths, run.averaged_folder)
    names = ", ".join(path.name for path in paths)
    print(f"Averaged {names} into {averaged}.")


def _choose():
    """Return the run, and its checkpoints that the flags choose."""
    if _CHECKPOINTS.value and _BEST.value:
        raise errors.UserError(
            "--best chooses the checkpoints; got --checkpoints="
            f"{','.join(_CHECKPOINTS.value)}, too. Omit one of them."
        )
    run = common_flags.open_run()
    if _CHECKPOINTS.value:
        return run, run.checkpoints(_CHECKPOINTS.value)
    number = _NUM_LAST.value or run.hparams.num_averaged_checkpoints
    choose = run.best_checkpoints if _BEST.value else run.last_checkpoints
    return run, choose(number)


if __name__ == "__main__":
    command_line.run(main, common_flags.RUN, _choose)
