"""Writer of tests/golden/pytorch_bytenet.npz, computed with PyTorch.

    torch_venv/bin/python -m scripts.release.golden_bytenet

golden_pytorch.py says how to create torch_venv. The model is a small ByteNet of
torch.nn's Conv1d, LayerNorm and Embedding. It computes in float64 and shares no
code with t2t_repro. Each sentence is computed alone, without any padding but
its own columns, so that the file also tests masks.

The file contains, with the N positions of all sentences in a row:

    command, torch, settings   provenance, and hparams as JSON
    weights/PATH               float16, which represents each weight exactly
    batch/FEATURE              ids, segments and positions
    columns                    [B], columns of the encoder's output
    encoder_output             [all columns, D] float32
    logits                     [N, V] float32
    smoothed, plain            [] float32, mean losses per token
    gradients/PATH             of the smoothed loss, float32
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from scripts.release import golden_files
from scripts.release.golden_files import EPSILON, VOCAB_SIZE

SETTINGS = {
    "hidden_size": 16,
    "kernel_width": 3,
    "max_dilation": 4,
    "num_block_repeat": 1,
    "target_ratio": 1.2,
    "target_offset": 1,
    "label_smoothing": 0.1,
}
DILATIONS = (1, 2, 4)
SEED = 20161031


class Block(nn.Module):
    """Residual block of figure 3, left, on x [1, channels, T]."""

    def __init__(self, dilation, causal):
        super().__init__()
        outer, inner = SETTINGS["hidden_size"], SETTINGS["hidden_size"] // 2
        width = SETTINGS["kernel_width"]
        reach = (width - 1) * dilation
        # Zeros on the left, or on both sides.
        self.pads = (reach, 0) if causal else (reach // 2, reach // 2)
        self.norms = nn.ModuleList(
            nn.LayerNorm(size, EPSILON) for size in (outer, inner, inner)
        )
        self.convolutions = nn.ModuleList(
            [
                nn.Conv1d(outer, inner, 1),
                nn.Conv1d(inner, inner, width, dilation=dilation),
                nn.Conv1d(inner, outer, 1),
            ]
        )

    def forward(self, x):
        y = x
        for i, convolve in enumerate(self.convolutions):
            y = self.norms[i](y.transpose(1, 2)).transpose(1, 2).relu()
            if i == 1:
                y = functional.pad(y, self.pads)
            y = convolve(y)
        return x + y


class ByteNet(nn.Module):
    """Both stacks, with embeddings and softmax."""

    def __init__(self):
        super().__init__()
        size = SETTINGS["hidden_size"]
        for name in ("inputs_embedding", "targets_embedding", "softmax"):
            setattr(self, name, nn.Embedding(VOCAB_SIZE, size))
        for name, causal in (("encoder", False), ("decoder", True)):
            blocks = (Block(dilation, causal) for dilation in DILATIONS)
            setattr(self, name, nn.ModuleList(blocks))
            norm = nn.LayerNorm(size, EPSILON)
            setattr(self, f"{name}_norm", norm)

    def run(self, name, x):
        """Run a stack on x [T, D]."""
        x = x.T[None]
        for block in getattr(self, name):
            x = block(x)
        return getattr(self, f"{name}_norm")(x[0].T)

    def forward(self, source, target):
        """Return the encoder's columns and logits [T, V] of lists of ids."""
        scale = SETTINGS["hidden_size"] ** 0.5
        # 1.2 |s| in tenths, which floats represent.
        count = math.ceil(len(source) * 12 / 10) + SETTINGS["target_offset"]
        padded = source + [0] * (count - len(source))
        x = self.inputs_embedding(torch.tensor(padded)) * scale
        columns = self.run("encoder", x)
        y = self.targets_embedding(torch.tensor(target[:-1], dtype=int)) * scale
        y = functional.pad(y, (0, 0, 1, 0))
        shared = min(count, len(target))
        y = y + functional.pad(
            columns[:shared], (0, 0, 0, len(target) - shared)
        )
        states = self.run("decoder", y)
        return columns, functional.linear(states, self.softmax.weight)


