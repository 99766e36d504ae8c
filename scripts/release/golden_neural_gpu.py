"""Writer of tests/golden/pytorch_neural_gpu.npz, computed with PyTorch.

    torch_venv/bin/python -m scripts.release.golden_neural_gpu

golden_pytorch.py says how to create torch_venv, and golden_bytenet.py what the
file contains; its `encoder_output` are images [all columns, w, m]. The model is
a small Extended Neural GPU of torch.nn's Conv2d and Embedding. It convolves the
whole tape in every step.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from scripts.release import golden_bytenet, golden_files
from scripts.release.golden_files import VOCAB_SIZE

SETTINGS = {
    "hidden_size": 8,
    "image_width": 3,
    "kernel_length": 3,
    "kernel_width": 3,
    "num_hidden_layers": 2,
    "encoder_steps": 0,
    "target_ratio": 1.2,
    "target_offset": 3,
    "label_smoothing": 0.1,
}
MAPS, ROWS = SETTINGS["hidden_size"], SETTINGS["image_width"]
SEED = 20161026


class Unit(nn.Module):
    """CGRU of the paper, on an image [1, m, n, w], and a tape as large."""

    def __init__(self, reads_tape):
        super().__init__()
        sizes = SETTINGS["kernel_length"], SETTINGS["kernel_width"]
        options = {"kernel_size": sizes, "padding": "same"}
        self.gates = nn.Conv2d(MAPS, 2 * MAPS, **options)  # U', U''
        self.candidate = nn.Conv2d(MAPS, MAPS, **options)  # U
        self.tape = None
        if reads_tape:  # W', W'', W
            self.tape = nn.Conv2d(MAPS, 3 * MAPS, bias=False, **options)

    def forward(self, image, tape=None):
        seen = torch.zeros(1, 3 * MAPS, *image.shape[2:])
        if tape is not None:
            seen = self.tape(tape)
        gates = self.gates(image) + seen[:, : 2 * MAPS]
        update, reset = gates.sigmoid().chunk(2, dim=1)
        candidate = self.candidate(reset * image) + seen[:, 2 * MAPS :]
        return update * image + (1 - update) * candidate.tanh()


class NeuralGpu(nn.Module):
    """Encoder and decoder, with embeddings and softmax."""

    def __init__(self):
        super().__init__()
        for name in ("inputs_embedding", "targets_embedding", "softmax"):
            table = nn.Embedding(VOCAB_SIZE, MAPS)
            setattr(self, name, table)
        layers = range(SETTINGS["num_hidden_layers"])
        self.encoder = nn.ModuleList(Unit(False) for _ in layers)
        self.decoder = nn.ModuleList(Unit(True) for _ in layers)

    def forward(self, source, target):
        """Return the encoder's columns and logits [T, V] of lists of ids."""
        columns = math.ceil(len(source) * 12 / 10) + SETTINGS["target_offset"]
        assert len(target) <= columns
        x = self.inputs_embedding(torch.tensor(source)) * MAPS**0.5
        image = functional.pad(
            x.T[None, :, :, None], (0, ROWS - 1, 0, columns - len(source))
        )
        for _ in range(columns):
            for unit in self.encoder:
                image = unit(image)
        memory, states = image, []
        y = self.targets_embedding(torch.tensor(target)) * MAPS**0.5
        for step in range(len(target)):
            tape = functional.pad(
                y[:step].T[None, :, :, None], (0, ROWS - 1, 0, columns - step)
            )
            for unit in self.decoder:
                image = unit(image, tape)
            states.append(image[0, :, step, 0])
        logits = functional.linear(torch.stack(states), self.softmax.weight)
        return memory[0].permute(1, 2, 0), logits


def named_arrays(model, array):
    """Map the names of weights in t2t_repro to views of torch's parameters.

    Args:
        model: a NeuralGpu.
        array: a function of a parameter; it returns a tensor of that shape.
    """
    named = {
        f"{name}/weight": array(getattr(model, name).weight)
        for name in ("inputs_embedding", "targets_embedding", "softmax")
    }
    for stack in ("encoder", "decoder"):
        for i, unit in enumerate(getattr(model, stack)):
            path = f"{stack}_{i}"
            for name in ("gates", "candidate"):
                module = getattr(unit, name)
                kernel = array(module.weight).permute(2, 3, 1, 0)
                named[f"{path}/{name}_kernel"] = kernel
                named[f"{path}/{name}_bias"] = array(module.bias)
            if unit.tape is not None:
                kernel = array(unit.tape.weight).permute(2, 3, 1, 0)
                # The other taps only see rows of the tape that are zero.
                used = SETTINGS["kernel_width"] // 2 + 1
                named[f"{path}/tape_kernel"] = kernel[:, :used]
    return named


def main():
    model = NeuralGpu()
    golden_bytenet.write(
        "neural_gpu", model, named_arrays, SETTINGS, SEED, deviation=0.3
    )


if __name__ == "__main__":
    golden_files.run(main, __doc__)
