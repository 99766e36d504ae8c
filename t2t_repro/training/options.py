"""Options of a training run: settings other than hyperparameters."""

import dataclasses
from typing import Any

from t2t_repro import fields, hparam
from t2t_repro.fields import at_least, one_of, setting
from t2t_repro.metrics.suite import Suite
from t2t_repro.training import history


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the trainer, each a flag of the same name."""

    train_steps: int | None = setting(
        at_least(1),
        default=None,
        help="Steps to train; the default is the hparams set's.",
    )
    eval_every: int | None = setting(
        at_least(1),
        default=None,
        help="Steps between validations; the default is the steps between "
        "checkpoints.",
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
        help="Steps between checkpoints; the default is the hparams set's.",
    )
    save_checkpoints_secs: int | None = setting(
        at_least(1),
        default=None,
        help="Seconds between checkpoints, instead of steps.",
    )
    keep_checkpoint_max: int = setting(
        at_least(1), default=20, help="Number of checkpoints to keep."
    )
    random_seed: int = setting(
        at_least(0),
        default=1,
        help="Seed of initial weights, batches and dropout.",
    )
    deterministic: bool = setting(
        default=False,
        help="Compute the same bits in every run on a machine; slower.",
    )
    xla: str = setting(
        one_of("auto", "on", "off"),
        default="auto",
        help="Whether to compile with XLA; auto: on GPUs.",
    )
    mixed_precision: str = setting(
        one_of("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help="Precision of arithmetic; auto: bfloat16 on GPUs that have it.",
    )
    distribution: str = setting(
        one_of("auto", "one_device", "mirrored", "multi_worker"),
        default="auto",
        help="Distribution strategy; auto: multi_worker if TF_CONFIG is set, "
        "else all visible GPUs, or one device.",
    )
    logical_devices: int | None = setting(
        at_least(1),
        default=None,
        help="Number of logical devices into which to split the CPU. They "
        "stand in for the GPUs of a machine.",
    )
    max_tokens_per_replica: int | None = setting(
        at_least(1),
        default=None,
        help="Target slots in a replica's memory at once; a larger share of a "
        "batch is accumulated. By default trials find the limit on GPUs; on "
        "CPUs it is 8,192.",
    )
    warm_start_from: str | None = setting(
        default=None,
        help="Checkpoint whose weights a new training starts from.",
    )
    early_stopping_evals: int | None = setting(
        at_least(1),
        default=None,
        help="Number of validations without improvement of "
        "--early_stopping_metric after which to stop.",
    )
    early_stopping_metric: str = setting(
        default=history.LOSS,
        help="With --early_stopping_evals: what must improve: loss, or a "
        "metric of the problem, measured on the translated sample.",
    )
    recompute_grad: bool = setting(
        default=False,
        help="Recompute activations in the backward pass: less memory, a third "
        "slower.",
    )
    profile: bool = setting(
        default=False, help="Trace steps 11 to 20 for TensorBoard's profiler."
    )

    def __post_init__(self) -> None:
        fields.check(self, "option")

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    def resolved(self, hparams: hparam.HParams) -> "ResolvedOptions":
        """Return the options with defaults from the hparams filled in."""
        save_steps = self.save_checkpoints_steps
        save_steps = save_steps or hparams.save_checkpoints_steps
        steps = {
            "train_steps": self.train_steps or hparams.train_steps,
            "save_checkpoints_steps": save_steps,
            "eval_every": self.eval_every or save_steps,
        }
        return ResolvedOptions(**vars(self) | steps)

    def sample_suite(self, suite: Suite) -> Suite:
        """Return the metrics of the translated sample.

        They are the problem's headline and the early-stopping metric.

        Args:
            suite: the metrics of the problem.
        """
        names = dict.fromkeys([suite.headline, self.early_stopping_metric])
        names.pop(history.LOSS, None)
        return suite._replace(names=tuple(names))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedOptions(Options):
    """Options whose numbers of steps are known."""

    train_steps: int
    eval_every: int
    save_checkpoints_steps: int
