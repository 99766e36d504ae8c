"""Marian's transformer in numpy, with the names and formulas of its sources.

Facts are from marian-nmt/marian-dev, src/: models/transformer.h (type
transformer), layers/embedding.cpp, layers/output.cpp, layers/generic.h,
models/decoder.h, tensors/cpu/tensor_operators.cpp, translator/history.h.
"""

import math

import numpy as np

_LOWEST = -99999999.0  # transposedLogMask()


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _erf(x):
    return np.vectorize(math.erf)(x)


# graph/node_operators_unary.h
_ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "swish": lambda x: x * _sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu before 1.12.3": lambda x: x * _sigmoid(1.702 * x),
}


def sinusoids(length, size):
    """Return SinusoidalPositionEmbeddings() of tensor_operators.cpp."""
    half = size // 2
    step = math.log(10_000) / (half - 1)
    table = np.zeros((length, size))
    for j, i in np.ndindex(length, size):
        v = j * math.exp((i % half) * -step)
        table[j, i] = math.sin(v) if i < half else math.cos(v)
    return table


class NumpyMarian:
    """A model in float64, for one sentence pair at a time."""

    def __init__(self, arrays, options):
        """Store weights {Marian's name: array} and options {name: value}."""
        self.arrays = {
            name: np.asarray(array, np.float64)
            for name, array in arrays.items()
            if not name.startswith("special:")
        }
        self.options = options

    def logits(self, source, target):
        """Return [T + 1, V] for source ids with EOS and T ids of a target."""
        shared = self.opt("tied-embeddings-src") or self.opt(
            "tied-embeddings-all"
        )
        names = [
            "Wemb" if shared else f"{side}_Wemb"
            for side in ("encoder", "decoder")
        ]
        context = self.stack("encoder", self.arrays[names[0]][source])
        size = context.shape[1]
        # models/decoder.h: a zero at the front.
        history = np.zeros((len(target) + 1, size))
        history[1:] = self.arrays[names[1]][target]
        states = self.stack("decoder", history, context)
        return self.output(states, names[1])

    def output(self, x, embedding):
        """Return Output::applyAsLogits()."""
        name = "decoder_ff_logit_out"
        if self.opt("tied-embeddings") or self.opt("tied-embeddings-all"):
            y = x @ self.arrays[embedding].T
        elif f"{name}_W" in self.arrays:
            y = x @ self.arrays[f"{name}_W"]
        else:
            y = x @ self.arrays[f"{name}_Wt"].T
        if not self.opt("output-omit-bias"):
            y = y + self.arrays[f"{name}_b"]
        return y

    def greedy(self, source, eos, longest, suppressed=()):
        """Return the ids, with EOS, that marian-decoder -b 1 finds."""
        found = []
        while len(found) < longest:
            step = self.logits(source, found)[-1]
            step[list(suppressed)] = _LOWEST
            found.append(int(step.argmax()))
            if found[-1] == eos:
                break
        return found

    def opt(self, name):
        return self.options.get(name, "")

    def stack(self, prefix, x, context=None):
        """Return EncoderTransformer::apply() or DecoderTransformer::step()."""
        length, size = x.shape
        if not self.opt("transformer-disable-position-embeddings"):
            if self.opt("transformer-train-positions"):
                table = self.arrays["Wpos"]
                rows = [min(i, len(table) - 1) for i in range(length)]
                x = x + table[rows]
            else:
                x = math.sqrt(size) * x + sinusoids(length, size)
        emb, top = (
            self.opt(f"transformer-postprocess-{place}")
            for place in ("emb", "top")
        )
        before = x
        x = self.preprocess(f"{prefix}_emb", emb, x)
        depth = self.opt(f"{prefix[:3]}-depth")
        numbers = range(1, depth + 1)
        if prefix == "decoder":
            numbers = self.opt("transformer-tied-layers") or numbers
        mask = np.ones((length, length))
        if prefix == "decoder":
            mask = np.tril(mask)
        for number in numbers:
            layer = f"{prefix}_l{number}"
            x = self.attention_layer(f"{layer}_self", x, x, mask)
            if context is not None:
                mask_of_context = np.ones((length, len(context)))
                x = self.attention_layer(
                    f"{layer}_context", x, context, mask_of_context
                )
            x = self.ffn_layer(f"{layer}_ffn", x)
        return self.postprocess(f"{prefix}_top", top, x, before)

    def attention_layer(self, prefix, x, keys, mask):
        """Return LayerAttention()."""
        output = self.preprocess(
            f"{prefix}_Wo", self.opt("transformer-preprocess"), x
        )
        if keys is x:
            keys = output
        q = self.affine(output, f"{prefix}_Wq", f"{prefix}_bq")
        k = self.affine(keys, f"{prefix}_Wk", f"{prefix}_bk")
        v = self.affine(keys, f"{prefix}_Wv", f"{prefix}_bv")
        heads = self.opt("transformer-heads")
        width = q.shape[1] // heads
        joined = np.zeros_like(q)
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            z = q[:, part] @ k[:, part].T / math.sqrt(width)
            z = z + (1 - mask) * _LOWEST
            z = np.exp(z - z.max(1, keepdims=True))
            joined[:, part] = (z / z.sum(1, keepdims=True)) @ v[:, part]
        output = self.affine(joined, f"{prefix}_Wo", f"{prefix}_bo")
        operations = self.opt("transformer-postprocess")
        return self.postprocess(f"{prefix}_Wo", operations, output, x)

    def ffn_layer(self, prefix, x):
        """Return LayerFFN() of depth 2."""
        output = self.preprocess(
            f"{prefix}_ffn", self.opt("transformer-preprocess"), x
        )
        name = self.opt("transformer-ffn-activation")
        if name == "gelu" and self.opt("version") < "v1.12.3":
            name = "gelu before 1.12.3"
        hidden = self.affine(output, f"{prefix}_W1", f"{prefix}_b1")
        output = self.affine(
            _ACTIVATIONS[name](hidden), f"{prefix}_W2", f"{prefix}_b2"
        )
        operations = self.opt("transformer-postprocess")
        return self.postprocess(f"{prefix}_ffn", operations, output, x)

    def affine(self, x, weight, bias):
        return x @ self.arrays[weight] + self.arrays[bias]

    def preprocess(self, prefix, operations, x):
        for operation in operations:
            if operation == "n":
                x = self.layer_norm(x, prefix, "_pre")
        return x

    def postprocess(self, prefix, operations, x, before):
        for operation in operations:
            if operation == "a":
                x = x + before
            elif operation == "n":
                x = self.layer_norm(x, prefix, "")
        return x

    def layer_norm(self, x, prefix, suffix):
        centered = x - x.mean(1, keepdims=True)
        sigma = np.sqrt((centered**2).mean(1, keepdims=True) + 1e-6)
        scale = self.arrays[f"{prefix}_ln_scale{suffix}"]
        return (
            scale * centered / sigma + self.arrays[f"{prefix}_ln_bias{suffix}"]
        )
