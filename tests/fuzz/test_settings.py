"""Settings as random text: parsed as written, or explained."""

import dataclasses
import math
import pathlib

import pytest
from file_strategies import JSON
from hypothesis import example, given
from hypothesis import strategies as st

from t2t_repro import errors, hparam, registry
from t2t_repro.io import fields
from t2t_repro.problem import build_problem

registry.load_definitions()  # for the parameters below
NAMES = [
    *(entry.name for entry in registry.problems),
    *(f"{entry.name}_rev" for entry in registry.problems),
]
VALUES = {
    bool: st.booleans(),
    int: st.integers(-(1 << 31), (1 << 31) - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    # Commas separate settings, and spaces around a value are dropped.
    str: st.text().map(lambda text: text.replace(",", "").strip()),
}


@dataclasses.dataclass
class Settings:
    """Settings, one of every type."""

    flag: bool = False
    whole: int = 0
    real: float = 0.0
    text: str = ""


KINDS = {field.name: field.type for field in dataclasses.fields(Settings)}
SOME = st.fixed_dictionaries(
    {}, optional={name: VALUES[kind] for name, kind in KINDS.items()}
)
NOISE = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            "flag whole real text = , true 1 1e400 nan -inf ٣ \0 _ 'x'".split(
                " "
            )
            + [" ", "9" * 5_000]
        )
    ).map("".join),
)


@given(SOME, st.sampled_from(["", " ", "\t"]))
def test_settings_are_parsed_as_written(values, space):
    text = f"{space},{space}".join(
        f"{key}{space}={space}{value}" for key, value in values.items()
    )
    assert fields.parse(Settings, text) == values


@given(NOISE)
def test_any_text_is_typed_settings_or_explained(text):
    try:
        values = fields.parse(Settings, text)
    except errors.UserError as error:
        assert str(error).strip()
        return
    assert {key: type(value) for key, value in values.items()} == {
        key: KINDS[key] for key in values
    }
    fields.check_keys(Settings, values)


ANYTHING = st.one_of(*VALUES.values(), JSON)


@pytest.mark.parametrize(
    "values",
    [registry.build_hparams("base"), hparam.DecodeHParams()],
    ids=lambda values: type(values).__name__,
)
@given(data=st.data())
def test_stored_settings_are_valid_or_explained(values, data):
    stored = dataclasses.asdict(values)
    key = data.draw(st.sampled_from(list(stored)))
    stored[key] = data.draw(ANYTHING)
    try:
        found = fields.from_dict(type(values), stored)
    except errors.UserError as error:
        assert key in str(error)
        return
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        assert type(value) is field.type or field.type is float
        if field.type is float:
            assert math.isfinite(value)
        if field.type is int:
            assert -(1 << 31) <= value < 1 << 31


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("extra_length", 1 << 31, "of 32 bits"),
        ("sampling_seed", -(1 << 31) - 1, "of 32 bits"),
        ("alpha", math.inf, "finite"),
        ("sampling_temp", 10**400, "finite"),
    ],
)
def test_number_beyond_32_bits_or_infinite_is_refused(name, value, rule):
    with pytest.raises(errors.UserError, match=f"{name} must be {rule}; got"):
        hparam.DecodeHParams(**{name: value})


@given(
    st.one_of(
        st.text(),
        st.sampled_from(NAMES),
        st.sampled_from(["_rev", "_rev_rev", "multi30k_ende_rev_rev", ""]),
    ),
    st.one_of(
        NOISE,
        st.dictionaries(
            st.sampled_from(
                "name languages vocab_size vocabulary max_length "
                "max_length_ratio".split()
            ),
            ANYTHING,
        ),
    ),
)
@example("parallel_text", {"name": "..", "languages": "a-b", "max_length": "9"})
@example("parallel_text", {"name": "a", "languages": ["a-b"]})
@example("multi30k_ende", "vocabulary=~nobody_of_this_name/vocab.model")
def test_any_problem_is_built_or_explained(name, arguments):
    try:
        built = build_problem(name, arguments)
    except errors.UserError as error:
        assert str(error).strip()
        return
    assert built.requested_name == name in NAMES
    assert {type(part) for part in built.stored_languages} == {str}
    assert pathlib.Path(built.full_name).name == built.full_name
    again = build_problem(name, built.arguments)
    assert again.arguments == built.arguments
