"""Options of a training run, and its task: a model's settings and data."""

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from t2t_repro import errors, hparam
from t2t_repro.io import fields
from t2t_repro.io.fields import at_least, flag, one_of
from t2t_repro.metrics.metric import Suite
from t2t_repro.runs import checkpoint_files, history

if TYPE_CHECKING:
    from t2t_repro.data.batch_plan import Plan
    from t2t_repro.data.corpus import Corpus
    from t2t_repro.data.subword_sampling import SubwordSampler
    from t2t_repro.text.vocabulary_pair import Vocabularies

_ALL = 2**31 - 1  # sentences: no split has more


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(fields.Settings):
    """Options of the trainer, each a flag of the same name."""

    NOUN: ClassVar[str] = "option"

    train_steps: int | None = flag(
        None, "Steps to train; the default is the hparams set's.", at_least(1)
    )
    eval_every: int | None = flag(
        None,
        "Steps between validations; 0: no validation. The default is the steps "
        "between checkpoints.",
        at_least(0),
    )
    eval_pairs: int | None = flag(
        None,
        "Validation pairs whose loss is measured, evenly spaced; the default "
        "is all.",
        at_least(1),
    )
    eval_bleu_sentences: int | None = flag(
        None,
        "Validation sentences to translate at each validation, for the "
        "problem's headline metric; 0: none. The default is 200, or the whole "
        "split with --keep_best_checkpoints.",
        at_least(0),
    )
    save_checkpoints_steps: int | None = flag(
        None,
        "Steps between checkpoints; the default is the hparams set's.",
        at_least(1),
    )
    save_checkpoints_secs: int | None = flag(
        None, "Seconds between checkpoints, instead of steps.", at_least(1)
    )
    keep_checkpoint_max: int = flag(
        checkpoint_files.MAX_KEPT,
        "Number of the last checkpoints to keep.",
        at_least(1),
    )
    keep_best_checkpoints: int | None = flag(
        None,
        "Number of the best checkpoints to keep beside the last, by the "
        "problem's headline metric, or by the loss if no sentence is "
        "translated; 0: none. The default is that of the run, or 0.",
        at_least(0),
    )
    random_seed: int = flag(
        1, "Seed of initial weights, batches and dropout.", at_least(0)
    )
    deterministic: bool = flag(
        False, "Compute the same bits in every run on a machine; slower."
    )
    xla: str = flag(
        "auto",
        "Whether to compile with XLA; auto: on GPUs.",
        one_of("auto", "on", "off"),
    )
    mixed_precision: str = flag(
        "auto",
        "Precision of arithmetic; auto: bfloat16 on GPUs that have it.",
        one_of("auto", "float32", "bfloat16", "float16"),
    )
    distribution: str = flag(
        "auto",
        "Distribution strategy; auto: multi_worker if TF_CONFIG names a task, "
        "else all visible GPUs, or one device.",
        one_of("auto", "one_device", "mirrored", "multi_worker"),
    )
    logical_devices: int | None = flag(
        None,
        "Number of logical devices into which to split the CPU. They stand in "
        "for the GPUs of a machine.",
        at_least(1),
    )
    max_tokens_per_replica: int | None = flag(
        None,
        "Slots of one side, that with longer rows, in a replica's memory at "
        "once; a larger share of a batch is accumulated. By default trials "
        "find the limit on GPUs; on CPUs it is 8,192.",
        at_least(1),
    )
    warm_start_from: str | None = flag(
        None,
        "Checkpoint whose weights a new training starts from.",
        fields.Constraint("a checkpoint", bool),
    )
    early_stopping_evals: int | None = flag(
        None,
        "Number of validations without improvement of --early_stopping_metric "
        "after which to stop.",
        at_least(1),
    )
    early_stopping_metric: str = flag(
        history.LOSS,
        "With --early_stopping_evals: what must improve: loss, accuracy, or a "
        "metric of the problem, measured on the translated sample; headline: "
        "the first of these metrics.",
    )
    metrics: str | None = flag(
        None,
        "Metrics of translations, joined by commas, in place of the problem's, "
        "the first one as the headline, also in later commands for this run. "
        "Each validation measures all of them.",
    )
    recompute_grad: bool = flag(
        False,
        "Recompute activations in the backward pass: less memory, a third "
        "slower.",
    )
    callbacks: str | None = flag(
        None,
        "Registered callbacks, joined by +, with their arguments, such as "
        "wandb:project=x+csv. csv, wandb and mlflow are built in.",
    )
    profile: bool = flag(
        False,
        "Trace steps 11 to 15 for TensorBoard's profiler, which is the package "
        "xprof.",
    )
    dry_run: bool = flag(
        False,
        "Print the summary of what would be trained, and exit. Missing data is "
        "generated.",
    )

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, for run.json."""
        return {
            field.name: str(value) if isinstance(value, os.PathLike) else value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    def resolved(self, hparams: hparam.HParams) -> "ResolvedOptions":
        """Return the options with defaults from the hparams filled in."""
        given = {k: v for k, v in vars(self).items() if v is not None}
        save_steps = hparams.save_checkpoints_steps
        defaults = {
            "train_steps": hparams.train_steps,
            "save_checkpoints_steps": save_steps,
            "eval_every": given.get("save_checkpoints_steps", save_steps),
            "eval_bleu_sentences": _ALL if self.keep_best_checkpoints else 200,
            "keep_best_checkpoints": 0,
        }
        return ResolvedOptions(**defaults | given)

    def sample_suite(self, suite: Suite) -> Suite:
        """Return the metrics of the translated sample.

        They are those that the user has named, or of the problem's the headline
        and the early-stopping metric.
        """
        if self.metrics:
            return suite
        names = dict.fromkeys([suite.headline, self.stopping_metric(suite)])
        known = [name for name in names if name in suite.names]
        return suite._replace(names=tuple(known))

    def stopping_metric(self, suite: Suite) -> str:
        """Return the early-stopping metric, with "headline" resolved."""
        if self.early_stopping_metric == history.HEADLINE:
            return suite.headline
        return self.early_stopping_metric


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedOptions(Options):
    """Options whose numbers of steps and sentences are known."""

    train_steps: int
    eval_every: int
    eval_bleu_sentences: int
    save_checkpoints_steps: int
    keep_best_checkpoints: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("keep_best_checkpoints", "early_stopping_evals"):
            if not self.eval_every and getattr(self, name):
                raise errors.UserError(
                    f"--{name}={getattr(self, name)} needs validations; got "
                    "--eval_every=0. Omit one of them."
                )
        if self.keep_best_checkpoints and (
            self.save_checkpoints_secs
            or self.eval_every % self.save_checkpoints_steps
        ):
            between = (
                f"--save_checkpoints_secs={self.save_checkpoints_secs}"
                if self.save_checkpoints_secs
                else f"--save_checkpoints_steps={self.save_checkpoints_steps}"
            )
            raise errors.UserError(
                "--keep_best_checkpoints compares checkpoints by their "
                "validations, so that each validation needs a checkpoint; got "
                f"--eval_every={self.eval_every} and {between}. Make "
                "--eval_every a multiple of --save_checkpoints_steps."
            )

    def validates(self, step: int) -> bool:
        """Return whether a validation follows `step`."""
        if not self.eval_every:
            return False
        return step % self.eval_every == 0 or step == self.train_steps

    def validations_after(self, step: int) -> int:
        """Count the validations that follow the steps after `step`."""
        if not self.eval_every or step >= self.train_steps:
            return 0
        count = self.train_steps // self.eval_every - step // self.eval_every
        return count + (self.train_steps % self.eval_every > 0)


class Task(NamedTuple):
    """Settings of a model and the data that it learns from."""

    hparams: hparam.HParams
    vocabularies: "Vocabularies"
    plan: "Plan"  # batches of corpora["train"]
    corpora: Mapping[str, "Corpus"]  # "train" and "validation"
    # Of the validation sample.
    search: hparam.DecodeHParams = hparam.DecodeHParams()
    suite: Suite = Suite()  # the problem's metrics
    sampler: "SubwordSampler | None" = None  # of training text
    # {"en-de": validation pairs} of a many-to-many problem, in order.
    directions: Mapping[str, int] = {}
