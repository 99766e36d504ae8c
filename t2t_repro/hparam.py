"""HParams: every setting of a training; DecodeHParams: of a search.

Names are tensor2tensor's where the meaning is the same. Values live in
hparams/, each with its source; here are meaning, unit and validity.
"""

import dataclasses
import difflib
import json
import sys
import typing

from t2t_repro import errors

SCHEDULE_FACTORS = (
    "constant",
    "linear_warmup",
    "rsqrt_decay",
    "rsqrt_hidden_size",
)
CHOICES = {
    "attention_type": ("dot_product", "dot_product_unscaled", "additive"),
    "pos": ("sinusoids", "timing", "emb", "none"),
    # n: layer normalisation, d: dropout, a: addition of what came in.
    "layer_preprocess_sequence": ("none", "n"),
    "layer_postprocess_sequence": ("dan", "da"),
    "optimizer": ("adam", "adafactor", "adamw", "lion"),
    "batching": ("bucketed", "packed"),
    "batch_unit": ("real_tokens", "slots"),
}
# (rule, what it asks of a value, the fields that it holds for). NaN keeps none.
RANGES = (
    (
        "at least 1",
        lambda value: value >= 1,
        "hidden_size filter_size num_heads num_hidden_layers batch_tokens "
        "learning_rate_warmup_steps train_steps save_checkpoints_steps "
        "num_averaged_checkpoints",
    ),
    (
        "at least 0",
        lambda value: value >= 0,
        "attention_key_channels attention_value_channels "
        "max_relative_position restricted_attention weight_decay "
        "clip_grad_norm",
    ),
    (
        "in [0, 1)",
        lambda value: 0 <= value < 1,
        "layer_prepostprocess_dropout attention_dropout relu_dropout "
        "label_smoothing ema_decay",
    ),
    (
        "in (0, 1)",
        lambda value: 0 < value < 1,
        "optimizer_adam_beta1 optimizer_adam_beta2",
    ),
    (
        "above 0",
        lambda value: value > 0,
        "optimizer_adam_epsilon learning_rate_constant",
    ),
    (
        "a multiple of 8",
        lambda value: value >= 8 and value % 8 == 0,
        "max_length",
    ),
)


@dataclasses.dataclass(frozen=True)
class HParams:
    """Settings of a training, checked at birth. No defaults: sets say all."""

    model: str  # a name of registry.models
    hidden_size: int  # D
    filter_size: int  # F
    num_heads: int  # H
    num_hidden_layers: int  # of the encoder, and again of the decoder
    attention_key_channels: int  # of all heads together; 0: hidden_size
    attention_value_channels: int  # of all heads together; 0: hidden_size
    attention_type: str  # one of CHOICES
    max_relative_position: int  # of self-attention; 0: absolute positions only
    restricted_attention: int  # self-attention sees |i - j| < this; 0: all
    pos: str  # one of CHOICES: the paper's and T2T's sinusoids, learned, none
    shared_embedding_and_softmax_weights: bool  # one matrix, or three
    layer_preprocess_sequence: str  # one of CHOICES
    layer_postprocess_sequence: str  # one of CHOICES
    layer_prepostprocess_dropout: float  # on sublayer outputs and embeddings
    attention_dropout: float  # on attention's weights
    relu_dropout: float  # on the hidden layer of the feed-forward network
    label_smoothing: float  # probability given to the other V - 1 subwords
    optimizer: str  # one of CHOICES; adafactor reads none of the next four
    optimizer_adam_beta1: float  # of adam, adamw and lion
    optimizer_adam_beta2: float  # of adam, adamw and lion
    optimizer_adam_epsilon: float  # of adam and adamw
    weight_decay: float  # of adamw and lion, times the learning rate
    clip_grad_norm: float  # most of the whole gradient's norm; 0: no limit
    ema_decay: float  # of a moving average of the weights; 0: none is kept
    learning_rate_schedule: str  # "noam", or a product "a*b" of factors
    learning_rate_constant: float  # the factor "constant", or times noam
    learning_rate_warmup_steps: int
    batching: str  # one of CHOICES
    batch_tokens: int  # target tokens of a step, over the whole job
    batch_unit: str  # one of CHOICES: what batch_tokens counts
    max_length: int  # subwords with EOS; longer pairs are left out; row length
    train_steps: int
    save_checkpoints_steps: int
    num_averaged_checkpoints: int

    def __post_init__(self):
        check_types(self)
        for rule, holds, names in RANGES:
            for name in names.split():
                self._require(name, holds(getattr(self, name)), rule)
        for name, choices in CHOICES.items():
            self._require(
                name, getattr(self, name) in choices, f"one of {choices}"
            )
        self._require(
            "hidden_size",
            self.hidden_size % (2 * self.num_heads) == 0,
            f"an even multiple of num_heads ({self.num_heads})",
        )
        for name in ("attention_key_channels", "attention_value_channels"):
            self._require(
                name,
                getattr(self, name) % self.num_heads == 0,
                f"a multiple of num_heads ({self.num_heads})",
            )
        self._require(
            "max_relative_position",
            not self.max_relative_position or self.attention_type != "additive",
            "0 where attention_type is additive: it is of dot products",
        )
        self._require(
            "weight_decay",
            not self.weight_decay or self.optimizer in ("adamw", "lion"),
            f"0 where optimizer is {self.optimizer}: adamw and lion have it",
        )
        self._require(
            "learning_rate_schedule",
            self.learning_rate_schedule == "noam"
            or set(self.learning_rate_schedule.split("*"))
            <= set(SCHEDULE_FACTORS),
            f"noam, or a product (a*b) of {SCHEDULE_FACTORS}",
        )

    def _require(self, name, condition, rule):
        if not condition:
            raise errors.UserError(
                f"hparam {name} must be {rule}; got {getattr(self, name)!r}."
            )


