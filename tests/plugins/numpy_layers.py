"""Layers in numpy, for references of layers and of other systems' models."""

import math

import numpy as np


def normal(*shape, seed=0):
    """Return float32 numbers of the normal distribution."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    """Return x times the normal distribution's function of it."""
    return x * np.vectorize(lambda z: 0.5 * (1 + math.erf(z / math.sqrt(2))))(x)


def gelu_tanh(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def silu(x):
    return x * sigmoid(x)


def softmax(logits):
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def timing(length, size, first=0):
    """Return tensor2tensor's timing signal [length, size]."""
    half = size // 2
    table = np.zeros((length, size))
    for row in range(length):
        for i in range(half):
            angle = (row + first) * 10_000 ** (-i / (half - 1))
            table[row, i] = math.sin(angle)
            table[row, half + i] = math.cos(angle)
    return table


def project(x, weights):
    """Apply a projection: a kernel [inputs, outputs], and a bias or None."""
    kernel, bias = weights
    return x @ kernel + (0 if bias is None else bias)


class Reference:
    """Small Transformer of another system: its formulas, and names of weights.

    A subclass has the methods that are not defined here, and the names of the
    projections and of the norm of a sublayer "self", "cross" or "ffn":
    names(side, i, kind). A side is "encoder" or "decoder".
    """

    size, width, heads, epsilon = 8, 12, 2, 1e-6
    keys = values = 8  # channels of all heads
    decoder_width = 0  # 0: width

    def __init__(self, pre_norm, activation=relu, arrays=None, seed=1):
        """Store arrays by their names; None: draw those that are used."""
        self.pre_norm, self.activation = pre_norm, activation
        self._random = None if arrays else np.random.default_rng(seed)
        self.arrays = arrays or {}

    def get(self, name, *shape, mean=0.0):
        """Return an array in float64."""
        if self._random and name not in self.arrays:
            deviation = 0.5 if min(shape[0], len(shape)) > 1 else 0.2
            array = self._random.normal(mean, deviation, shape)
            self.arrays[name] = array.astype(np.float32)
        return self.arrays[name].astype(float)

    def weights(self, side, i, kind):
        """Return the projections and the norm of a sublayer."""
        size, keys, values = self.size, self.keys, self.values
        shapes = [(size, keys), (size, keys), (size, values), (values, size)]
        if kind == "ffn":
            width = side == "decoder" and self.decoder_width or self.width
            shapes = [(size, width), (width, size)]
        names, norm = self.names(side, i, kind)
        return [
            self.dense(name, *shape)
            for name, shape in zip(names, shapes, strict=True)
        ], self.norm(norm)

    def normalize(self, x, norm):
        gain, bias = norm
        x = x - x.mean(-1, keepdims=True)
        variance = (x**2).mean(-1, keepdims=True)
        return x / np.sqrt(variance + self.epsilon) * gain + bias

    def attend(self, x, memory, weights, causal):
        """Attend from x [T, D] to memory [L, D]."""
        heads = [
            np.split(project(y, w), self.heads, axis=-1)
            for y, w in zip((x, memory, memory), weights, strict=False)
        ]
        contexts = []
        for q, k, v in zip(*heads, strict=True):
            logits = q @ k.T / math.sqrt(q.shape[-1])
            if causal:
                logits = np.where(np.tri(len(x), dtype=bool), logits, -np.inf)
            contexts.append(softmax(logits) @ v)
        return project(np.concatenate(contexts, axis=-1), weights[3])

    def sublayer(self, x, side, i, kind, memory):
        """Apply a sublayer, with its norm before or after it."""
        weights, norm = self.weights(side, i, kind)
        y = self.normalize(x, norm) if self.pre_norm else x
        if kind == "ffn":
            y = project(self.activation(project(y, weights[0])), weights[1])
        elif kind == "cross":
            y = self.attend(y, memory, weights, False)
        else:
            y = self.attend(y, y, weights, memory is not None)
        return x + y if self.pre_norm else self.normalize(x + y, norm)

    def stack(self, side, ids, memory=None):
        """Return the states [N, D] of a side."""
        x = self.embed(side, ids)
        kinds = ["self", "ffn"] if memory is None else ["self", "cross", "ffn"]
        for i in self.numbers(side):
            for kind in kinds:
                x = self.sublayer(x, side, i, kind, memory)
        if self.pre_norm:
            x = self.normalize(x, self.norm(self.final_norm.format(side)))
        return x

    def logits(self, inputs, outputs):
        """Return logits [T + 1, V] for ids [L] and [T] of the system."""
        memory = self.stack("encoder", inputs)
        return self.softmax(self.stack("decoder", outputs, memory))

    def drawn(self):
        """Return random arrays, by their names."""
        self.logits([0], [])
        return self.arrays
