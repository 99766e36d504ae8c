"""HParams and DecodeHParams: their rules, and settings of earlier versions."""

import dataclasses
import re

import pytest

from t2t_repro import errors, hparam
from t2t_repro.hparams import transformer
from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.io import fields

BASE = dataclasses.asdict(transformer.base())
SCHEDULE_RULE = "noam, a product (a*b) of ('constant', 'linear_warmup', "


def base(**changes):
    return TransformerHParams(**BASE | changes)


def test_override_replaces_values_and_checks_them():
    text = "optimizer=sgd,optimizer_arguments=momentum=0.9:nesterov=true"
    changed = base().override(f"{text},weight_decay=0.1,label_smoothing=0")
    assert changed == base(
        optimizer="sgd",
        optimizer_arguments="momentum=0.9:nesterov=true",
        weight_decay=0.1,
        label_smoothing=0,
    )
    with pytest.raises(errors.UserError, match="hidden_size must be an even"):
        base().override("hidden_size=100")


@pytest.mark.parametrize(
    "name",
    "hidden_size filter_size num_heads num_hidden_layers num_encoder_layers "
    "num_decoder_layers attention_key_channels attention_value_channels "
    "max_relative_position max_length".split(),
)
def test_absurd_size_of_a_stored_model_is_refused(name):
    message = f"hparam {name} must be at most .*10{'0' * 8}"
    with pytest.raises(errors.UserError, match=message):
        fields.from_dict(TransformerHParams, BASE | {name: 10**9})


RULES = [  # what a setting must be, other values, settings
    ("at least 1", (0,), "hidden_size num_heads train_steps"),
    ("at least 0", (-1,), "max_relative_position clip_grad_norm"),
    ("in [0, 1)", (1.0, -0.1), "attention_dropout label_smoothing"),
    ("in (0, 1)", (0.0, 1.0), "optimizer_adam_beta1"),
    ("above 0", (0.0,), "learning_rate_constant norm_epsilon"),
    ("in [0, 1]", (1.1, -0.1), "bpe_dropout"),
    ("a multiple of 8", (100, 0, -8), "max_length"),
    ("an even multiple of num_heads (8)", (520, 500), "hidden_size"),
    (
        SCHEDULE_RULE,
        ("Cosine", "", "constant * cosine", "constant*noam"),
        "learning_rate_schedule",
    ),
    ("a multiple of num_heads (8)", (100,), "attention_key_channels"),
    ("a multiple of num_heads (8)", (4,), "attention_value_channels"),
    ("0 where optimizer is adam: adamw is Adam", (0.1,), "weight_decay"),
    (
        "items name=value, joined by",
        ("momentum", "a=1:"),
        "optimizer_arguments",
    ),
    (
        "empty where learning_rate_schedule is noam",
        ("alpha=1",),
        "learning_rate_schedule_arguments",
    ),
]


NAN = float("nan")
RULES_OF_SEARCH = [
    ("at least 1", (0,), "beam_size batch_tokens"),
    ("at least 0", (-1,), "extra_length no_repeat_ngram_size"),
    ("at least 0", (-0.1, NAN), "alpha coverage_penalty"),
    ("at least 1, or -1 for all", (0,), "sampling_keep_top_k"),
    ("in (0, 1]", (0.0, 1.1), "sampling_keep_top_p"),
    ("at least 2", (1,), "max_input_length"),
]


@pytest.mark.parametrize(
    ("build", "name", "value", "rule"),
    [
        (build, name, value, rule)
        for build, rules in (
            (base, RULES),
            (hparam.DecodeHParams, RULES_OF_SEARCH),
        )
        for rule, values, names in rules
        for name in names.split()
        for value in values
    ],
)
def test_bad_setting_is_refused_with_its_rule(build, name, value, rule):
    with pytest.raises(errors.UserError) as raised:
        build(**{name: value})
    noun = "hparam" if build is base else "decode hparam"
    message = str(raised.value)
    assert message.startswith(f"{noun} {name} must be {rule}")
    assert message.endswith(f"; got {value!r}.")


def test_from_dict_names_unknown_and_missing_keys():
    stored = dataclasses.asdict(base())
    stored["hiden_size"] = stored.pop("hidden_size")
    message = "TransformerHParams: unknown ['hiden_size'], missing "
    message = re.escape(message + "['hidden_size'].")
    with pytest.raises(errors.UserError, match=message):
        fields.from_dict(TransformerHParams, stored)


def test_like_copies_the_shared_fields():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Gru(hparam.HParams):
        num_gates: int = fields.setting(fields.at_least(1))

    values = Gru.like(base(hidden_size=128), model="gru", num_gates=3)
    assert (values.model, values.hidden_size) == ("gru", 128)
    assert values.num_gates == 3
    assert values.train_steps == BASE["train_steps"]
    with pytest.raises(errors.UserError, match="num_gates must be at least 1"):
        Gru.like(base(), num_gates=0)
