"""What a file of a user's may hold: anything, or what was whole, damaged."""

import json

from hypothesis import strategies as st

from t2t_repro import errors

# What text has that code is not prepared for.
NASTY = (
    "\0\x01\t\r\x0b\x1c\x7f\x85\xa0\xad\u0301\u200b\u200d\u200f\u2028\u202e"
    "\u2581\ufeff\ufffd\U0001f469\U0001f680 aA1é.-,=&<>()[]|\"'/\\"
)
LINES = st.one_of(
    st.text(alphabet=NASTY, max_size=30),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=30),
    st.sampled_from(["@-@", "##AT##-##AT##", "&apos;", "<pad>", "</s>"]),
).map(lambda line: line.replace("\n", " "))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=5,
)


def _edited(content, edit):
    """One edit of bytes; places count from either end."""
    kind, place, length, some = edit
    place %= len(content) + 1
    span = content[place : place + length]
    middle = {
        "insert": some + span,
        "delete": b"",
        "twice": span + span,
        "flip": bytes(byte ^ some[0] for byte in span),
    }
    if kind == "cut":
        return content[:place]
    return content[:place] + middle[kind] + content[place + len(span) :]


_EDITS = st.tuples(
    st.sampled_from(["insert", "delete", "twice", "flip", "cut"]),
    st.integers(0, 1 << 16),
    st.integers(1, 8),
    st.binary(min_size=1, max_size=4),
)


def of_bytes(*wholes):
    """Random bytes, and whole files with some edits."""
    return st.one_of(
        st.binary(max_size=100),
        *(
            st.lists(_EDITS, min_size=1, max_size=3).map(
                lambda edits, whole=whole: _all_edited(whole, edits)
            )
            for whole in wholes
        ),
    )


def _all_edited(content, edits):
    for edit in edits:
        content = _edited(content, edit)
    return content


def _places(value):
    """Every (container, key) in a value of JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items):
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)


@st.composite
def of_json(draw, whole):
    """Bytes of a file of JSON, of which some part is another or gone."""
    if draw(st.booleans()):
        return draw(of_bytes(json.dumps(whole).encode()))
    copy = json.loads(json.dumps(whole))
    container, key = draw(st.sampled_from(list(_places(copy))))
    if draw(st.booleans()):
        container[key] = draw(JSON)
    else:
        del container[key]
    return json.dumps(copy).encode()


def read(reader, path, content):
    """What a reader makes of a file; None: a UserError that names it."""
    path.write_bytes(content)
    try:
        return reader(path)
    except errors.UserError as error:
        assert str(path) in str(error)
        return None


def refuses(function, *arguments):
    """Whether a UserError comes of it, which says something."""
    try:
        function(*arguments)
    except errors.UserError as error:
        assert str(error).strip()
        return True
    return False
