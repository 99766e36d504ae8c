"""Notes at the start of a training about settings that fit badly together."""

from collections.abc import Iterator

from t2t_repro import hparam, registry
from t2t_repro.training.options import Options


def notes(
    hparams_set: str,
    hparams: hparam.HParams,
    options: Options,
    num_pairs: int,
    generated_length: int,
) -> Iterator[str]:
    """Yield a sentence for each pair of settings that fit badly together.

    Args:
        hparams_set: name of the hparams set.
        hparams: settings of the model and of its training.
        options: other settings of the training.
        num_pairs: training pairs that are used.
        generated_length: the problem's max_length, with which the data was
            generated.
    """
    if better := registry.hparams_sets.better_suited(hparams_set, num_pairs):
        yield (
            f"--hparams_set={better} suits a corpus of {num_pairs:,} pairs "
            f"better than {hparams_set}."
        )
    if hparams.max_length > generated_length:
        yield (
            f"hparams allow max_length={hparams.max_length}, but the data has "
            f"no training pairs above {generated_length} subwords. To have "
            "longer ones, say --problem_args=max_length=… and name another "
            "--data_dir."
        )
    averaged, kept = (
        hparams.num_averaged_checkpoints,
        options.keep_checkpoint_max,
    )
    if averaged > kept:
        yield (
            f"avg_checkpoints averages the last {averaged} checkpoints "
            f"(num_averaged_checkpoints), but --keep_checkpoint_max={kept} "
            f"keeps {kept}. To average {averaged}, keep as many."
        )
    steps = options.train_steps or hparams.train_steps
    is_own = hparam.is_own_schedule(hparams.learning_rate_schedule)
    if steps != hparams.train_steps and not is_own:
        yield (
            f"--train_steps={steps} does not change the schedule "
            f"{hparams.learning_rate_schedule}, which is for "
            f"{hparams.train_steps:,} steps by default. --hparams=train_steps="
            f"{steps} changes both."
        )
