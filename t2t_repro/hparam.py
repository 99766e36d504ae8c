"""HParams: settings of a training run; DecodeHParams: settings of a search.

Names are tensor2tensor's where the meaning is the same. Values live in
hparams/, each with its source; this module has meaning, unit and rules.
"""

import dataclasses
import os
import pathlib
import re
from typing import Any, ClassVar, TypeVar

from t2t_repro.io import arguments, fields, files
from t2t_repro.io.fields import (
    above,
    at_least,
    at_most,
    fraction,
    one_of,
    setting,
)

_HParams = TypeVar("_HParams", bound="HParams")
SCHEDULE_FACTORS = (
    "constant",
    "linear_warmup",
    "rsqrt_decay",
    "rsqrt_normalized_decay",
    "cosdecay",
    "rsqrt_hidden_size",
)
# Bounds far above any real model: a run.json with larger ones would occupy the
# machine without end before it fails. The widest published layers have some
# 20,000 (hidden) and 80,000 (inner) units, and the deepest models 1,000 layers.
MAX_WIDTH = at_most(1 << 17)
MAX_INNER_WIDTH = at_most(1 << 20)
MAX_LAYERS = at_most(2_000)
MAX_POSITIONS = at_most(1 << 24)
_ARGUMENTS = fields.Constraint(
    "items name=value, joined by ':'",
    lambda text: bool(re.fullmatch(r"(\w+=[^:]+(:\w+=[^:]+)*)?", text)),
)
_OPEN_UNIT = fields.Constraint("in (0, 1)", lambda value: 0 < value < 1)


def of_model(hparams: "HParams") -> dict[str, Any]:
    """Return the hparams that trained weights are used with, {name: value}."""
    of_training = {field.name for field in dataclasses.fields(HParams)}
    of_training -= {"model", "hidden_size"}
    return {
        name: value
        for name, value in dataclasses.asdict(hparams).items()
        if name not in of_training and not name.endswith("dropout")
    }


def is_own_schedule(name: str) -> bool:
    """Return whether a learning_rate_schedule is not one of Keras's."""
    return name == "noam" or set(factors(name)) <= set(SCHEDULE_FACTORS)


