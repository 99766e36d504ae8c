"""Curves come from event files, whole or cut off."""

from xml.etree import ElementTree

import pytest
import tensorflow as tf

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


def test_a_file_cut_off_while_written_gives_what_it_has(events):
    events.write_bytes(events.read_bytes()[:-20])
    read = curves.read(events.parent)["train/loss"]
    assert read[:2] == [(1, 10.0), (2, 5.0)]


RUNS = {
    "one": {
        "train/loss": [(1, 9.0), (5, 4.0)],
        "validation/loss": [(5, 4.5)],
        "train/steps_per_second": [(1, 0.5), (5, 2.0)],
    },
    "<two>": {"train/loss": [(10, 8.0), (20, 3.0)]},
}
LOSS, BLEU = (
    next(plot for plot in curves.PLOTS if plot.title == title)
    for title in ("Loss", "Validation BLEU")
)


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
