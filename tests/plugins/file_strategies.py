"""Hypothesis strategies for text, JSON and files with random edits."""

import json

from hypothesis import strategies as st

from t2t_repro import errors

# Characters that code for text tends to treat wrongly.
UNUSUAL = (
    "\0\x01\t\r\x0b\x1c\x7f\x85\xa0\xad\u0301\u200b\u200d\u200f\u2028\u202e"
    "\u2581\ufeff\ufffd\U0001f469\U0001f680 aA1é.-,=&<>()[]|\"'/\\"
)
LINES = st.one_of(
    st.text(alphabet=UNUSUAL, max_size=30),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=30),
    st.sampled_from(["@-@", "##AT##-##AT##", "&apos;", "<pad>", "</s>"]),
).map(lambda line: line.replace("\n", " "))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=5,
)
_EDITS = st.tuples(
    st.sampled_from(["insert", "delete", "duplicate", "flip", "cut"]),
    st.integers(0, 1 << 16),  # offset
    st.integers(1, 8),  # length
    st.binary(min_size=1, max_size=4),
)


def _apply_edits(content, edits):
    for kind, offset, length, data in edits:
        offset %= len(content) + 1
        end = offset + length if kind != "cut" else len(content)
        span = content[offset:end]
        new = {
            "insert": data + span,
            "delete": b"",
            "duplicate": span + span,
            "flip": bytes(byte ^ data[0] for byte in span),
            "cut": b"",
        }
        content = content[:offset] + new[kind] + content[end:]
    return content


def edited_bytes(*files):
    """Return a strategy of random bytes, and of files with some edits."""
    return st.one_of(
        st.binary(max_size=100),
        *(
            st.lists(_EDITS, min_size=1, max_size=3).map(
                lambda edits, content=content: _apply_edits(content, edits)
            )
            for content in files
        ),
    )


def _all_keys(value):
    """Yield every (container, key) in a value of JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in list(items):
        yield value, key
        if isinstance(child, dict | list):
            yield from _all_keys(child)


@st.composite
def edited_json(draw, value):
    """Draw a JSON file of a value, with edits or with one part changed."""
    if draw(st.booleans()):
        return draw(edited_bytes(json.dumps(value).encode()))
    copy = json.loads(json.dumps(value))
    container, key = draw(st.sampled_from(list(_all_keys(copy))))
    if draw(st.booleans()):
        container[key] = draw(JSON)
    else:
        del container[key]
    return json.dumps(copy).encode()


def read_or_refuse(reader, path, content):
    """Return reader(path) of a file; None: a UserError that names it."""
    path.write_bytes(content)
    try:
        return reader(path)
    except errors.UserError as error:
        assert str(path) in str(error)
        return None
