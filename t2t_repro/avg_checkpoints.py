"""Average the weights of a run's last checkpoints.

t2t avg_checkpoints --output_dir=…
"""

from absl import flags

from t2t_repro import common_flags, errors, files

_NUM_LAST = flags.DEFINE_integer(
    "num_last_checkpoints",
    None,
    "Number of checkpoints to average; by default the hparams set's.",
    lower_bound=1,
)
_CHECKPOINTS = flags.DEFINE_list(
    "checkpoints",
    [],
    "Paths of checkpoints to average, comma-separated, instead of the last.",
)


def main() -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro import run_json, runs
    from t2t_repro.training import averaging, checkpoint_files

    run = runs.open_run(
        common_flags.output_dir(), common_flags.expected_settings()
    )
    paths = [files.expand_path(path) for path in _CHECKPOINTS.value]
    if not paths:
        number = _NUM_LAST.value or run.hparams.num_averaged_checkpoints
        folder = run.output_dir / run_json.CHECKPOINTS
        paths = checkpoint_files.list_checkpoints(folder)[-number:]
        if len(paths) < number:
            raise errors.UserError(
                f"{folder} has {len(paths)} checkpoints; {number} are to be "
                "averaged. Train on, or say --num_last_checkpoints="
                f"{len(paths) or '…'}."
            )
    averaged = averaging.average(paths, run.output_dir / run_json.AVERAGED)
    names = ", ".join(path.name for path in paths)
    print(f"Averaged {names} into {averaged}.")


if __name__ == "__main__":
    common_flags.run(main, common_flags.RUN)
