"""Library classes by name, and their arguments as text."""

import pathlib

import pytest

from t2t_repro import errors
from t2t_repro.io import arguments


class Base:
    def __init__(
        self, rate, steps=1, power=1.0, loud=False, name="x", top=None
    ):
        self.given = dict(
            rate=rate, steps=steps, power=power, loud=loud, name=name, top=top
        )
        if power > 9:
            raise ValueError("`power` must be at most 9.")


class WarmUp(Base):
    def __init__(self, boundaries, rate=0.5, **kwargs):
        super().__init__(rate, **kwargs)
        self.boundaries = boundaries


def parse(text, cls=Base):
    return arguments.parse(
        cls, text, "hparam toy_arguments", {"name": "the class"}
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Adam", "adam"),
        ("AdamW", "adamw"),
        ("RMSprop", "rmsprop"),
        ("SGD", "sgd"),
        ("ScheduleFreeAdamW", "schedule_free_adamw"),
        ("CosineDecayRestarts", "cosine_decay_restarts"),
    ],
)
def test_snake_case_separates_words_of_class_name(name, expected):
    assert arguments.snake_case(name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a:x=1+b", ["a:x=1", "b"]),
        ("a:x=1e+0+b:y=2E+1", ["a:x=1e+0", "b:y=2E+1"]),
        ("a:x=1.e+b", ["a:x=1.e", "b"]),
        ("a:x=1+2d+", ["a:x=1", "2d"]),
    ],
)
def test_items_are_joined_by_plus(text, expected):
    assert arguments.split(text) == expected


def test_unknown_name_is_refused_with_near_and_known_names():
    known = {"warm_up": WarmUp, "base": Base}
    assert arguments.look_up("hparam toy", "base", known) is Base
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
    assert arguments.parse(read, "words=7", "rules") == {
        "words": pathlib.Path("7")
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("rate=2", {"rate": 2}),
        ("rate=0.5:steps=3", {"rate": 0.5, "steps": 3}),
        ("steps=0.5", {"steps": 0.5}),
        ("power=2:loud=True", {"power": 2.0, "loud": True}),
        ("loud=false", {"loud": False}),
        ("top=1e-3", {"top": 0.001}),
        ("top=true", {"top": True}),
        ("top=a=b", {"top": "a=b"}),
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
    (values,) = parse(f"boundaries={text}", WarmUp).values()
    assert values == expected
    assert len(set(map(type, values))) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate=x", "toy_arguments: rate must be a number; got 'x'."),
        ("power=nan", "toy_arguments: power must be a number; got 'nan'."),
        ("steps=inf", "toy_arguments: steps must be a number; got 'inf'."),
        ("loud=1", "toy_arguments: loud must be true or false; got '1'."),
        (
            "name=me",
            "toy_arguments must not set name: the class does. "
            "Known: rate, steps, power, loud, top.",
        ),
        (
            "pwer=2",
            "toy_arguments: Base has no 'pwer'. Did you mean power? "
            "Known: rate, steps, power, loud, top.",
        ),
        ("top=1:top=2", "toy_arguments gives top twice: 'top=1:top=2'."),
    ],
)
def test_bad_arguments_are_refused(text, message):
    with pytest.raises(errors.UserError) as raised:
        parse(text)
    assert str(raised.value) == f"hparam {message}"