def factors(schedule: str) -> list[str]:
    """Return the names of a product; tensor2tensor ends some with " *"."""
    return [name.strip() for name in schedule.strip("* ").split("*")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HParams(fields.Settings):
    """Settings of training any model, checked on creation.

    A model with settings of its own subclasses it. Sets give a value to every
    field except later ones, whose defaults mean "as before".
    """

    NOUN: ClassVar[str] = "hparam"

    model: str = setting(help="Name of a model; --registry_help lists them.")
    hidden_size: int = setting(
        at_least(1),
        MAX_WIDTH,
        help="Width D of the embeddings and of every layer.",
    )
    label_smoothing: float = setting(
        fraction(),
        help="Probability that is spread over the other V - 1 subwords.",
    )
    loss: str = setting(
        fields.Constraint(
            "names joined by +, each with arguments :name=value",
            lambda text: all(
                re.fullmatch(r"\w+(:\w+=.+)?", item)
                for item in arguments.split(text) or [""]
            ),
        ),
        default="cross_entropy",
        help="What is minimized: cross_entropy, with label_smoothing, or a "
        "registered loss with its arguments: focal:gamma=2. Several, joined by "
        "+, are added.",
    )
    optimizer: str = setting(
        help="Class of keras.optimizers in snake case, such as adam, adamw or "
        "rmsprop; or a registered optimizer."
    )
    optimizer_arguments: str = setting(
        _ARGUMENTS,
        default="",
        help="Arguments of the optimizer: momentum=0.9:nesterov=true. They win "
        "over the other hparams.",
    )
    # Optimizers without two betas have Keras's own epsilon.
    optimizer_adam_beta1: float = setting(
        _OPEN_UNIT,
        help="beta_1 of optimizers with two betas: Adam, Nadam, LAMB, Lion, "
        "and the Adam within Muon.",
    )
    optimizer_adam_beta2: float = setting(
        _OPEN_UNIT, help="beta_2 of the same optimizers."
    )
    optimizer_adam_epsilon: float = setting(
        above(0), help="epsilon of the same optimizers."
    )
    weight_decay: float = setting(
        at_least(0),
        help="Decoupled weight decay of matrices, times the learning rate. "
        "Must be 0 for adam; adamw takes it.",
    )
    clip_grad_norm: float = setting(
        at_least(0), help="Clip gradients to this global norm; 0: no clipping."
    )
    ema_decay: float = setting(
        fraction(),
        help="Decay of a moving average of the weights; 0: no average.",
    )
    learning_rate_schedule: str = setting(
        help="noam, a product of factors such as "
        "constant*linear_warmup*rsqrt_decay, a class of "
        "keras.optimizers.schedules in snake case: cosine_decay, or a "
        "registered schedule."
    )
    learning_rate_schedule_arguments: str = setting(
        _ARGUMENTS,
        default="",
        help="Arguments of a schedule of Keras, or a registered one: "
        "alpha=0.1:warmup_steps=1000.",
    )
    learning_rate_constant: float = setting(
        above(0),
        help="Factor of the learning rate; initial_learning_rate of a Keras "
        "schedule.",
    )
    # Keras schedules take their warm-up from their arguments.
    learning_rate_warmup_steps: int = setting(
        at_least(1), help="Warm-up steps of noam and of the factors."
    )
    learning_rate_decay_steps: int = setting(
        at_least(1),
        default=5_000,  # tensor2tensor's
        help="Half the period of the factor cosdecay, in steps.",
    )
    batching: str = setting(
        one_of("bucketed", "packed"),
        help="How pairs share a batch: pairs of similar length, padded, or "
        "several pairs in a row.",
    )
    batch_tokens: int = setting(
        at_least(1), help="Target tokens of a step, over all replicas."
    )
    batch_unit: str = setting(
        one_of("real_tokens", "slots"),
        help="What batch_tokens counts: real_tokens are the target subwords, "
        "slots also include padding.",
    )
    reshuffle_buckets: bool = setting(
        default=False,
        help="Shuffle the pairs of a bucket among its batches in every epoch.",
    )
    proportional_rows: bool = setting(
        default=False,
        help="Make packed rows longer on the side with more subwords, in "
        "proportion.",
    )
    separate_row_lengths: bool = setting(
        default=False,
        help="Give each side of packed rows and of buckets a length of its "
        "own, for corpora whose inputs and targets differ in length, such as "
        "summaries and classes.",
    )
    num_buckets: int = setting(
        at_least(0),
        default=0,
        help="Number of buckets, at most, for the lengths of both sides, which "
        "are chosen to leave little padding; 0: a fixed list of lengths, of "
        "the longer side.",
    )
    bpe_dropout: float = setting(
        fields.Constraint("in [0, 1]", lambda value: 0 <= value <= 1),
        default=0.0,
        help="Probability of leaving out a merge of training text, with a bpe "
        "vocabulary; 0: train on the stored segmentation.",
    )
    unigram_alpha: float = setting(
        at_least(0),
        default=0.0,
        help="Sample segmentations of training text by their probability to "
        "this power, with a unigram vocabulary; 0: train on the stored one.",
    )
    subword_sampling_sides: str = setting(
        one_of("both", "inputs", "targets"),
        default="both",
        help="Sides to which bpe_dropout or unigram_alpha applies.",
    )
    max_length: int = setting(
        fields.Constraint(
            "a multiple of 8", lambda value: value >= 8 and value % 8 == 0
        ),
        MAX_POSITIONS,
        help="Maximum number of subwords of a training example, with EOS: "
        "longer pairs are dropped. Length of a packed row.",
    )
    train_steps: int = setting(at_least(1), help="Number of training steps.")
    save_checkpoints_steps: int = setting(
        at_least(1), help="Steps between checkpoints."
    )
    num_averaged_checkpoints: int = setting(
        at_least(1), help="Last checkpoints that avg_checkpoints averages."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            "weight_decay",
            not self.weight_decay or self.optimizer != "adam",
            "0 where optimizer is adam: adamw is Adam with weight decay",
        )
        self.require(
            "learning_rate_schedule",
            is_own_schedule(self.learning_rate_schedule)
            or re.fullmatch(r"[a-z]\w*", self.learning_rate_schedule),
            f"noam, a product (a*b) of {SCHEDULE_FACTORS}, or, in place of "
            "tensor2tensor's other factors, a class of "
            "keras.optimizers.schedules such as cosine_decay",
        )
        self.require(
            "learning_rate_schedule_arguments",
            not self.learning_rate_schedule_arguments
            or not is_own_schedule(self.learning_rate_schedule),
            "empty where learning_rate_schedule is "
            f"{self.learning_rate_schedule}",
        )

    @classmethod
    def like(cls: type[_HParams], other: "HParams", **changes: Any) -> _HParams:
        """Build settings of this class from those of another model.

        Fields that both have are taken from `other`, save for `changes`.

        Example: GruHParams.like(tiny, model="gru", attention_size=64)
        """
        names = {field.name for field in dataclasses.fields(cls)}
        shared = {k: v for k, v in vars(other).items() if k in names}
        return cls(**shared | changes)


@dataclasses.dataclass(frozen=True)
class DecodeHParams(fields.Settings):
    """Settings of a search. The defaults are the paper's, section 6.1."""

    NOUN: ClassVar[str] = "decode hparam"

    beam_size: int = setting(
        at_least(1), default=4, help="Beams; 1 is greedy search."
    )
    alpha: float = setting(
        at_least(0),
        default=0.6,
        help="Exponent of the length penalty, ((5 + length) / 6)^alpha, which "
        "is GNMT's.",
    )
    length_penalty_offset: int = setting(
        at_least(0),
        default=5,
        help="Offset o of the length penalty, ((o + length) / (o + 1))^alpha; "
        "0: length^alpha.",
    )
    beam_search: str = setting(
        default="tensor2tensor",
        help="Search with several beams, as NAME:key=value: tensor2tensor's, "
        "which ends when no output can become better, that of Hugging Face's "
        "generate(), or another; --registry_help lists them.",
    )
    extra_length: int = setting(
        at_least(0),
        default=50,
        help="Subwords that an output may be longer than its input.",
    )
    min_length: int = setting(
        at_least(0), default=0, help="Fewest subwords of an output, with EOS."
    )
    no_repeat_ngram_size: int = setting(
        at_least(0),
        default=0,
        help="Length of the n-grams that an output never repeats; 0: any may "
        "be repeated.",
    )
    coverage_penalty: float = setting(
        at_least(0),
        default=0.0,
        help="beta of GNMT's coverage penalty, for models with attention; 0: "
        "none.",
    )
    rules: str = setting(
        default="",
        help="Search rules, as name:key=value:key=value, joined by +; "
        "--registry_help lists them.",
    )
    rerank: str = setting(
        default="",
        help="Reranker of all beams or samples, NAME:key=value, such as "
        "mbr:metric=bleu; --registry_help lists them.",
    )
    return_beams: bool = setting(
        default=False,
        help="Return all beams, or as many samples, instead of the best one.",
    )
    distinct: bool = setting(
        default=False,
        help="With return_beams: of several outputs with the same text, as of "
        "other subwords, return the best one.",
    )
    raw_scores: bool = setting(
        default=False,
        help="Return log-probabilities, without length and coverage penalty.",
    )
    sampling_temp: float = setting(
        fields.Constraint(
            "0, or from 0.000001 to 1,000,000",
            lambda value: value == 0 or 1e-6 <= value <= 1e6,
        ),
        default=0.0,
        help="Sample from softmax(logits / sampling_temp); 0: beam search.",
    )
    sampling_keep_top_k: int = setting(
        fields.Constraint(
            "at least 1, or -1 for all", lambda value: value >= 1 or value == -1
        ),
        default=-1,
        help="Sample from the k most probable subwords only.",
    )
    sampling_keep_top_p: float = setting(
        fields.Constraint("in (0, 1]", lambda value: 0 < value <= 1),
        default=1.0,
        help="Sample from the most probable subwords that have this "
        "probability together.",
    )
    sampling_seed: int = setting(default=0, help="Seed of the samples.")
    xla: str = setting(
        one_of("auto", "on", "off"),
        default="auto",
        help="Whether XLA compiles the search: auto does so on GPUs, and on "
        "CPUs after many single sentences.",
    )
    allow_empty_source: bool = setting(
        default=False,
        help="Decode lines without text, too, as of a language model; false: "
        "they stay blank.",
    )
    batch_tokens: int = setting(
        at_least(1),
        default=32_768,
        help="Size of a batch: input and output length with padding, times "
        "beams.",
    )
    max_input_length: int = setting(
        at_least(2),
        default=1024,
        help="Maximum number of subwords of an input, with EOS.",
    )
    long_inputs: str = setting(
        one_of("split", "refuse"),
        default="split",
        help="What to do with longer inputs: split them at sentence ends, or "
        "refuse them by line number.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            "rerank",
            not self.rerank or self.beam_size > 1,
            "empty where beam_size is 1, with which there is one candidate",
        )

    @property
    def rule_texts(self) -> list[str]:
        """Name and arguments of each search rule: "name:key=value"."""
        return arguments.split(self.rules)

    @property
    def paths(self) -> dict[str, pathlib.Path]:
        """Files and folders that arguments of rules and reranker name."""
        found = {
            value: files.expand_path(value)
            for text in (*self.rule_texts, self.rerank)
            for value in re.findall("=([^:]+)", text)
        }
        # pathlib's exists() raises an error for texts too long for a name.
        return {n: path for n, path in found.items() if os.path.exists(path)}

    @property
    def rule_files(self) -> dict[str, pathlib.Path]:
        """Files that arguments of rules name.

        Those of rerankers, such as language=de, may be files by chance.
        """
        named = dataclasses.replace(self, rerank="").paths
        return {name: path for name, path in named.items() if path.is_file()}

    @property
    def checksums(self) -> dict[str, str]:
        """{name: sha256} of the files that arguments of rules name."""
        return {
            name: files.sha256(path) for name, path in self.rule_files.items()
        }

    @property
    def num_outputs(self) -> int:
        """Number of outputs of a sentence: beams, samples, or one."""
        return self.beam_size if self.return_beams else 1
