"""Curves come from event files, whole or cut off."""

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


def test_plot_is_svg_with_a_legend(events):
    svg = curves.plot(curves.read(events.parent), ["train/loss", "missing"])
    assert svg.startswith("<svg") and svg.rstrip().endswith("</svg>")
