import pytest
from matplotlib import font_manager, textpath

from t2t_repro.text import pixels

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
    assert found - GAP <= pixels.width(text) <= 1.5 * found


def test_squares_and_marks():
    assert pixels.width("日本") == 2 * 14
    assert pixels.width("e\u0301") == pixels.width("\u00e9")
    assert pixels.width("") == 0
