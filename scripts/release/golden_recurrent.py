"""Writer of tests/golden/pytorch_recurrent.npz, computed with PyTorch.

    torch_venv/bin/python -m scripts.release.golden_recurrent

golden_pytorch.py describes the environment and the sentences. The model is a
small GNMT of nn.LSTM or nn.GRU, which run over packed sequences, and of
nn.LSTMCell or nn.GRUCell in the layer that attends. It shares no code with
t2t_repro, only the names of the weights, and computes in float64.

PyTorch has two biases in each cell, of which t2t_repro has the sum, except for
the candidate of a GRU. All others of the second kind are 0 here.

The file contains, for each CELL of lstm and gru, with the N positions that are
not padding in a row:

    command, torch, settings   provenance, and hparams as JSON
    padded/FEATURE             ids, segments and positions
    CELL/weights/PATH          float16, which represents each weight exactly
    CELL/encoder_output        [N, D] float32
    CELL/logits                [N, V] float32
    CELL/smoothed, CELL/plain  [] float32, mean losses per token
    CELL/gradients/PATH        of the smoothed loss, float32
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import rnn

from scripts.release import golden_files
from scripts.release.golden_files import VOCAB_SIZE

SIZE = 8
SETTINGS = {
    "hidden_size": SIZE,
    "num_encoder_layers": 4,
    "num_bidirectional_layers": 1,
    "num_decoder_layers": 3,
    "attention_size": 6,
    "label_smoothing": 0.1,
}
FIRST_RESIDUAL = 2
LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU}
CELLS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}
SEED = 20160926


class Gnmt(nn.Module):
    """Encoder and decoder of section 3, with one matrix for all embeddings."""

    def __init__(self, cell):
        super().__init__()
        layer, options = LAYERS[cell], {"batch_first": True}
        self.embedding = nn.Parameter(torch.empty(VOCAB_SIZE, SIZE))
        self.encoder = nn.ModuleList(
            [
                layer(SIZE, SIZE, bidirectional=True, **options),
                layer(2 * SIZE, SIZE, **options),
            ]
            + [
                layer(SIZE, SIZE, **options)
                for _ in range(SETTINGS["num_encoder_layers"] - 2)
            ]
        )
        self.bottom = CELLS[cell](2 * SIZE, SIZE)
        self.upper = nn.ModuleList(
            layer(2 * SIZE, SIZE, **options)
            for _ in range(SETTINGS["num_decoder_layers"] - 1)
        )
        self.query = nn.Linear(SIZE, SETTINGS["attention_size"], bias=False)
        self.key = nn.Linear(SIZE, SETTINGS["attention_size"], bias=False)
        self.energy = nn.Linear(SETTINGS["attention_size"], 1, bias=False)

    def embed(self, ids):
        """Return embeddings times sqrt(D)."""
        return functional.embedding(ids, self.embedding) * SIZE**0.5

    def forward(self, batch):
        """Return the encoder output [B, L, D] and logits [B, T, V]."""
        memory = self.encode(batch["inputs"])
        x = functional.pad(self.embed(batch["targets"]), (0, 0, 1, -1))
        x, contexts = self.attend(x, memory, batch["inputs"] > 0)
        for number, layer in enumerate(self.upper, start=1):
            y, _ = layer(torch.cat([x, contexts], dim=-1))
            x = x + y if number >= FIRST_RESIDUAL else y
        return memory, functional.linear(x, self.embedding)

    def encode(self, inputs):
        """Return the states [B, L, D] of inputs [B, L], zero at padding."""
        lengths = (inputs > 0).sum(dim=1)
        x = self.embed(inputs)
        for number, layer in enumerate(self.encoder):
            packed = rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            y, _ = rnn.pad_packed_sequence(
                layer(packed)[0], batch_first=True, total_length=x.shape[1]
            )
            x = x + y if number >= FIRST_RESIDUAL else y
        return x

    def attend(self, x, memory, mask):
        """Return outputs of the bottom layer and its contexts."""
        outputs, contexts = [], []
        output, state = torch.zeros(len(x), SIZE), None
        for position in range(x.shape[1]):
            hidden = self.query(output)[:, None] + self.key(memory)
            energies = self.energy(torch.tanh(hidden))[..., 0]
            energies = energies.masked_fill(~mask, -torch.inf)
            weights = torch.softmax(energies, dim=1)
            context = (weights[..., None] * memory).sum(dim=1)
            state = self.bottom(
                torch.cat([x[:, position], context], dim=-1), state
            )
            output = state[0] if isinstance(state, tuple) else state
            outputs.append(output)
            contexts.append(context)
        return torch.stack(outputs, dim=1), torch.stack(contexts, dim=1)


def named_arrays(model, array):
    """Map the names of weights in t2t_repro to views of torch's parameters.

    Args:
        model: a Gnmt.
        array: a function of a parameter; it returns a tensor of that shape.

    Returns:
        {path in t2t_repro: view of `array` of the parameter}.
    """
    attention = "decoder/layer_0/attention"
    named = {
        "embedding/weight": array(model.embedding),
        f"{attention}/query/kernel": array(model.query.weight).T,
        f"{attention}/key/kernel": array(model.key.weight).T,
        f"{attention}/compatibility/weight": array(model.energy.weight),
    }

    def cell(path, module, suffix):
        def view(name):
            return array(getattr(module, f"{name}{suffix}"))

        named[f"{path}/cell/kernel"] = view("weight_ih").T
        named[f"{path}/cell/recurrent_kernel"] = view("weight_hh").T
        named[f"{path}/cell/bias"] = view("bias_ih")
        if len(view("bias_hh")) == 3 * SIZE:
            named[f"{path}/cell/recurrent_bias"] = view("bias_hh")[2 * SIZE :]

    cell("encoder/layer_0/forward", model.encoder[0], "_l0")
    cell("encoder/layer_0/backward", model.encoder[0], "_l0_reverse")
    for number, layer in enumerate(model.encoder[1:], start=1):
        cell(f"encoder/layer_{number}", layer, "_l0")
    cell("decoder/layer_0", model.bottom, "")
    both = named["decoder/layer_0/cell/kernel"]
    named["decoder/layer_0/cell/kernel"] = both[:SIZE]
    named["decoder/layer_0/context_projection/kernel"] = both[SIZE:]
    for number, layer in enumerate(model.upper, start=1):
        cell(f"decoder/layer_{number}", layer, "_l0")
    return named


def draw_weights(model, named_arrays, random, deviation):
    """Set torch's parameters to random float16 values; return {path: array}.

    Args:
        model: the model.
        named_arrays: the function of this name.
        random: a NumPy generator.
        deviation: standard deviation of all weights but the attention's.
    """
    for name, parameter in model.named_parameters():
        if "bias_hh" in name:
            nn.init.zeros_(parameter)
    weights = {}
    for path, view in named_arrays(model, lambda p: p.detach()).items():
        # Attention far from uniform, so that all gradients are large.
        scale = 1.5 if "attention" in path else deviation
        weights[path] = random.normal(0, scale, view.shape).astype(np.float16)
        view.copy_(torch.from_numpy(weights[path]))
    return weights


def compute(model, named_arrays, batch):
    """Return {name: array} of a batch: outputs, losses and gradients.

    Args:
        model: a function of a batch; it returns the encoder's output and
            logits.
        named_arrays: the function of this name.
        batch: {feature: ids}.
    """
    memory, logits = model(batch)
    results = golden_files.real_outputs(
        batch, memory, logits, SETTINGS["label_smoothing"]
    )
    results["smoothed"].backward()
    for path, view in named_arrays(model, lambda p: p.grad).items():
        results[f"gradients/{path}"] = view
    return {
        name: value.detach().numpy().astype(np.float32)
        for name, value in results.items()
    }


def write(name, settings, models, named_arrays, deviation=0.5):
    """Draw weights and sentences, compute, and write the results.

    Args:
        name: of the file pytorch_NAME.npz.
        settings: hparams.
        models: {folder in the file: model}.
        named_arrays: the function of this name.
        deviation: standard deviation of the weights.
    """
    random = np.random.default_rng(SEED)
    sentences = golden_files.draw_sentences(random)
    padded = golden_files.lay_out(sentences, golden_files.PADDED)
    batch = {name: torch.from_numpy(ids) for name, ids in padded.items()}
    stored = {
        f"padded/{feature}": array.astype(np.uint8)
        for feature, array in padded.items()
    }
    for folder, model in models.items():
        weights = draw_weights(model, named_arrays, random, deviation)
        for path, array in weights.items():
            stored[f"{folder}/weights/{path}"] = array
        for path, array in compute(model, named_arrays, batch).items():
            stored[f"{folder}/{path}"] = array
    golden_files.save(name, settings, stored)


def main():
    models = {cell: Gnmt(cell) for cell in LAYERS}
    write("recurrent", SETTINGS, models, named_arrays)


if __name__ == "__main__":
    golden_files.run(main, __doc__)
