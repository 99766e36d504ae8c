"""Averages the weights of a training's last checkpoints (section 6.1).

python -m t2t_repro.avg_checkpoints --output_dir=…
"""

from absl import flags

from t2t_repro import common_flags, errors, files, run_json, runs
from t2t_repro.training import averaging, checkpoints

_NUM_LAST = flags.DEFINE_integer(
    "num_last_checkpoints",
    None,
    "How many of the last to average; by default the hparams set's.",
    lower_bound=1,
)
_CHECKPOINTS = flags.DEFINE_list(
    "checkpoints", [], "Paths to average, instead of the last ones."
)
flags.adopt_module_key_flags(common_flags)


def main():
    run = runs.open_run(
        common_flags.output_dir(), common_flags.expected_settings()
    )
    paths = [files.path(path) for path in _CHECKPOINTS.value]
    if not paths:
        number = _NUM_LAST.value or run.hparams.num_averaged_checkpoints
        folder = run.output_dir / run_json.CHECKPOINTS
        paths = checkpoints.list_checkpoints(folder)[-number:]
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
    common_flags.run(main)
