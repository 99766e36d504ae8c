"""Curves come from event files, whole or cut off."""

from xml.etree import ElementTree

import hypothesis
import pytest
import tensorflow as tf
from file_strategies import edited_bytes
from hypothesis import strategies as st

from t2t_repro.reports import curves


@pytest.fixture
def events(tmp_path):
    """The file of a training of three steps."""
    writer = tf.summary.create_file_writer(str(tmp_path))
    for step in (1, 2, 3):
        with writer.as_default(step):
            tf.summary.scalar("train/loss", 10.0 / step)
            tf.summary.text("note", "not a number")
    writer.close()
    (path,) = tmp_path.glob("events.out.tfevents.*")
    return path


def test_reads_scalars_by_step(events):
    read = curves.read(events.parent)
    assert set(read) == {"train/loss"}
    assert read["train/loss"] == [
        (1, 10.0),
        (2, 5.0),
        (3, pytest.approx(10 / 3)),
    ]


def test_what_a_later_session_does_again_counts_once(tmp_path):
    """Killed after step 5, gone on from 2, and stopped at 4."""
    for session, value, steps in ((1, 1.0, range(1, 6)), (2, 2.0, (3, 4))):
        suffix = f".session-{session}"
        writer = tf.summary.create_file_writer(
            str(tmp_path), filename_suffix=suffix
        )
        with writer.as_default():
            for step in steps:
                tf.summary.scalar("train/loss", value, step)
        writer.close()
    read = curves.read(tmp_path)
    assert read["train/loss"] == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]
    assert curves.steps_done(read) == 4


def test_a_file_cut_off_while_written_gives_what_it_has(events):
    events.write_bytes(events.read_bytes()[:-20])
    read = curves.read(events.parent)["train/loss"]
    assert read[:2] == [(1, 10.0), (2, 5.0)]


@hypothesis.settings(
    max_examples=max(20, hypothesis.settings().max_examples // 5),
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(data=st.data())
def test_a_damaged_file_gives_numbers_by_step(events, data):
    whole = events.read_bytes()
    events.write_bytes(data.draw(edited_bytes(whole)))
    try:
        for curve in curves.read(events.parent).values():
            assert all(type(number) is float for _, number in curve)
            assert [step for step, _ in curve] == sorted(dict(curve))
    finally:
        events.write_bytes(whole)


RUNS = {
    "one": {
        "train/loss": [(1, 9.0), (5, 4.0)],
        "validation/loss": [(5, 4.5)],
        "train/steps_per_second": [(1, 0.5), (5, 2.0)],
    },
    "<two>": {"train/loss": [(10, 8.0), (20, 3.0)]},
}
LOSS, PERPLEXITY = (
    next(plot for plot in curves.PLOTS if plot.title == title)
    for title in ("Loss", "Perplexity")
)
BLEU = curves.Plot("Validation BLEU", None, "validation/bleu")


def texts(svg):
    """Of an SVG picture, which must be well-formed."""
    root = ElementTree.fromstring(svg)
    return [text.text for text in root.iter() if text.tag.endswith("text")]


def test_one_runs_plot_has_both_splits_in_its_legend():
    svg = curves.plot(LOSS, {"one": RUNS["one"]})
    assert {"train", "validation", "step"} <= set(texts(svg))
    assert "https://" not in svg and svg.count("http://") <= 2  # namespaces


def test_several_runs_share_a_plot():
    svg = curves.plot(LOSS, RUNS)
    assert {"one: train", "one: validation", "<two>: train"} <= set(texts(svg))


def test_a_name_of_a_run_is_no_formula():
    runs = {"a$^$b": RUNS["one"], "$x": RUNS["<two>"]}
    svg = curves.plot(LOSS, runs)
    assert {"a$^$b: train", "a$^$b: validation", "$x: train"} <= set(texts(svg))


@pytest.mark.parametrize(
    ("last", "label"),
    [(3.5, "10,000"), (5_000.0, "6,000"), (15_000.0, "15,200")],
)
def test_labels_of_perplexity_are_numbers(last, label):
    curve = [(1, 16_000.0), (5, last)]
    found = texts(curves.plot(PERPLEXITY, {"one": {PERPLEXITY.train: curve}}))
    assert label in found
    assert not [text for text in found if "$" in text]


@pytest.mark.parametrize(
    ("first", "last", "label"),
    [(2_500.0, 9_000.0, "4,000"), (1e-5, 0.004, "0.003"), (4.0, 4.0, "4")],
)
def test_labels_of_a_linear_scale_are_numbers(first, last, label):
    runs = {"one": {LOSS.train: [(1, first), (5, last)]}}
    assert label in texts(curves.plot(LOSS, runs))


def test_a_plot_says_in_words_what_it_shows():
    label = ElementTree.fromstring(curves.plot(LOSS, RUNS)).get("aria-label")
    assert label == (
        "Loss. one: train: from 9 at step 1 to 4 at step 5. "
        "one: validation: from 4.5 at step 5 to 4.5 at step 5. "
        "<two>: train: from 8 at step 10 to 3 at step 20."
    )


def test_what_no_run_has_is_not_drawn():
    assert curves.plot(BLEU, RUNS) is None
    assert curves.plot(LOSS, {"one": {"train/loss": []}}) is None


def test_time_is_that_of_the_steps():
    # 1 step at 0.5 a second, and 4 at 2 a second.
    assert curves.training_seconds(RUNS["one"]) == 2 + 2
    assert curves.training_seconds(RUNS["<two>"]) is None
    assert curves.steps_done(RUNS["<two>"]) == 20
    assert curves.steps_done({}) == 0
