"""HParams and DecodeHParams: their rules, and settings of earlier versions."""

import dataclasses
import json
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from t2t_repro import errors, hparam
from t2t_repro.hparams import transformer
from t2t_repro.hparams.transformer import TransformerHParams
from t2t_repro.io import fields

BASE = dataclasses.asdict(transformer.base())
SCHEDULE_RULE = "noam, a product (a*b) of ('constant', 'linear_warmup', "


def base(**changes):
    return TransformerHParams(**BASE | changes)


def test_optimizer_arguments_are_one_value():
    text = "optimizer=sgd,optimizer_arguments=momentum=0.9:nesterov=true"
    changed = base().override(text)
    assert changed.optimizer == "sgd"
    assert changed.optimizer_arguments == "momentum=0.9:nesterov=true"


def test_weight_decay_is_accepted_except_for_adam():
    for name in ("adamw", "adafactor", "sgd"):
        assert base(optimizer=name, weight_decay=0.1).weight_decay == 0.1


@pytest.mark.parametrize(
    "name",
    "hidden_size filter_size num_heads num_hidden_layers num_encoder_layers "
    "num_decoder_layers attention_key_channels attention_value_channels "
    "max_relative_position max_length".split(),
)
def test_absurd_size_of_a_stored_model_is_refused(name):
    with pytest.raises(
        errors.UserError, match=f"hparam {name} must be at most .*10{'0' * 8}"
    ):
        fields.from_dict(TransformerHParams, BASE | {name: 10**9})


RULES = [  # what a setting must be, other values, settings
    (
        "at least 1",
        (0,),
        "hidden_size filter_size num_heads num_hidden_layers batch_tokens "
        "learning_rate_warmup_steps train_steps save_checkpoints_steps "
        "num_averaged_checkpoints",
    ),
    (
        "at least 0",
        (-1,),
        "attention_key_channels attention_value_channels weight_decay "
        "max_relative_position restricted_attention clip_grad_norm "
        "num_encoder_layers unigram_alpha",
    ),
    (
        "in [0, 1)",
        (1.0, -0.1),
        "layer_prepostprocess_dropout attention_dropout relu_dropout "
        "label_smoothing ema_decay",
    ),
    ("in (0, 1)", (0.0, 1.0), "optimizer_adam_beta1 optimizer_adam_beta2"),
    (
        "above 0",
        (0.0,),
        "optimizer_adam_epsilon learning_rate_constant norm_epsilon",
    ),
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


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        (name, value, rule)
        for rule, values, names in RULES
        for name in names.split()
        for value in values
    ],
)
def test_bad_hparam_is_refused_with_its_rule(name, value, rule):
    with pytest.raises(errors.UserError) as raised:
        base(**{name: value})
    message = str(raised.value)
    assert message.startswith(f"hparam {name} must be {rule}")
    assert message.endswith(f"; got {value!r}.")


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("hidden_size", 512.0, "int"),
        ("hidden_size", "512", "int"),
        ("num_heads", True, "int"),
        ("model", None, "str"),
        ("label_smoothing", "0.1", "float"),
        ("label_smoothing", False, "float"),
    ],
)
def test_hparam_of_another_type_is_refused(name, value, kind):
    with pytest.raises(errors.UserError) as raised:
        base(**{name: value})
    assert str(raised.value) == (
        f"{name} must be of type {kind}; got {value!r}."
    )


def test_int_is_accepted_as_float():
    assert base(label_smoothing=0).label_smoothing == 0


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("beam_size", 0, "at least 1"),
        ("alpha", -0.1, "at least 0"),
        ("alpha", float("nan"), "at least 0"),
        ("extra_length", -1, "at least 0"),
        ("min_length", -1, "at least 0"),
        ("no_repeat_ngram_size", -1, "at least 0"),
        ("coverage_penalty", -0.1, "at least 0"),
        ("sampling_temp", -1.0, "at least 0"),
        ("sampling_temp", float("nan"), "at least 0"),
        ("sampling_keep_top_k", 0, "at least 1, or -1 for all"),
        ("sampling_keep_top_p", 0.0, "in (0, 1]"),
        ("sampling_keep_top_p", 1.1, "in (0, 1]"),
        ("batch_tokens", 0, "at least 1"),
        ("max_input_length", 1, "at least 2"),
    ],
)
def test_bad_decode_hparam_is_refused_with_its_rule(name, value, rule):
    with pytest.raises(errors.UserError) as raised:
        hparam.DecodeHParams(**{name: value})
    assert str(raised.value) == (
        f"decode hparam {name} must be {rule}; got {value!r}."
    )


def test_decode_hparams_default_to_the_papers():
    settings = hparam.DecodeHParams()
    assert (settings.beam_size, settings.alpha) == (4, 0.6)
    assert settings.extra_length == 50


def test_override_replaces_and_checks_values():
    values = base().override("hidden_size=256,batching=packed")
    assert values == base(hidden_size=256, batching="packed")
    with pytest.raises(errors.UserError, match="hidden_size must be an even"):
        base().override("hidden_size=100")


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


@hypothesis.settings(deadline=None, max_examples=50, derandomize=True)
@hypothesis.given(
    changes=st.fixed_dictionaries(
        {
            "num_heads": st.just(2),
            "hidden_size": st.integers(1, 10**4).map(lambda n: 4 * n),
            "label_smoothing": st.floats(0, 1, exclude_max=True),
            "optimizer_adam_epsilon": st.floats(1e-12, 1e-3),
            "max_length": st.integers(1, 1000).map(lambda n: 8 * n),
            "batching": st.sampled_from(["bucketed", "packed"]),
        }
    )
)
def test_hparams_round_trip_through_json(changes):
    values = base(**changes)
    text = json.dumps(vars(values))
    assert fields.from_dict(TransformerHParams, json.loads(text)) == values
