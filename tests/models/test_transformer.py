"""The Transformer, against one in numpy that reads one sentence at a time."""

import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.data import batches
from t2t_repro.data import plan as plans
from t2t_repro.layers import dropout
from t2t_repro.models import transformer

INPUTS = np.array([[5, 6, 7, 8, 1, 0, 0], [9, 1, 0, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 7, 6, 1, 0, 0], [4, 9, 3, 2, 9, 1]], np.int32)


class NumpyTransformer:
    """Sections 3.1 to 3.5 in float64, without batches or packing."""

    def __init__(self, model):
        self.heads = model.hparams.num_heads
        self.layers = model.hparams.num_hidden_layers
        self.weights = {
            weight.path.partition("/")[2]: weight.numpy().astype(np.float64)
            for weight in model.weights
        }

    def logits(self, inputs, targets):
        """Ids [L], [T] -> [T, V]."""
        embedding = self.weights["embedding/weight"]
        scale = math.sqrt(embedding.shape[1])
        x = embedding[inputs] * scale
        x += self.positions(*x.shape)
        everything = np.ones((len(x), len(x)), bool)
        for i in range(self.layers):
            path = f"encoder/layer_{i}"
            x = self.block(f"{path}/self_attention", x, x, everything)
            x = self.ffn(f"{path}/ffn", x)
        y = np.zeros((len(targets), len(embedding[0])))
        y[1:] = embedding[targets[:-1]] * scale
        y += self.positions(*y.shape)
        causal = np.tril(np.ones((len(y), len(y)), bool))
        for i in range(self.layers):
            path = f"decoder/layer_{i}"
            y = self.block(f"{path}/self_attention", y, y, causal)
            everything = np.ones((len(y), len(x)), bool)
            y = self.block(f"{path}/cross_attention", y, x, everything)
            y = self.ffn(f"{path}/ffn", y)
        return y @ embedding.T

    def positions(self, length, size):
        angles = np.arange(length)[:, None] / 10_000 ** (
            np.arange(0, size, 2) / size
        )
        table = np.zeros((length, size))
        table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
        return table

    def block(self, path, x, memory, mask):
        kernel = {
            name: self.weights[f"{path}/multihead_attention/{name}/kernel"]
            for name in ("query", "key", "value", "output_projection")
        }
        size = x.shape[1] // self.heads
        mixed = []
        for head in range(self.heads):
            columns = slice(head * size, (head + 1) * size)
            query = x @ kernel["query"][:, columns]
            key = memory @ kernel["key"][:, columns]
            logits = np.where(mask, query @ key.T / math.sqrt(size), -np.inf)
            weights = np.exp(logits - logits.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            mixed.append(weights @ memory @ kernel["value"][:, columns])
        y = np.concatenate(mixed, axis=1) @ kernel["output_projection"]
        return self.norm(path, x + y)

    def ffn(self, path, x):
        inner = f"{path}/feed_forward"
        hidden = np.maximum(0, self.dense(f"{inner}/filter", x))
        y = self.dense(f"{inner}/output_projection", hidden)
        return self.norm(path, x + y)

    def dense(self, path, x):
        return x @ self.weights[f"{path}/kernel"] + self.weights[f"{path}/bias"]

    def norm(self, path, x):
        gain = self.weights[f"{path}/norm/gamma"]
        bias = self.weights[f"{path}/norm/beta"]
        x = x - x.mean(1, keepdims=True)
        deviation = np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)
        return x / deviation * gain + bias


@pytest.fixture(scope="module")
def model(tiny_hparams, vocab_size):
    """Every weight random, so that none hides behind a 0 or a 1."""
    model = transformer.build(tiny_hparams, vocab_size)
    random = np.random.default_rng(0)
    for weight in model.weights:
        noise = random.normal(size=weight.shape, scale=0.2)
        weight.assign(weight.numpy() + noise.astype(np.float32))
    return model


@pytest.fixture(scope="module")
def packed(tiny_corpora):
    """Corpus, the plan's first batch, its arrays."""
    corpus = tiny_corpora["train"]
    plan = plans.build(corpus.lengths, "packed", 200, 32, seed=0)
    batch = plan.batch(0)
    return corpus, batch, batches.assemble(corpus, batch)


def _features(inputs, targets):
    """A sentence a row -> the features of data/batches.py."""
    features = {}
    for side, ids in (("inputs", inputs), ("targets", targets)):
        real = ids > 0
        features[side] = ids
        features[f"{side}_segment"] = real.astype(np.int32)
        features[f"{side}_position"] = np.arange(ids.shape[1]) * real
    return {name: tf.cast(ids, tf.int32) for name, ids in features.items()}


def test_equals_numpy_sentence_by_sentence(model):
    logits = model(_features(INPUTS, TARGETS)).numpy()
    assert logits.shape == (2, 6, model.vocab_size)
    assert logits.dtype == np.float32
    reference = NumpyTransformer(model)
    for row in range(2):
        inputs, targets = INPUTS[row], TARGETS[row]
        targets = targets[targets > 0]
        expected = reference.logits(inputs[inputs > 0], targets)
        actual = logits[row, : len(targets)]
        np.testing.assert_allclose(actual, expected, atol=2e-4)


