"""Curves of event files, whole or damaged, and their plots."""

from xml.etree import ElementTree

import hypothesis
import pytest
import tensorflow as tf
from file_strategies import edited_bytes
from hypothesis import strategies as st

from t2t_repro.reports import curves


@pytest.fixture
def events(tmp_path):
    """Return the event file of a run of three steps."""
    writer = tf.summary.create_file_writer(
        str(tmp_path / "train"), filename_suffix=".session-1"
    )
    for step in (1, 2, 3):
        with writer.as_default(step):
            tf.summary.scalar("loss", 10.0 / step)
            tf.summary.text("note", "not a number")
    writer.close()
    (path,) = tmp_path.glob("train/events.out.tfevents.*")
    return path


def test_read_returns_scalars_by_step_up_to_where_a_file_is_cut(events):
    first, last = [(1, 10.0), (2, 5.0)], (3, pytest.approx(10 / 3))
    assert curves.read(events.parents[1]) == {"train/loss": [*first, last]}
    events.write_bytes(events.read_bytes()[:-20])
    assert curves.read(events.parents[1])["train/loss"][:2] == first


def test_later_session_replaces_the_steps_from_its_first_one_on(tmp_path):
    """Session 2 resumes from step 2; its first event is the validation's."""
    for number, folder, steps in (
        (1, "train", (1, 2, 3, 4)),
        (1, "validation", (2, 4)),
        (2, "train", (4, 5)),
        (2, "validation", (3,)),
    ):
        writer = tf.summary.create_file_writer(
            str(tmp_path / folder), filename_suffix=f".session-{number}"
        )
        with writer.as_default():
            for step in steps:
                tf.summary.scalar("loss", 10.0 * number + step, step)
        writer.close()
    assert curves.read(tmp_path) == {
        "train/loss": [(1, 11.0), (2, 12.0), (4, 24.0), (5, 25.0)],
        "validation/loss": [(2, 12.0), (3, 23.0)],
    }


@hypothesis.settings(
    max_examples=max(20, hypothesis.settings().max_examples // 5),
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(data=st.data())
def test_damaged_file_gives_numbers_by_step(events, data):
    whole = events.read_bytes()
    events.write_bytes(data.draw(edited_bytes(whole)))
    try:
        for curve in curves.read(events.parents[1]).values():
            assert all(type(number) is float for _, number in curve)
            assert [step for step, _ in curve] == sorted(dict(curve))
    finally:
        events.write_bytes(whole)


ONE = {
    "train/loss": [(1, 9.0), (5, 4.0)],
    "validation/loss": [(5, 4.5)],
    "train/steps_per_second": [(1, 0.5), (5, 2.0)],
}
TWO = {"train/loss": [(10, 8.0), (20, 3.0)]}
LOSS, PERPLEXITY = (
    next(plot for plot in curves.PLOTS if plot.title == title)
    for title in ("Loss", "Perplexity")
)


def texts(svg):
    """List the texts of an SVG document, which must be well-formed."""
    root = ElementTree.fromstring(svg)
    return [text.text for text in root.iter() if text.tag.endswith("text")]


def test_plot_of_one_run_has_both_splits_in_legend():
    svg = curves.plot(LOSS, {"one": ONE})
    assert {"train", "validation", "step"} <= set(texts(svg))
    two = texts(curves.plot(LOSS, {"_a": ONE, "b": TWO}))
    assert {"\u200b_a: train", "b: train"} <= set(two)
    # Names of namespaces.
    assert "https://" not in svg and svg.count("http://") <= 2


@pytest.mark.parametrize(
    ("last", "label"), [(3.5, "10,000"), (15_000.0, "15,200")]
)
def test_labels_of_logarithmic_scale_are_numbers(last, label):
    curve = [(1, 16_000.0), (5, last)]
    found = texts(curves.plot(PERPLEXITY, {"one": {PERPLEXITY.train: curve}}))
    assert label in found
    assert not [text for text in found if "$" in text]


def test_missing_curve_has_no_plot():
    bleu = curves.Plot("Validation BLEU", None, "validation/bleu")
    assert curves.plot(bleu, {"one": ONE, "<two>": TWO}) is None
    assert curves.plot(LOSS, {"one": {"train/loss": []}}) is None


def test_training_seconds_sum_recorded_speeds():
    # 1 step at 0.5 per second, and 4 at 2 per second.
    assert curves.training_seconds(ONE) == 2 + 2
    assert curves.training_seconds(TWO) is None
    assert curves.steps_done(TWO) == 20
    assert curves.steps_done({}) == 0
