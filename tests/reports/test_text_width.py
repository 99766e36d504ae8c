import pytest
from matplotlib import font_manager, textpath

from t2t_repro.reports import text_width

FONT = font_manager.FontProperties(family="DejaVu Sans", size=14)
GAP = 14  # that pictures leave for wide letters


@pytest.mark.parametrize(
    "text",
    ["Feuerwehrmänner", "Mammutbaum", "undsechzig", "firefighters", "été"],
)
def test_a_word_fits_and_wastes_little(text):
    found = textpath.text_to_path.get_text_width_height_descent(
        text, FONT, ismath=False
    )[0]
    assert found - GAP <= text_width.pixels(text) <= 1.5 * found


def test_squares_and_marks():
    assert text_width.pixels("日本") == 2 * 14
    assert text_width.pixels("e\u0301") == text_width.pixels("\u00e9")
    assert text_width.pixels("") == 0
