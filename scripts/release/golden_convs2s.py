"""Writer of tests/golden/pytorch_convs2s.npz, computed with PyTorch.

    torch_venv/bin/python -m scripts.release.golden_convs2s

golden_pytorch.py says how to create torch_venv. The model is a small ConvS2S of
torch.nn.Conv1d, nn.Linear, functional.glu and weight_norm, in float64. It
shares no code with t2t_repro, only the names of the weights. PyTorch computes
each pair of sentences alone and unpadded; tests compare a padded batch of all
pairs.

The file contains, with the N positions that are not padding in the batch:

    command, torch, settings   provenance, and hparams as JSON
    weights/PATH               float16, which represents each weight exactly
    padded/FEATURE             ids, segments and positions
    encoder_output             [N, D] float32
    logits                     [N, V] float32
    attention                  [layers, N, L] float32, 0 at padding
    smoothed, plain            [] float32, mean losses per token
    gradients/PATH             of the smoothed loss, float32
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from scripts.release import golden_files
from scripts.release.golden_files import VOCAB_SIZE

ENCODER = ((12, 3), (12, 3), (8, 2), (8, 1))  # (channels, kernel width)
DECODER = ((12, 3), (10, 2), (10, 1))
SETTINGS = {
    "hidden_size": 8,
    "encoder_convolutions": "12x3*2+8x2+8x1",
    "decoder_convolutions": "12x3+10x2+10x1",
    "max_length": 8,
    "label_smoothing": 0.1,
}
SEED = 20170508


def linear(inputs, outputs):
    """Return a weight-normalized linear layer."""
    return weight_norm(nn.Linear(inputs, outputs))


class Block(nn.Module):
    """Gated convolution of x [1, N, C] in a residual; attention if causal."""

    def __init__(self, inputs, channels, width, causal):
        super().__init__()
        self.causal, self.width = causal, width
        self.conv = weight_norm(nn.Conv1d(inputs, 2 * channels, width))
        self.projection = linear(inputs, channels)
        self.projects = inputs != channels
        if causal:
            self.query = linear(channels, SETTINGS["hidden_size"])
            self.output = linear(SETTINGS["hidden_size"], channels)

    def forward(self, x, embedded=None, source=None):
        residual = self.projection(x) if self.projects else x
        before = self.width - 1 if self.causal else (self.width - 1) // 2
        padded = functional.pad(
            x.transpose(1, 2), (before, self.width - 1 - before)
        )
        y = functional.glu(self.conv(padded).transpose(1, 2), dim=-1)
        weights = None
        if self.causal:
            states, values = source
            query = (self.query(y) + embedded) * math.sqrt(0.5)
            weights = torch.softmax(query @ states.transpose(1, 2), dim=-1)
            length = states.shape[1]
            context = weights @ values * (length * math.sqrt(1 / length))
            y = (y + self.output(context)) * math.sqrt(0.5)
        return (y + residual) * math.sqrt(0.5), weights


class Stack(nn.Module):
    """Embeddings, blocks and projections of one side."""

    def __init__(self, convolutions, causal):
        super().__init__()
        size = SETTINGS["hidden_size"]
        self.embedding = nn.Embedding(VOCAB_SIZE, size)
        self.positions = nn.Embedding(SETTINGS["max_length"], size)
        channels = convolutions[0][0]
        self.input = linear(size, channels)
        self.blocks = nn.ModuleList()
        for outputs, width in convolutions:
            self.blocks.append(Block(channels, outputs, width, causal))
            channels = outputs
        self.output = linear(channels, size)

    def forward(self, vectors, source=None):
        """Return embeddings, output and the blocks' attention weights."""
        positions = torch.arange(vectors.shape[1])
        embedded = vectors + self.positions(positions)
        x, attention = self.input(embedded), []
        for block in self.blocks:
            x, weights = block(x, embedded, source)
            attention.append(weights)
        return embedded, self.output(x), attention


class ConvS2S(nn.Module):
    """Two stacks and a linear layer."""

    def __init__(self):
        super().__init__()
        self.encoder = Stack(ENCODER, causal=False)
        self.decoder = Stack(DECODER, causal=True)
        self.softmax = linear(SETTINGS["hidden_size"], VOCAB_SIZE)

    def forward(self, inputs, targets):
        """Return encoder output, logits and attention of ids [1, L], [1, T]."""
        embedded, states, _ = self.encoder(self.encoder.embedding(inputs))
        if states.requires_grad:
            states.register_hook(lambda grad: grad / len(DECODER))
        values = (states + embedded) * math.sqrt(0.5)
        vectors = self.decoder.embedding(targets)
        start = torch.zeros_like(vectors[:, :1])
        shifted = torch.cat([start, vectors[:, :-1]], dim=1)
        _, x, attention = self.decoder(shifted, (states, values))
        return states, self.softmax(x), attention


