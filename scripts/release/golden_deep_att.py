"""Writer of tests/golden/pytorch_deep_att.npz, computed with PyTorch.

    torch_venv/bin/python -m scripts.release.golden_deep_att

The model is a small Deep-Att. golden_recurrent.py describes the file, with
"deep_att" in place of CELL. Each layer is an nn.Linear, the feed-forward part,
and an nn.LSTM or nn.LSTMCell whose matrix of inputs is the identity. In reverse
it runs over sentences that are reversed one by one, without their padding.
"""

import torch
from torch import nn
from torch.nn import functional

from scripts.release import golden_files
from scripts.release.golden_files import VOCAB_SIZE
from scripts.release.golden_recurrent import write

SIZE, GATES = 8, 32
CONTEXT = 2 * (SIZE + GATES) // 4
SETTINGS = {
    "hidden_size": SIZE,
    "num_encoder_layers": 3,
    "num_decoder_layers": 3,
    "attention_size": 6,
    "label_smoothing": 0.1,
}


class Layer(nn.Module):
    """Feed-forward and recurrent part of an LSTM."""

    def __init__(self, input_size, recurrence=nn.LSTM):
        super().__init__()
        self.feed_forward = nn.Linear(input_size, GATES)
        self.recurrence = recurrence(GATES, SIZE, bias=False)
        for name, parameter in self.recurrence.named_parameters():
            if "weight_ih" in name:
                parameter.requires_grad_(False).copy_(torch.eye(GATES))

    def recur(self, f, lengths, reverse):
        """Return h [B, T, D], zero at padding, from f [B, T, gates]."""
        outputs = torch.zeros(*f.shape[:2], SIZE)
        for row, length in enumerate(lengths):
            steps = f[row, :length]
            steps = steps.flip(0) if reverse else steps
            h, _ = self.recurrence(steps)
            outputs[row, :length] = h.flip(0) if reverse else h
        return outputs


def stack(first_input, layers):
    """Return the layers of a column; those above the first take f and h."""
    upper = [Layer(GATES // 2 + SIZE) for _ in range(layers - 1)]
    return nn.ModuleList([Layer(first_input), *upper])


class DeepAtt(nn.Module):
    """Encoder and decoder of section 3, with one matrix for all embeddings."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(VOCAB_SIZE, SIZE))
        self.columns = nn.ModuleList(
            stack(SIZE, SETTINGS["num_encoder_layers"]) for _ in range(2)
        )
        self.projection = nn.Linear(4 * CONTEXT, CONTEXT, bias=False)
        self.decoder = stack(SIZE, SETTINGS["num_decoder_layers"])
        self.decoder[0] = Layer(SIZE + CONTEXT, nn.LSTMCell)
        self.query = nn.Linear(SIZE, SETTINGS["attention_size"], bias=False)
        self.key = nn.Linear(CONTEXT, SETTINGS["attention_size"], bias=False)
        self.energy = nn.Linear(SETTINGS["attention_size"], 1, bias=False)

    def embed(self, ids):
        """Return embeddings times sqrt(D)."""
        return functional.embedding(ids, self.embedding) * SIZE**0.5

    def forward(self, batch):
        """Return the encoder output [B, L, C] and logits [B, T, V]."""
        inputs, targets = batch["inputs"], batch["targets"]
        x, lengths = self.embed(inputs), (inputs > 0).sum(dim=1)
        tops = []
        for number, column in enumerate(self.columns):
            f, h = None, x
            for depth, layer in enumerate(column):
                f = layer.feed_forward(self.join(f, h))
                h = layer.recur(f, lengths, (number + depth) % 2 == 1)
            tops += [h, f]
        memory = self.projection(torch.cat(tops, dim=-1))
        y = functional.pad(self.embed(targets), (0, 0, 1, -1))
        f, h = self.attend(y, memory, inputs > 0)
        lengths = [targets.shape[1]] * len(targets)
        for layer in self.decoder[1:]:
            f = layer.feed_forward(self.join(f, h))
            h = layer.recur(f, lengths, False)
        return memory, functional.linear(h, self.embedding)

    def join(self, f, h):
        """Return the input of a feed-forward part: half of f, and h."""
        return h if f is None else torch.cat([f[..., : GATES // 2], h], -1)

    def attend(self, x, memory, mask):
        """Return f and h of the decoder's bottom layer."""
        layer, every_f, every_h = self.decoder[0], [], []
        state = torch.zeros(2, len(x), SIZE)
        for position in range(x.shape[1]):
            hidden = self.query(state[0])[:, None] + self.key(memory)
            energies = self.energy(torch.tanh(hidden))[..., 0]
            energies = energies.masked_fill(~mask, -torch.inf)
            weights = torch.softmax(energies, dim=1)
            context = (weights[..., None] * memory).sum(dim=1)
            f = layer.feed_forward(torch.cat([x[:, position], context], -1))
            state = layer.recurrence(f, tuple(state))
            every_f.append(f)
            every_h.append(state[0])
        return torch.stack(every_f, dim=1), torch.stack(every_h, dim=1)


def named_arrays(model, array):
    """Map the names of weights in t2t_repro to views of torch's parameters.

    As golden_recurrent.named_arrays.
    """
    attention = "decoder/layer_0/attention"
    named = {
        "embedding/weight": array(model.embedding),
        "encoder/projection/kernel": array(model.projection.weight).T,
        f"{attention}/query/kernel": array(model.query.weight).T,
        f"{attention}/key/kernel": array(model.key.weight).T,
        f"{attention}/compatibility/weight": array(model.energy.weight),
    }
    columns = {
        "decoder/": model.decoder,
        "encoder/column_0_": model.columns[0],
        "encoder/column_1_": model.columns[1],
    }
    for prefix, column in columns.items():
        for depth, layer in enumerate(column):
            path = f"{prefix}layer_{depth}" + ("/recurrent" if depth else "")
            named[f"{path}/cell/kernel"] = array(layer.feed_forward.weight).T
            named[f"{path}/cell/bias"] = array(layer.feed_forward.bias)
            recurrence = layer.recurrence
            suffix = "_l0" if isinstance(recurrence, nn.LSTM) else ""
            matrix = getattr(recurrence, f"weight_hh{suffix}")
            named[f"{path}/cell/recurrent_kernel"] = array(matrix).T
    both = named["decoder/layer_0/cell/kernel"]
    named["decoder/layer_0/cell/kernel"] = both[:SIZE]
    named["decoder/layer_0/context_projection/kernel"] = both[SIZE:]
    return named


def main():
    # Fast-forward connections are linear: larger weights would make huge sums.
    name = "deep_att"
    write(name, SETTINGS, {name: DeepAtt()}, named_arrays, deviation=0.3)


if __name__ == "__main__":
    golden_files.run(main, __doc__)