DECODE_RANGES = (  # as RANGES, of DecodeHParams
    (
        "at least 0",
        lambda value: value >= 0,
        "alpha extra_length min_length no_repeat_ngram_size sampling_temp",
    ),
    ("at least 1", lambda value: value >= 1, "beam_size batch_tokens"),
    ("at least 2", lambda value: value >= 2, "max_input_length"),
    (
        "at least 1, or -1 for all",
        lambda value: value >= 1 or value == -1,
        "sampling_keep_top_k",
    ),
    ("in (0, 1]", lambda value: 0 < value <= 1, "sampling_keep_top_p"),
    (
        "split or refuse",
        lambda value: value in ("split", "refuse"),
        "long_inputs",
    ),
)


@dataclasses.dataclass(frozen=True)
class DecodeHParams:
    """Settings of a search. The defaults are the paper's, section 6.1."""

    beam_size: int = 4  # 1 is greedy search
    alpha: float = 0.6  # of the GNMT length penalty ((5 + length) / 6)^alpha
    extra_length: int = 50  # output may be this much longer than the input
    min_length: int = 0  # subwords of an output with EOS, at least
    no_repeat_ngram_size: int = 0  # no n subwords twice in an output; 0: any
    return_beams: bool = False  # all beams, or as many samples; not only one
    raw_scores: bool = False  # scores not divided by the length penalty
    sampling_temp: float = 0.0  # above 0: draw from softmax(logits / temp)
    sampling_keep_top_k: int = -1  # draw from the likeliest so many; -1: all
    sampling_keep_top_p: float = 1.0  # from the likeliest that have this share
    sampling_seed: int = 0
    batch_tokens: int = 32_768  # slots of input and output, times beams
    max_input_length: int = 1024  # subwords with EOS
    long_inputs: str = "split"  # at sentence ends, or "refuse" them by line

    def __post_init__(self):
        check_types(self)
        for rule, holds, names in DECODE_RANGES:
            for name in names.split():
                value = getattr(self, name)
                if not holds(value):  # NaN keeps no rule
                    raise errors.UserError(
                        f"decode hparam {name} must be {rule}; got {value!r}."
                    )

    @property
    def num_outputs(self) -> int:
        """What a sentence gets: all beams, as many samples, or the one best."""
        return self.beam_size if self.return_beams else 1


def check_types(values):
    """Raises a UserError that names the first field of another type.

    Of the types that JSON has, too. TensorFlow counts with 32 bits.
    """
    hints = typing.get_type_hints(type(values))
    for name in (field.name for field in dataclasses.fields(values)):
        value, kind = getattr(values, name), hints[name]
        if kind not in (bool, int, float, str):
            continue
        if type(value) is not kind and (kind, type(value)) != (float, int):
            rule = f"of type {kind.__name__}"
        elif kind is int and not -(1 << 31) <= value < 1 << 31:
            rule = "of 32 bits"
        elif kind is float and abs(value) > sys.float_info.max:
            rule = "finite"
        else:
            continue
        raise errors.UserError(f"{name} must be {rule}; got {value!r}.")


def parse(cls, text):
    """ "a=1,b=x" -> {"a": 1, "b": "x"}, typed by the dataclass `cls`.

    Raises:
        UserError: a key that `cls` lacks (near names are suggested), a value
            of another type, or a part that is not key=value.
    """
    hints = typing.get_type_hints(cls)  # types may be written as strings
    types = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    values = {}
    for part in filter(None, (text or "").split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise errors.UserError(
                f"Expected key=value,key=value; got {part!r} in {text!r}."
            )
        check_keys(cls, [key])
        if key in values:
            raise errors.UserError(f"{key} is given twice in {text!r}.")
        values[key] = _convert(key, value, types[key])
    return values


def check_keys(cls, keys):
    """Raises a UserError that names the first key that `cls` lacks."""
    known = [field.name for field in dataclasses.fields(cls)]
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise errors.UserError(
                f"{cls.__name__} has no {key!r}.{hint} "
                f"Known: {', '.join(known) or 'none'}."
            )


def _convert(key, value, kind):
    try:
        if kind is bool:
            return {"true": True, "false": False}[value.lower()]
        return kind(value)
    except (KeyError, ValueError):
        raise errors.UserError(
            f"{key} must be of type {kind.__name__}; got {value!r}."
        ) from None


def override(values, text):
    """A copy of a dataclass with the settings of "a=1,b=2" replaced."""
    return dataclasses.replace(values, **parse(type(values), text))


def from_dict(cls, stored):
    """A dataclass from JSON's dict; unknown or missing keys are named."""
    names = {field.name for field in dataclasses.fields(cls)}
    if names != set(stored):
        raise errors.UserError(
            f"These stored settings are not this version's {cls.__name__}: "
            f"unknown {sorted(set(stored) - names)}, "
            f"missing {sorted(names - set(stored))}."
        )
    return cls(**stored)


def to_json(values):
    """A dataclass as indented JSON, fields in their order."""
    return json.dumps(dataclasses.asdict(values), indent=2)
