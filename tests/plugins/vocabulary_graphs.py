"""Comparison of a vocabulary with its counterpart in a graph."""

import tensorflow as tf


def assert_same_ids(vocabulary, graph, lines):
    """Compare ids of lines, then text and pieces of these ids."""
    rows = [row[:-1] for row in vocabulary.encode(lines)]
    assert graph.encode(tf.constant(lines, tf.string)).to_list() == rows
    assert_same_text(vocabulary, graph, rows)


def assert_same_text(vocabulary, graph, rows):
    """Compare text and pieces of rows of ids without EOS."""
    ids = tf.ragged.constant(rows, tf.int32, ragged_rank=1)
    assert _texts(graph.decode(ids)) == vocabulary.join(rows)
    flat = [i for row in rows for i in row]
    assert _texts(graph.pieces(ids.flat_values)) == vocabulary.pieces(flat)


def _texts(tensor):
    return [text.decode() for text in tensor.numpy()]
