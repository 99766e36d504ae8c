"""Settings: what they check, how they are parsed, and the registered sets."""

import dataclasses
import json
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from t2t_repro import errors, fields, hparam, registry
from t2t_repro.hparams.transformer_hparams import TransformerHParams

PAPER = {  # arXiv 1706.03762, sections 3 and 5
    "model": "transformer",
    "hidden_size": 512,
    "filter_size": 2048,
    "num_heads": 8,
    "num_hidden_layers": 6,
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "attention_type": "dot_product",
    "max_relative_position": 0,
    "restricted_attention": 0,
    "pos": "sinusoids",
    "shared_embedding_and_softmax_weights": True,
    "layer_preprocess_sequence": "none",
    "layer_postprocess_sequence": "dan",
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "label_smoothing": 0.1,
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.98,
    "optimizer_adam_epsilon": 1e-9,
    "weight_decay": 0.0,
    "clip_grad_norm": 0.0,
    "ema_decay": 0.0,
    "learning_rate_schedule": "noam",
    "learning_rate_constant": 1.0,
    "learning_rate_warmup_steps": 4000,
    "batching": "bucketed",
    "reshuffle_buckets": True,
    "batch_tokens": 25_000,
    "batch_unit": "real_tokens",
    "max_length": 256,
    "train_steps": 100_000,
    "save_checkpoints_steps": 1_500,
    "num_averaged_checkpoints": 5,
}
LATER = {  # fields that came later, whose defaults mean "as before"
    field.name: field.default
    for field in dataclasses.fields(TransformerHParams)
    if field.name not in PAPER
}
SCHEDULE_RULE = "noam, a product (a*b) of ('constant', 'linear_warmup', "


@dataclasses.dataclass(frozen=True)
class Toy:
    size: int = 1
    rate: float = 0.5
    name: str = ""
    loud: bool = False


def base(**changes):
    return TransformerHParams(**PAPER | changes)


def test_base_has_the_values_of_the_paper():
    registry.load_definitions()
    values = dataclasses.asdict(registry.build_hparams("base"))
    assert values == PAPER | LATER


def test_arguments_of_an_optimizer_are_one_value():
    text = "optimizer=sgd,optimizer_arguments=momentum=0.9:nesterov=true"
    changed = fields.override(base(), text)
    assert changed.optimizer == "sgd"
    assert changed.optimizer_arguments == "momentum=0.9:nesterov=true"


def test_weight_decay_is_for_all_but_adam():
    for name in ("adamw", "adafactor", "sgd"):
        assert base(optimizer=name, weight_decay=0.1).weight_decay == 0.1


def test_a_set_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        base().hidden_size = 1


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        *(
            (name, value, "at least 1")
            for name in (
                "hidden_size filter_size num_heads num_hidden_layers "
                "batch_tokens learning_rate_warmup_steps train_steps "
                "save_checkpoints_steps num_averaged_checkpoints"
            ).split()
            for value in (0, -8)
        ),
        *(
            (name, -1, "at least 0")
            for name in (
                "attention_key_channels attention_value_channels "
                "max_relative_position restricted_attention weight_decay "
                "clip_grad_norm"
            ).split()
        ),
        *(
            (name, value, "in [0, 1)")
            for name in (
                "layer_prepostprocess_dropout attention_dropout relu_dropout "
                "label_smoothing ema_decay"
            ).split()
            for value in (1.0, -0.1, float("nan"))
        ),
        *(
            (name, value, "in (0, 1)")
            for name in ("optimizer_adam_beta1", "optimizer_adam_beta2")
            for value in (0.0, 1.0, float("nan"))
        ),
        *(
            (name, value, "above 0")
            for name in ("optimizer_adam_epsilon", "learning_rate_constant")
            for value in (0.0, -1.0, float("nan"))
        ),
        ("hidden_size", 520, "an even multiple of num_heads (8)"),
        ("hidden_size", 500, "an even multiple of num_heads (8)"),
        ("attention_key_channels", 100, "a multiple of num_heads (8)"),
        ("attention_value_channels", 4, "a multiple of num_heads (8)"),
        ("batching", "sorted", "one of ('bucketed', 'packed')"),
        ("batch_unit", "sentences", "one of ('real_tokens', 'slots')"),
        ("attention_type", "dot", "one of ('dot_product', 'dot_product_un"),
        ("pos", "learned", "one of ('sinusoids', 'timing', 'emb', 'none')"),
        ("layer_preprocess_sequence", "da", "one of ('none', 'n')"),
        ("layer_postprocess_sequence", "n", "one of ('dan', 'da')"),
        ("weight_decay", 0.1, "0 where optimizer is adam: adamw is Adam with"),
        ("optimizer_arguments", "momentum", "items name=value, joined by"),
        ("optimizer_arguments", "a=1:", "items name=value, joined by"),
        ("learning_rate_schedule", "Cosine", SCHEDULE_RULE),
        ("learning_rate_schedule", "", SCHEDULE_RULE),
        ("learning_rate_schedule", "constant * cosine", SCHEDULE_RULE),
        ("learning_rate_schedule", "constant*noam", SCHEDULE_RULE),
        (
            "learning_rate_schedule_arguments",
            "alpha=1",
            "empty where learning_rate_schedule is noam",
        ),
        ("ffn_activation", "tanh", "one of ('relu', 'gelu', 'silu', 'glu',"),
        ("num_encoder_layers", -1, "at least 0"),
        ("norm_epsilon", 0.0, "above 0"),
        ("max_length", 100, "a multiple of 8"),
        ("max_length", 0, "a multiple of 8"),
        ("max_length", -8, "a multiple of 8"),
    ],
)
def test_a_bad_value_is_named_with_its_field_and_rule(name, value, rule):
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
def test_a_value_of_another_type_is_refused(name, value, kind):
    with pytest.raises(errors.UserError) as raised:
        base(**{name: value})
    assert str(raised.value) == (
        f"{name} must be of type {kind}; got {value!r}."
    )


