"""Estimated widths of text, compared with DejaVu Sans."""

import pytest
from matplotlib import font_manager, textpath

from t2t_repro.text import svg

FONT = font_manager.FontProperties(family="DejaVu Sans", size=14)
GAP = 14  # pixels that pictures leave between words


@pytest.mark.parametrize(
    "text",
    ["Feuerwehrmänner", "Mammutbaum", "undsechzig", "firefighters", "été"],
)
def test_width_fits_a_word_without_much_waste(text):
    actual = textpath.text_to_path.get_text_width_height_descent(
        text, FONT, ismath=False
    )[0]
    assert actual - GAP <= svg.text_width(text) <= 1.5 * actual


def test_east_asian_letters_are_squares_and_marks_have_no_width():
    assert svg.text_width("日本") == 2 * 14
    assert svg.text_width("e\u0301") == svg.text_width("\u00e9")
    assert svg.text_width("") == 0
