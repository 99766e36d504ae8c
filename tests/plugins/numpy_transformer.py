"""Reference implementation of the Transformer in numpy, without batches."""

import math

import numpy as np
import numpy_layers

EOS = 1
ACTIVATIONS = {
    "relu": numpy_layers.relu,
    "gelu": numpy_layers.gelu,
    "gelu_tanh": numpy_layers.gelu_tanh,
    "gelu_sigmoid": lambda x: x * numpy_layers.sigmoid(1.702 * x),
    "silu": numpy_layers.silu,
    "glu": numpy_layers.sigmoid,
    "reglu": numpy_layers.relu,
    "geglu": numpy_layers.gelu,
    "geglu_tanh": numpy_layers.gelu_tanh,
    "swiglu": numpy_layers.silu,
}


def rotated(x):
    """Turn pairs of x [T, K], complex numbers, by angles of positions."""
    half = x.shape[1] // 2
    rates = 10_000.0 ** -(np.arange(half) / half)
    turns = np.exp(1j * np.arange(len(x))[:, None] * rates)
    numbers = (x[:, :half] + 1j * x[:, half:]) * turns
    return np.concatenate([numbers.real, numbers.imag], 1)


class NumpyTransformer:
    """Sections 3.1 to 3.5 and variants in float64, pair by pair."""

    def __init__(self, model):
        self.hparams = model.hparams
        self.pre_norm = self.hparams.layer_preprocess_sequence == "n"
        self.weights = {
            weight.path.partition("/")[2]: weight.numpy().astype(np.float64)
            for weight in model.weights
        }

    def run(self, inputs, targets):
        """Return logits [T, V] and {kind: weights [layers, H, …]}."""
        hparams = self.hparams
        names = ("inputs_embedding", "targets_embedding", "softmax")
        if hparams.shared_embedding_and_softmax_weights:
            names = ("embedding",) * 3
        elif hparams.shared_embedding:
            names = ("embedding", "embedding", "softmax")
        elif hparams.shared_targets_embedding_and_softmax_weights:
            names = (*names[:2], "targets_embedding")
        matrices = [self.weights[f"{name}/weight"] for name in names]
        scale = math.sqrt(hparams.hidden_size)
        if hparams.multiply_embedding_mode == "none":
            scale = 1.0
        self.attended = {"encoder": [], "decoder": [], "cross": []}
        x = matrices[0][inputs] * scale + self.weights.get("inputs_bias", 0)
        visible = np.ones(len(inputs), bool)
        if not hparams.encode_eos and len(inputs) > 1:
            visible = inputs != EOS
        x = self.stack("encoder", x, "inputs", visible)
        y = np.zeros((len(targets), x.shape[1]))
        if hparams.learned_start:
            y[0] = self.weights["start"] * scale
        y[1:] = matrices[1][targets[:-1]] * scale
        y = self.stack("decoder", y, "targets", None, (x, visible))
        logits = y @ matrices[2].T
        if hparams.softmax_bias:
            logits += self.weights[f"{names[2]}/bias"]
        return logits, {k: np.array(v) for k, v in self.attended.items()}

    def stack(self, side, x, name, visible, memory=None):
        """Run the layers of a side; a decoder reads memory, where visible."""
        hparams = self.hparams
        x = x + self.positions(f"{name}_positions", *x.shape)
        x = self.norm(f"{side}/input_norm", x, hparams.embedding_norm)
        count = getattr(hparams, f"num_{side}_layers")
        for i in range(count or hparams.num_hidden_layers):
            path = f"{side}/layer_{i}"
            x = self.sublayer(f"{path}/self_attention", x, visible)
            if memory:
                x = self.sublayer(f"{path}/cross_attention", x, *memory)
            x = self.sublayer(f"{path}/ffn", x)
        return self.norm(f"{side}/norm", x, self.pre_norm)

    def sublayer(self, path, x, *arguments):
        """Apply the method at the end of a path, with the norms there are."""
        method = getattr(self, path.rpartition("/")[2])
        y = self.norm(f"{path}/input_norm", x, self.pre_norm)
        post_norm = self.hparams.layer_postprocess_sequence == "dan"
        return self.norm(
            f"{path}/norm", x + method(path, y, *arguments), post_norm
        )

    def positions(self, name, length, size):
        pos, table = self.hparams.pos, np.zeros((length, size))
        for row, i in np.ndindex(length, size // 2):
            number = row + self.hparams.first_position
            angle = number / 10_000 ** (2 * i / size)
            sine, cosine = i, size // 2 + i
            if pos == "timing":
                angle = number / 10_000 ** (i / (size // 2 - 1))
            elif pos == "sinusoids":
                sine, cosine = 2 * i, 2 * i + 1
            table[row, sine] = math.sin(angle)
            table[row, cosine] = math.cos(angle)
        if pos == "emb":
            return self.weights[f"{name}/table"][:length]
        return 0 * table if pos in ("none", "rotary", "buckets") else table

    def self_attention(self, path, x, keys):
        """Attend to earlier positions, or to those where `keys` is True."""
        side, length = path.partition("/")[0], len(x)
        reach = self.hparams.restricted_attention or length
        visible = [
            [abs(i - j) < reach and (j <= i if keys is None else keys[j])]
            for i, j in np.ndindex(length, length)
        ]
        mask = np.reshape(visible, (length, length))
        rotate = rotated if self.hparams.pos == "rotary" else None
        bias = None
        if self.hparams.pos == "buckets":
            bias = self.bucket_biases(side, length)
        return self.attend(side, path, x, x, mask, rotate, bias)

    def bucket_biases(self, side, length):
        """Return the biases [H, T, T] of the buckets of distances."""
        path = f"{side}/layer_0/self_attention/multihead_attention"
        table = self.weights[f"{path}/position_buckets/table"]
        causal, last = side == "decoder", self.hparams.max_bucket_distance
        count = len(table) if causal else len(table) // 2
        single = count // 2
        result = np.zeros((table.shape[1], length, length))
        for i, j in np.ndindex(length, length):
            bucket = distance = max(i - j, 0) if causal else abs(i - j)
            if distance >= single:
                share = math.log(distance / single) / math.log(last / single)
                bucket = single + int(share * (count - single))
            bucket = min(bucket, count - 1)
            if j > i and not causal:
                bucket += count
            result[:, i, j] = table[bucket]
        return result

    def cross_attention(self, path, x, memory, keys):
        mask = np.tile(keys, (len(x), 1))
        return self.attend("cross", path, x, memory, mask)

    def attend(self, kind, path, x, memory, mask, rotate=None, bias=None):
        """Return contexts, and append the weights of heads to their kind."""
        path = f"{path}/multihead_attention"
        count = self.hparams.num_heads
        groups = self.hparams.num_key_value_heads or count
        heads = [
            np.split(self.project(f"{path}/{name}", array), parts, axis=1)
            for name, array, parts in (
                ("query", x, count),
                ("key", memory, groups),
                ("value", memory, groups),
            )
        ]
        contexts, all_weights = [], []
        for head in range(count):
            query, key, value = (
                parts[head * len(parts) // count] for parts in heads
            )
            if rotate:
                query, key = rotate(query), rotate(key)
            logits = np.full(mask.shape, -np.inf)
            for i, j in np.argwhere(mask):
                logits[i, j] = self.compatibility(
                    path, head, query[i], key[j], j - i
                )
                if bias is not None:
                    logits[i, j] += bias[head, i, j]
            weights = numpy_layers.softmax(logits)
            context = weights @ value
            for i, j in np.argwhere(mask):
                context[i] += weights[i, j] * self.vector(path, "values", j - i)
            contexts.append(context)
            all_weights.append(weights)
        self.attended[kind].append(np.array(all_weights))
        context = np.concatenate(contexts, axis=1)
        return self.project(f"{path}/output_projection", context)

    def project(self, path, x):
        if self.hparams.attention_bias:
            return self.dense(path, x)
        return x @ self.weights[f"{path}/kernel"]

    def compatibility(self, path, head, query, key, distance):
        kind = self.hparams.attention_type
        if kind == "additive":
            v = self.weights[f"{path}/compatibility/weight"][head]
            return v @ np.tanh(query + key)
        product = query @ (key + self.vector(path, "keys", distance))
        return product / (math.sqrt(len(query)) if kind == "dot_product" else 1)

    def vector(self, path, kind, distance):
        """Return the vector of a distance; 0 if positions are not relative."""
        table = self.weights.get(f"{path}/relative_{kind}")
        if table is None:
            return 0.0
        limit = len(table) // 2
        return table[min(max(distance, -limit), limit) + limit]

    def ffn(self, path, x):
        inner, name = f"{path}/feed_forward", self.hparams.ffn_activation
        hidden = ACTIVATIONS[name](self.dense(f"{inner}/filter", x))
        if "glu" in name:
            hidden = hidden * self.dense(f"{inner}/linear", x)
        return self.dense(f"{inner}/output_projection", hidden)

    def dense(self, path, x):
        return x @ self.weights[f"{path}/kernel"] + self.weights[f"{path}/bias"]

    def norm(self, path, x, is_used):
        if not is_used:
            return x
        is_rms = self.hparams.norm == "rms"
        x = x if is_rms else x - x.mean(1, keepdims=True)
        deviation = np.sqrt(
            (x**2).mean(1, keepdims=True) + self.hparams.norm_epsilon
        )
        if is_rms:
            return x / deviation * self.weights[f"{path}/scale"]
        gain, bias = self.weights[f"{path}/gamma"], self.weights[f"{path}/beta"]
        return x / deviation * gain + bias
