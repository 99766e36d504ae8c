"""Library classes by name, and their arguments as text."""

import pathlib

import pytest

from t2t_repro import errors
from t2t_repro.io import arguments


def toy(
    rate,
    steps=1,
    power=1.0,
    loud=False,
    name="x",
    top=None,
    file: str | None = None,
    most: "float | None" = None,
): ...


def parse(text, target=toy):
    return arguments.parse(
        target, text, "hparam toy_arguments", {"name": "the class"}
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("RMSprop", "rmsprop"), ("ScheduleFreeAdamW", "schedule_free_adamw")],
)
def test_snake_case_separates_words_of_class_name(name, expected):
    assert arguments.snake_case(name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:x=1+b", ["a:x=1", "b"]),
        ("a:x=1e+0+b:y=2E+1", ["a:x=1e+0", "b:y=2E+1"]),
        ("a:x=1.e+b", ["a:x=1.e", "b"]),
        ("a:x=1+2d+", ["a:x=1", "2d"]),
    ],
)
def test_items_are_joined_by_plus(text, expected):
    assert arguments.split(text) == expected


def test_unknown_name_is_refused_with_near_and_known_names():
    known = {"warm_up": int, "base": float}
    assert arguments.look_up("hparam toy", "base", known) is float
    with pytest.raises(errors.UserError) as raised:
        arguments.look_up("hparam toy", "warmup", known)
    assert str(raised.value) == (
        "hparam toy has no 'warmup'. Did you mean warm_up? "
        "Known: base, warm_up."
    )


@pytest.mark.parametrize("kind", [pathlib.Path, "pathlib.Path", "Path"])
def test_path_is_an_annotation(kind):
    def read(words): ...

    read.__annotations__["words"] = kind
    found = arguments.parse(read, "words=7", "rules")
    assert found == {"words": pathlib.Path("7")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("rate=2:steps=3", {"rate": 2, "steps": 3}),
        ("steps=0.5", {"steps": 0.5}),
        ("power=2:loud=True", {"power": 2.0, "loud": True}),
        ("top=1e-3", {"top": 0.001}),
        ("top=true", {"top": True}),
        ("top=a=b", {"top": "a=b"}),
        ("file=007:most=2", {"file": "007", "most": 2.0}),
    ],
)
def test_values_have_the_types_of_defaults(text, expected):
    values = parse(text)
    assert values == expected
    assert [type(v) for v in values.values()] == [
        type(v) for v in expected.values()
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1/20", [1, 20]), ("1/0.5", [1.0, 0.5]), ("7", [7]), ("a/b", ["a", "b"])],
)
def test_lists_are_joined_by_slashes(text, expected):
    def steps(boundaries): ...

    (values,) = parse(f"boundaries={text}", steps).values()
    assert values == expected
    assert len(set(map(type, values))) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate=x", "toy_arguments: rate must be a number; got 'x'."),
        ("steps=inf", "toy_arguments: steps must be a number; got 'inf'."),
        ("loud=1", "toy_arguments: loud must be true or false; got '1'."),
        ("name=me", "toy_arguments must not set name: the class does. Known: "),
        ("pwer=2", "toy_arguments: toy has no 'pwer'. Did you mean power? "),
        ("top=1:top=2", "toy_arguments gives top twice: 'top=1:top=2'."),
    ],
)
def test_bad_arguments_are_refused(text, message):
    with pytest.raises(errors.UserError) as raised:
        parse(text)
    assert f"hparam {message}" in str(raised.value)
