"""Settings as text, and the rules of fields."""

import dataclasses
import pathlib

import numpy as np
import pytest

from t2t_repro import errors
from t2t_repro.io import fields


@dataclasses.dataclass(frozen=True)
class Toy:
    size: int = 1
    rate: float = 0.5
    name: str = ""
    loud: bool = False


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        (None, {}),
        ("size=-3,rate=1e-3", {"size": -3, "rate": 0.001}),
        (" size = 3 , name = a=b ,", {"size": 3, "name": "a=b"}),
        ("loud=False,rate=2,name=", {"loud": False, "rate": 2.0, "name": ""}),
        ('name="a,b",size=2', {"name": "a,b", "size": 2}),
        (r'name= "\u00e4\"," ', {"name": 'ä",'}),
    ],
)
def test_parse_converts_values_to_the_types_of_fields(text, values):
    parsed = fields.parse(Toy, text)
    assert parsed == values
    kinds = {field.name: field.type for field in dataclasses.fields(Toy)}
    assert all(type(value) is kinds[key] for key, value in parsed.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("siz=3", "Toy has no 'siz'. Did you mean size? Known: size, rate, "),
        ("zzz=3", "Toy has no 'zzz'. Known: size, rate, name, loud."),
        ("size=3.0", "size must be of type int; got '3.0'."),
        ("loud=1", "loud must be true or false; got '1'."),
        ("size=3,size=4", "size is given twice in 'size=3,size=4'."),
        ("size=3,loud", "key=value,key=value; got 'loud' in 'size=3,loud'."),
    ],
)
def test_parse_refuses_bad_text(text, message):
    with pytest.raises(errors.UserError) as raised:
        fields.parse(Toy, text)
    assert message in str(raised.value)


def test_numbers_of_numpy_become_pythons():
    given = {"size": np.int64(3), "rate": np.float32(0.5), "loud": np.bool_(1)}
    parsed = fields.parse(Toy, given)
    assert parsed == {"size": 3, "rate": 0.5, "loud": True}
    assert [type(value) for value in parsed.values()] == [int, float, bool]


def test_parse_reads_postponed_annotations():
    postponed = [("size", "int", 1), ("loud", "bool", False)]
    cls = dataclasses.make_dataclass("Postponed", postponed)
    parsed = fields.parse(cls, "size=3,loud=true")
    assert parsed == {"size": 3, "loud": True}


@dataclasses.dataclass(frozen=True)
class Optional(fields.Settings):
    NOUN = "toy"
    width: int | None = None
    path: str | None = None
    sizes: tuple[int, ...] = (3, 5)
    kind: str | None = fields.setting(fields.one_of("a", "b"), default=None)


def test_other_value_than_the_choices_is_refused():
    """The other rules are in tests/test_hparam.py."""
    assert Optional(kind="b").kind == "b"
    message = r"toy kind must be one of \('a', 'b'\); got 'c'"
    with pytest.raises(errors.UserError, match=message):
        Optional(kind="c")


def test_text_of_an_optional_field_has_the_type_of_its_values():
    assert fields.parse(Optional, "width=3") == {"width": 3}
    with pytest.raises(errors.UserError, match="width must be of type int"):
        fields.parse(Optional, "width=none")
    with pytest.raises(errors.UserError, match="sizes cannot be given as text"):
        fields.parse(Optional, "sizes=3")


@pytest.mark.parametrize("value", [1e5, "5", True, np.int64(5)])
def test_types_are_checked_where_none_is_allowed_too(value):
    Optional(path=pathlib.Path("a"))
    with pytest.raises(errors.UserError, match="width must be of type int"):
        Optional(value)


def test_tuple_does_not_differ_from_the_list_that_json_has():
    given = dataclasses.asdict(Optional())
    assert not list(fields.differences({"width": None, "sizes": [3, 5]}, given))
    assert list(fields.differences({"width": None, "sizes": [3]}, given))
