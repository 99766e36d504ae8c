"""HParams: the settings of a training; DecodeHParams: those of a search.

Names are tensor2tensor's where the meaning is the same. Values live in
hparams/, each with its source; here are meaning, unit and rules.
"""

import dataclasses
import re
from typing import Any, ClassVar

from t2t_repro import fields
from t2t_repro.fields import above, at_least, fraction, one_of, setting

SCHEDULE_FACTORS = (
    "constant",
    "linear_warmup",
    "rsqrt_decay",
    "rsqrt_hidden_size",
)
_ARGUMENTS = fields.Rule(
    "items name=value, joined by ':'",
    lambda text: bool(re.fullmatch(r"(\w+=[^:]+(:\w+=[^:]+)*)?", text)),
)
_OPEN_UNIT = fields.Rule("in (0, 1)", lambda value: 0 < value < 1)


def is_own_schedule(name: str) -> bool:
    """Return whether a learning_rate_schedule is not one of Keras's."""
    return name == "noam" or set(name.split("*")) <= set(SCHEDULE_FACTORS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HParams:
    """Settings that every model's training has, checked at birth.

    A model with settings of its own subclasses it. Sets give a value to every
    field but those that came later, whose defaults mean "as before".
    """

    NOUN: ClassVar[str] = "hparam"  # what errors call a field

    model: str  # a name of registry.models
    hidden_size: int = setting(at_least(1))  # D
    label_smoothing: float = setting(fraction())  # probability given to V - 1
    optimizer: str  # class of keras.optimizers in snake case: adam, rmsprop
    # Arguments of its constructor, "momentum=0.9:nesterov=true". They win over
    # the hparams below.
    optimizer_arguments: str = setting(_ARGUMENTS, default="")
    # Given to optimizers with two betas (beta_1 and beta_2 in Keras), as Adam,
    # Nadam, LAMB, Lion, and to the Adam within Muon. Others have Keras's own
    # epsilon.
    optimizer_adam_beta1: float = setting(_OPEN_UNIT)
    optimizer_adam_beta2: float = setting(_OPEN_UNIT)
    optimizer_adam_epsilon: float = setting(above(0))
    # Times the learning rate; of matrices only. Not for adam.
    weight_decay: float = setting(at_least(0))
    clip_grad_norm: float = setting(at_least(0))  # global norm; 0: no limit
    ema_decay: float = setting(fraction())  # moving average; 0: none is kept
    # "noam", a product "a*b" of factors, or a class of
    # keras.optimizers.schedules in snake case: cosine_decay.
    learning_rate_schedule: str
    # Arguments of a Keras schedule, "alpha=0.1:warmup_steps=1000".
    learning_rate_schedule_arguments: str = setting(_ARGUMENTS, default="")
    # A factor; the initial_learning_rate of a Keras schedule.
    learning_rate_constant: float = setting(above(0))
    # Of noam and of factors. Keras schedules have arguments for theirs.
    learning_rate_warmup_steps: int = setting(at_least(1))
    batching: str = setting(one_of("bucketed", "packed"))
    batch_tokens: int = setting(at_least(1))  # target tokens of a step, in all
    batch_unit: str = setting(one_of("real_tokens", "slots"))
    # Shuffle the pairs of a bucket among its batches in every epoch.
    reshuffle_buckets: bool = False
    # Subwords with EOS: longer pairs are left out; slots of a packed row.
    max_length: int = setting(
        fields.Rule(
            "a multiple of 8", lambda value: value >= 8 and value % 8 == 0
        )
    )
    train_steps: int = setting(at_least(1))
    save_checkpoints_steps: int = setting(at_least(1))
    num_averaged_checkpoints: int = setting(at_least(1))

    def __post_init__(self):
        fields.check(self, self.NOUN)
        self._require(
            "weight_decay",
            not self.weight_decay or self.optimizer != "adam",
            "0 where optimizer is adam: adamw is Adam with weight decay",
        )
        self._require(
            "learning_rate_schedule",
            is_own_schedule(self.learning_rate_schedule)
            or re.fullmatch(r"[a-z]\w*", self.learning_rate_schedule),
            f"noam, a product (a*b) of {SCHEDULE_FACTORS}, or a class of "
            "keras.optimizers.schedules as cosine_decay",
        )
        self._require(
            "learning_rate_schedule_arguments",
            not self.learning_rate_schedule_arguments
            or not is_own_schedule(self.learning_rate_schedule),
            "empty where learning_rate_schedule is "
            f"{self.learning_rate_schedule}",
        )

    def _require(self, name, condition, rule):
        fields.require(self, self.NOUN, name, condition, rule)

    @classmethod
    def like(cls, other: "HParams", **changes: Any):
        """Build settings of this class from those of another model.

        Fields that both have are taken from `other`, save for `changes`.

        Example: GruHParams.like(tiny, model="gru", attention_size=64)
        """
        names = {field.name for field in dataclasses.fields(cls)}
        shared = {k: v for k, v in vars(other).items() if k in names}
        return cls(**shared | changes)


@dataclasses.dataclass(frozen=True)
class DecodeHParams:
    """Settings of a search. The defaults are the paper's, section 6.1."""

    NOUN: ClassVar[str] = "decode hparam"

    beam_size: int = setting(at_least(1), default=4)  # 1 is greedy search
    # Of the GNMT length penalty ((5 + length) / 6)^alpha.
    alpha: float = setting(at_least(0), default=0.6)
    # Subwords that an output may be longer than its input.
    extra_length: int = setting(at_least(0), default=50)
    # Subwords of an output with EOS, at least.
    min_length: int = setting(at_least(0), default=0)
    # No n subwords twice in an output; 0: any.
    no_repeat_ngram_size: int = setting(at_least(0), default=0)
    # Beta of GNMT's coverage penalty; 0: none. The model needs attention.
    coverage_penalty: float = setting(at_least(0), default=0.0)
    rules: str = ""  # names of registry.search_rules: "name+name"
    return_beams: bool = False  # all beams, or as many samples; not only one
    raw_scores: bool = False  # without the length and the coverage penalty
    # Above 0: draw from softmax(logits / temp).
    sampling_temp: float = setting(at_least(0), default=0.0)
    # Draw from the most probable k; -1: all.
    sampling_keep_top_k: int = setting(
        fields.Rule(
            "at least 1, or -1 for all",
            lambda value: value >= 1 or value == -1,
        ),
        default=-1,
    )
    # Draw from the most probable that have this share together.
    sampling_keep_top_p: float = setting(
        fields.Rule("in (0, 1]", lambda value: 0 < value <= 1), default=1.0
    )
    sampling_seed: int = 0
    # Slots of input and output, times beams.
    batch_tokens: int = setting(at_least(1), default=32_768)
    max_input_length: int = setting(at_least(2), default=1024)  # with EOS
    # At sentence ends, or refuse long lines by number.
    long_inputs: str = setting(
        fields.Rule(
            "split or refuse", lambda value: value in ("split", "refuse")
        ),
        default="split",
    )

    def __post_init__(self):
        fields.check(self, self.NOUN)

    @property
    def num_outputs(self) -> int:
        """Return how many outputs a sentence gets: beams, samples, or one."""
        return self.beam_size if self.return_beams else 1
