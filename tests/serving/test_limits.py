"""Batches of a client's lines within the limits of a server."""

from hypothesis import given
from hypothesis import strategies as st

from t2t_repro.serving import connection

TIGHT = connection.Limits(max_batch_size=3, max_batch_bytes=8)


def test_split_limits_number_and_bytes():
    lines = ["aa", "b", "cccc", "éé", "x" * 50, "d", "", "", "e"]
    assert list(TIGHT.split(lines)) == [
        [0, 1],
        [2, 3],  # 2 x 4 bytes
        [4],  # beyond the limits, which the server reports
        [5, 6, 7],
        [8],
    ]


@given(st.lists(st.text(max_size=12)))
def test_split_keeps_every_line_and_the_limits(lines):
    batches = list(TIGHT.split(lines))
    assert [i for batch in batches for i in batch] == list(range(len(lines)))
    for batch in batches:
        longest = max(len(lines[i].encode()) for i in batch)
        assert TIGHT.allow(len(batch), longest) or len(batch) == 1
