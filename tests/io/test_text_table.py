"""Tables as text."""

from t2t_repro.io import text_table


def test_first_column_is_left_justified_and_the_others_as_asked():
    rows = [("row", "10⁶ a", "b"), ("x", "", "−50%")]
    assert text_table.lines(rows) == ["row  10⁶ a     b", "x           −50%"]
    assert text_table.lines(rows, str.ljust) == [
        "row  10⁶ a  b   ",
        "x           −50%",
    ]