def test_a_whole_number_will_do_for_a_float():
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
def test_a_bad_search_setting_is_named(name, value, rule):
    with pytest.raises(errors.UserError) as raised:
        hparam.DecodeHParams(**{name: value})
    assert str(raised.value) == (
        f"decode hparam {name} must be {rule}; got {value!r}."
    )


def test_search_settings_are_the_papers():
    settings = hparam.DecodeHParams()
    assert (settings.beam_size, settings.alpha) == (4, 0.6)
    assert settings.extra_length == 50


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        (None, {}),
        ("size=3", {"size": 3}),
        ("size=-3,rate=1e-3", {"size": -3, "rate": 0.001}),
        (" size = 3 , name = a=b ,", {"size": 3, "name": "a=b"}),
        ("loud=true", {"loud": True}),
        ("loud=False", {"loud": False}),
        ("rate=2", {"rate": 2.0}),
        ("name=", {"name": ""}),
    ],
)
def test_parse(text, values):
    parsed = fields.parse(Toy, text)
    assert parsed == values
    kinds = {field.name: field.type for field in dataclasses.fields(Toy)}
    assert all(type(value) is kinds[key] for key, value in parsed.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "siz=3",
            "Toy has no 'siz'. Did you mean size? "
            "Known: size, rate, name, loud.",
        ),
        ("zzz=3", "Toy has no 'zzz'. Known: size, rate, name, loud."),
        ("size=3.0", "size must be of type int; got '3.0'."),
        ("size=", "size must be of type int; got ''."),
        ("rate=fast", "rate must be of type float; got 'fast'."),
        ("loud=1", "loud must be of type bool; got '1'."),
        ("size=3,size=4", "size is given twice in 'size=3,size=4'."),
        (
            "size=3,loud",
            "Expected key=value,key=value; got 'loud' in 'size=3,loud'.",
        ),
        ("=3", "Toy has no ''. Known: size, rate, name, loud."),
    ],
)
def test_parse_refuses(text, message):
    with pytest.raises(errors.UserError) as raised:
        fields.parse(Toy, text)
    assert str(raised.value) == message


def test_parse_reads_types_that_are_written_as_strings():
    """As those of a user's module that postpones annotations."""
    postponed = [("size", "int", 1), ("loud", "bool", False)]
    cls = dataclasses.make_dataclass("Postponed", postponed)
    parsed = fields.parse(cls, "size=3,loud=true")
    assert parsed == {"size": 3, "loud": True}


def test_override_changes_what_is_named_and_checks_it():
    values = fields.override(base(), "hidden_size=256,batching=packed")
    assert values == base(hidden_size=256, batching="packed")
    with pytest.raises(errors.UserError, match="hidden_size must be an even"):
        fields.override(base(), "hidden_size=100")


def test_from_dict_names_what_does_not_fit():
    stored = dataclasses.asdict(base())
    stored["hiden_size"] = stored.pop("hidden_size")
    message = "TransformerHParams: unknown ['hiden_size'], missing "
    message = re.escape(message + "['hidden_size'].")
    with pytest.raises(errors.UserError, match=message):
        fields.from_dict(TransformerHParams, stored)


def test_a_field_that_came_later_has_its_default_in_what_was_stored():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(TransformerHParams):
        num_gates: int = fields.setting(fields.at_least(0), default=0)

    found = fields.from_dict(Later, PAPER)
    assert found.num_gates == 0
    assert fields.with_defaults(Later, PAPER)["num_gates"] == 0
    assert found == Later(**PAPER)


def test_a_field_without_a_default_must_be_given():
    stored = {k: v for k, v in PAPER.items() if k != "filter_size"}
    with pytest.raises(errors.UserError, match=r"missing \['filter_size'\]"):
        fields.from_dict(TransformerHParams, stored)


def test_like_takes_what_both_classes_have():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Gru(hparam.HParams):
        num_gates: int = fields.setting(fields.at_least(1))

    found = Gru.like(base(hidden_size=128), model="gru", num_gates=3)
    assert (found.model, found.hidden_size, found.num_gates) == ("gru", 128, 3)
    assert found.train_steps == PAPER["train_steps"]
    with pytest.raises(errors.UserError, match="num_gates must be at least 1"):
        Gru.like(base(), num_gates=0)


@hypothesis.settings(deadline=None, max_examples=50, derandomize=True)
@hypothesis.given(
    changes=st.fixed_dictionaries(
        {
            "num_heads": st.just(2),
            "hidden_size": st.integers(1, 10**6).map(lambda n: 4 * n),
            "label_smoothing": st.floats(0, 1, exclude_max=True),
            "optimizer_adam_epsilon": st.floats(1e-12, 1e-3),
            "max_length": st.integers(1, 1000).map(lambda n: 8 * n),
            "batching": st.sampled_from(["bucketed", "packed"]),
        }
    )
)
def test_settings_survive_json(changes):
    values = base(**changes)
    text = fields.to_json(values)
    assert fields.from_dict(TransformerHParams, json.loads(text)) == values
    assert set(json.loads(text)) == set(PAPER | LATER)
