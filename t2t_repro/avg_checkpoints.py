"""Average the weights of a run's last or best checkpoints.

t2t avg_checkpoints --output_dir=…
t2t avg_checkpoints --output_dir=… --best
"""

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags

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


def main() -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.runs import checkpoints, stored_run
    from t2t_repro.runs.run import best_checkpoints, last_checkpoints, open_run
    from t2t_repro.runtime import devices

    if _CHECKPOINTS.value and _BEST.value:
        raise errors.UserError(
            "--best chooses the checkpoints; got --checkpoints="
            f"{','.join(_CHECKPOINTS.value)}, too. Omit one of them."
        )
    devices.hide_gpus()
    run = open_run(common_flags.output_dir(), common_flags.expected_settings())
    paths = list(map(stored_run.require_checkpoint, _CHECKPOINTS.value))
    if not paths:
        number = _NUM_LAST.value or run.hparams.num_averaged_checkpoints
        choose = best_checkpoints if _BEST.value else last_checkpoints
        paths = choose(run, number)
    averaged = checkpoints.average(paths, run.output_dir / stored_run.AVERAGED)
    names = ", ".join(path.name for path in paths)
    print(f"Averaged {names} into {averaged}.")


if __name__ == "__main__":
    command_line.run(main, common_flags.RUN)
