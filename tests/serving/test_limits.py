"""How a client splits what it asks for."""

from hypothesis import given
from hypothesis import strategies as st

from t2t_repro.serving import limits

TIGHT = limits.Limits(max_batch_size=3, max_batch_bytes=8)


def test_by_number_and_by_bytes():
    lines = ["aa", "b", "cccc", "éé", "x" * 50, "d", "", "", "e"]
    assert list(limits.split(lines, TIGHT)) == [
        ["aa", "b"],
        ["cccc", "éé"],  # 2 x 4 bytes
        ["x" * 50],  # too long for a server, which says so
        ["d", "", ""],
        ["e"],
    ]


@given(st.lists(st.text(max_size=12)))
def test_nothing_is_lost_and_no_part_is_too_much(lines):
    parts = list(limits.split(lines, TIGHT))
    assert [line for part in parts for line in part] == lines
    for part in parts:
        longest = max(len(line.encode()) for line in part)
        assert TIGHT.allow(len(part), longest) or len(part) == 1