def named_arrays(model, array):
    """Map the names of weights in t2t_repro to views of torch's parameters.

    Args:
        model: a ByteNet.
        array: a function of a parameter; it returns a tensor of that shape.
    """
    named = {
        f"{name}/weight": array(getattr(model, name).weight)
        for name in ("inputs_embedding", "targets_embedding", "softmax")
    }

    def norm(path, module):
        named[f"{path}/gamma"] = array(module.weight)
        named[f"{path}/beta"] = array(module.bias)

    for stack in ("encoder", "decoder"):
        for i, block in enumerate(getattr(model, stack)):
            path = f"{stack}/block_{i}"
            norms = ("input_norm", "inner_norm", "output_norm")
            for name, module in zip(norms, block.norms, strict=True):
                norm(f"{path}/{name}", module)
            names = ("input_projection", "convolution", "output_projection")
            for name, module in zip(names, block.convolutions, strict=True):
                kernel = array(module.weight).permute(2, 1, 0)  # [k, in, out]
                if name != "convolution":
                    kernel = kernel[0]
                named[f"{path}/{name}/kernel"] = kernel
                named[f"{path}/{name}/bias"] = array(module.bias)
        norm(f"{stack}/norm", getattr(model, f"{stack}_norm"))
    return named


def draw_weights(random, named, deviation):
    """Set torch's parameters to random values that float16 represents.

    Args:
        random: numpy generator.
        named: {path: view of a parameter}.
        deviation: standard deviation of the values.

    Returns:
        {path: float16 array}.
    """
    weights = {}
    for path, view in named.items():
        mean = 1.0 if path.endswith("gamma") else 0.0
        values = random.normal(mean, deviation, tuple(view.shape))
        weights[path] = values.astype(np.float16)
        view.copy_(torch.from_numpy(weights[path]))
    return weights


def compute(model, sentences, smoothing):
    """Return {name: array} of all sentences: outputs, losses and gradients.

    Args:
        model: module of (source, target) ids -> encoder's columns, logits.
        sentences: pairs of lists of ids.
        smoothing: label smoothing over the other V - 1 ids.
    """
    outputs = [model(*pair) for pair in sentences]
    columns, logits = zip(*outputs, strict=True)
    logits = torch.cat(logits)
    labels = torch.tensor([i for _, target in sentences for i in target])
    losses = golden_files.losses(logits, labels, smoothing)
    losses["smoothed"].backward()
    return {
        "columns": torch.tensor([len(each) for each in columns]),
        "encoder_output": torch.cat(columns),
        "logits": logits,
        **losses,
    }


def write(name, model, named_arrays, settings, seed, deviation=0.25):
    """Draw weights and sentences, compute, and write the golden file.

    Args:
        name: of the file pytorch_NAME.npz.
        model: a torch module, see compute().
        named_arrays: function of the model, see named_arrays().
        settings: hparams.
        seed: of the weights and the sentences.
        deviation: standard deviation of the weights.
    """
    random = np.random.default_rng(seed)
    sentences = golden_files.draw_sentences(random)
    parameters = named_arrays(model, lambda p: p.detach())
    weights = draw_weights(random, parameters, deviation)
    results = compute(model, sentences, settings["label_smoothing"])
    gradients = named_arrays(model, lambda p: p.grad)
    results |= {f"gradients/{path}": view for path, view in gradients.items()}
    batch = golden_files.lay_out(sentences, golden_files.PADDED)
    stored = {f"weights/{path}": array for path, array in weights.items()}
    for feature, array in batch.items():
        stored[f"batch/{feature}"] = array.astype(np.uint8)
    for path, value in results.items():
        stored[path] = value.detach().numpy().astype(np.float32)
    golden_files.save(name, settings, stored)


def main():
    write("bytenet", ByteNet(), named_arrays, SETTINGS, SEED)


if __name__ == "__main__":
    golden_files.run(main, __doc__)
