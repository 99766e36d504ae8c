"""Options of a training: what changes no result, or names a run."""

import dataclasses

from t2t_repro import fields
from t2t_repro.fields import at_least, one_of, setting
from t2t_repro.training import history


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the trainer, each a flag of the same name."""

    train_steps: int | None = setting(
        at_least(1),
        default=None,
        help="Steps to train; by default the hparams set's.",
    )
    eval_every: int | None = setting(
        at_least(1),
        default=None,
        help="Steps between validations; by default those between checkpoints.",
    )
    eval_bleu_sentences: int = setting(
        at_least(0),
        default=200,
        help="Validation sentences to translate at each validation, for the "
        "problem's headline metric; 0: none.",
    )
    save_checkpoints_steps: int | None = setting(
        at_least(1),
        default=None,
        help="Steps between checkpoints; by default the hparams set's.",
    )
    save_checkpoints_secs: int | None = setting(
        at_least(1),
        default=None,
        help="Seconds between checkpoints, instead of steps.",
    )
    keep_checkpoint_max: int = setting(
        at_least(1), default=20, help="Checkpoints to keep."
    )
    random_seed: int = setting(
        at_least(0),
        default=1,
        help="Seed of initial weights, batches and dropout.",
    )
    deterministic: bool = setting(
        default=False, help="The same bits from the same machine, slower."
    )
    xla: str = setting(
        one_of("auto", "on", "off"),
        default="auto",
        help="Compile with XLA; auto: on GPUs.",
    )
    mixed_precision: str = setting(
        one_of("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help="Type of arithmetic; auto: bfloat16 on GPUs that have it.",
    )
    distribution: str = setting(
        one_of("auto", "one_device", "mirrored", "multi_worker"),
        default="auto",
        help="Replicas; auto: the machines of TF_CONFIG where it is set, else "
        "all visible GPUs, or one device.",
    )
    logical_devices: int | None = setting(
        at_least(1),
        default=None,
        help="Split the CPU into so many devices, which stand in for the GPUs "
        "of a machine.",
    )
    max_tokens_per_replica: int | None = setting(
        at_least(1),
        default=None,
        help="Target slots in a replica's memory at once; accumulation does "
        "the rest. By default trials find it on GPUs, and CPUs take 8,192.",
    )
    warm_start_from: str | None = setting(
        default=None, help="Checkpoint whose weights a new training takes."
    )
    early_stopping_evals: int | None = setting(
        at_least(1),
        default=None,
        help="Stop when --early_stopping_metric has not improved for so many "
        "validations.",
    )
    early_stopping_metric: str = setting(
        default=history.LOSS,
        help="With --early_stopping_evals: what must improve; loss, or a "
        "metric that the problem names, of the sample that is translated.",
    )
    recompute_grad: bool = setting(
        default=False,
        help="Compute activations again for gradients: less memory, a third "
        "slower.",
    )
    profile: bool = setting(
        default=False, help="Trace steps 11 to 20 for TensorBoard's profiler."
    )

    def __post_init__(self):
        fields.check(self, "option")

    def resolved(self, hparams) -> "Options":
        """Return the options with defaults that the hparams say."""
        save_steps = self.save_checkpoints_steps
        save_steps = save_steps or hparams.save_checkpoints_steps
        return dataclasses.replace(
            self,
            train_steps=self.train_steps or hparams.train_steps,
            save_checkpoints_steps=save_steps,
            eval_every=self.eval_every or save_steps,
        )

    def sample_suite(self, suite):
        """Return the metrics of the sample: the headline, and what may stop.

        Args:
            suite: metrics.suite.Suite of the problem.
        """
        names = dict.fromkeys([suite.headline, self.early_stopping_metric])
        names.pop(history.LOSS, None)
        return suite._replace(names=tuple(names))