def named_parameters(model):
    """Return {path in t2t_repro: parameter}."""
    named = {}

    def normalized(path, module):
        weight = module.parametrizations.weight
        named[f"{path}/gain"] = weight.original0
        named[f"{path}/direction"] = weight.original1
        named[f"{path}/bias"] = module.bias

    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        named[f"{name}/embedding/table"] = stack.embedding.weight
        named[f"{name}/positions/table"] = stack.positions.weight
        normalized(f"{name}/input_projection", stack.input)
        normalized(f"{name}/output_projection", stack.output)
        for i, block in enumerate(stack.blocks):
            path = f"{name}/layer_{i}"
            normalized(f"{path}/convolution/linear", block.conv)
            if block.projects:
                normalized(f"{path}/projection", block.projection)
            if block.causal:
                normalized(f"{path}/attention/query", block.query)
                normalized(f"{path}/attention/output_projection", block.output)
    normalized("softmax", model.softmax)
    return named


def from_torch(path, array):
    """Return torch's array in the shape of t2t_repro's weight."""
    if path.endswith("/gain"):
        return array.reshape(-1)
    if array.ndim == 3:  # [out, in, width] -> [out, width * in]
        return array.transpose(0, 2, 1).reshape(len(array), -1)
    return array


def to_torch(path, array, shape):
    """Return t2t_repro's weight in the shape of torch's."""
    if len(shape) == 3 and not path.endswith("/gain"):
        outputs, inputs, width = shape
        return array.reshape(outputs, width, inputs).transpose(0, 2, 1)
    return array.reshape(shape)


def draw_weights(model, random):
    """Set random weights; return them as {path: float16 array}."""
    weights = {}
    for path, parameter in named_parameters(model).items():
        mean = 1.0 if path.endswith("/gain") else 0.0
        shape = from_torch(path, parameter.detach().numpy()).shape
        weights[path] = random.normal(mean, 0.5, shape).astype(np.float16)
        values = to_torch(path, weights[path], parameter.shape)
        parameter.data.copy_(torch.from_numpy(values.astype(np.float64)))
    return weights


def compute(model, sentences, slots):
    """Return {name: array} of all pairs, each computed alone.

    Args:
        model: a ConvS2S.
        sentences: pairs of lists of ids.
        slots: L of the padded batch.
    """
    results = {"encoder_output": [], "logits": [], "attention": []}
    for source, target in sentences:
        states, logits, attention = model(
            torch.tensor([source]), torch.tensor([target])
        )
        weights = torch.cat(attention)  # [layers, T, L]
        results["encoder_output"].append(states[0])
        results["logits"].append(logits[0])
        results["attention"].append(
            functional.pad(weights, (0, slots - len(source)))
        )
    results = {
        name: torch.cat(parts, dim=1 if name == "attention" else 0)
        for name, parts in results.items()
    }
    labels = torch.tensor([i for _, target in sentences for i in target])
    results |= golden_files.losses(
        results["logits"], labels, SETTINGS["label_smoothing"]
    )
    results["smoothed"].backward()
    arrays = {name: value.detach().numpy() for name, value in results.items()}
    for path, parameter in named_parameters(model).items():
        arrays[f"gradients/{path}"] = from_torch(path, parameter.grad.numpy())
    return arrays


def main():
    random = np.random.default_rng(SEED)
    sentences = golden_files.draw_sentences(random)
    batch = golden_files.lay_out(sentences, golden_files.PADDED)
    model = ConvS2S()
    weights = draw_weights(model, random)
    stored = {f"weights/{path}": array for path, array in weights.items()}
    for feature, array in batch.items():
        stored[f"padded/{feature}"] = array.astype(np.uint8)
    results = compute(model, sentences, batch["inputs"].shape[1])
    for name, array in results.items():
        stored[name] = array.astype(np.float32)
    golden_files.save("convs2s", SETTINGS, stored)


if __name__ == "__main__":
    golden_files.run(main, __doc__)