def test_packed_rows_equal_numpy_and_the_sentences_alone(model, packed):
    corpus, batch, arrays = packed
    reference = NumpyTransformer(model)
    logits = model(arrays).numpy()
    own_rows = np.arange(len(batch.pairs))
    alone = batches.assemble(
        corpus, batch._replace(rows=own_rows, num_rows=len(own_rows))
    )
    logits_alone = model(alone).numpy()
    assert len(batch.pairs) > 2 * batch.num_rows
    for i, (pair, row) in enumerate(zip(batch.pairs, batch.rows, strict=True)):
        segment = 1 + list(batch.pairs[batch.rows == row]).index(pair)
        actual = logits[row, arrays["targets_segment"][row] == segment]
        inputs, targets = (
            corpus.gather(side, np.array([pair]))
            for side in ("inputs", "targets")
        )
        expected = reference.logits(inputs, targets)
        np.testing.assert_allclose(actual, expected, atol=2e-4)
        expected = logits_alone[i, : len(targets)]
        np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_no_target_sees_itself_or_the_future(model):
    expected = model(_features(INPUTS, TARGETS)).numpy()
    for place in range(TARGETS.shape[1]):
        changed = TARGETS.copy()
        changed[1, place] = 11
        logits = model(_features(INPUTS, changed)).numpy()
        np.testing.assert_array_equal(logits[0], expected[0])
        np.testing.assert_array_equal(
            logits[1, : place + 1], expected[1, : place + 1]
        )
        for later in range(place + 1, TARGETS.shape[1]):
            assert np.abs(logits[1, later] - expected[1, later]).max() > 1e-3


def test_gradient_of_a_packed_sentence_stays_in_it(model, packed):
    """Logits of slot t depend on the slots before t of the same segment."""
    arrays = {name: tf.constant(ids[:1]) for name, ids in packed[2].items()}
    segments = arrays["targets_segment"].numpy()[0]
    start, end = np.flatnonzero(segments == 2)[[0, -1]]
    embedding = model.embedding.weight.numpy()
    # Each slot gets an embedding of its own, so that its gradient is seen.
    ids = tf.range(32)[None] + model.vocab_size
    rows = [*embedding, *embedding[arrays["targets"].numpy()[0]]]
    wide = transformer.build(model.hparams, model.vocab_size + 32)
    wide.set_weights([np.array(rows), *model.get_weights()[1:]])
    place = (start + end) // 2
    with tf.GradientTape() as tape:
        logits = wide(arrays | {"targets": ids})
        one = tf.reduce_sum(logits[0, place, : model.vocab_size] ** 2)
    gradient = tf.convert_to_tensor(tape.gradient(one, wide.weights[0].value))
    reached = np.abs(gradient.numpy()[model.vocab_size :]).max(1) > 0
    expected = [start <= slot < place for slot in range(32)]
    np.testing.assert_array_equal(reached, expected)


def test_padding_has_no_influence(model):
    features = _features(INPUTS, TARGETS)
    expected = model(features).numpy()
    real = TARGETS > 0
    # More of it, and other ids in it.
    wider = _features(
        np.pad(INPUTS, ((0, 0), (0, 9))), np.pad(TARGETS, ((0, 0), (0, 4)))
    )
    for side in ("inputs", "targets"):
        padding = wider[f"{side}_segment"] == 0
        wider[side] = tf.where(padding, 7, wider[side])
    logits = model(wider).numpy()[:, : TARGETS.shape[1]]
    np.testing.assert_allclose(logits[real], expected[real], atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_decode_step_by_step_equals_the_whole(model, dtype):
    """Two beams a sentence, each with targets of its own."""
    copy = transformer.build(model.hparams, model.vocab_size, dtype)
    copy.set_weights(model.get_weights())
    beams = np.array(
        [[[4, 5, 6, 7], [9, 9, 2, 3]], [[5, 5, 5, 5], [2, 3, 4, 1]]], np.int32
    )  # [B, W, T]
    memory, cache = copy.start_decoding(INPUTS, beam_size=2, max_length=4)
    steps = []
    for step in range(4):
        # What is given at step 0 is not read.
        before = beams[:, :, step - 1] if step else np.full((2, 2), 13)
        logits, cache, weights = copy.decode_step(
            tf.constant(before, tf.int32), tf.constant(step), cache, memory
        )
        assert logits.dtype == tf.float32
        steps.append(logits.numpy())
    tolerance = 1e-4 if dtype == "float32" else 0.3
    for beam in range(2):
        expected = copy(_features(INPUTS, beams[:, beam])).numpy()
        actual = np.stack(steps, axis=2)[:, beam]
        np.testing.assert_allclose(actual, expected, atol=tolerance)
    assert weights.shape == (2, 2, 2, 2, INPUTS.shape[1])
    np.testing.assert_allclose(tf.reduce_sum(weights, -1), 1.0, rtol=1e-5)
    hidden = np.broadcast_to((INPUTS == 0)[None, :, None, None], weights.shape)
    assert np.all(weights.numpy()[hidden] == 0)


def test_dropout_of_a_row_does_not_depend_on_its_batch(model, packed):
    arrays = packed[2]
    noise = dropout.noise(3, 5, 0, len(arrays["targets"]))
    whole = model(arrays, noise=noise).numpy()
    assert not np.allclose(whole, model(arrays), atol=0.01)
    part = {name: ids[2:5] for name, ids in arrays.items()}
    logits = model(part, noise=dropout.noise(3, 5, 2, 3))
    np.testing.assert_allclose(logits, whole[2:5], atol=1e-5)
