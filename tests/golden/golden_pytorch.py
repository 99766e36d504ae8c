"""Writer of tests/golden/pytorch_*.npz: small models of PyTorch, and results.

    python -m venv torch_venv
    torch_venv/bin/pip install torch==2.13.0 numpy
    torch_venv/bin/python -m tests.golden.golden_pytorch transformer bytenet

The models are small ones of torch.nn's own layers. They share no code with
t2t_repro, only the names of the weights, and compute in float64, so that the
numbers are accurate and the same on every machine. Where PyTorch has weights
that t2t_repro lacks, such as biases of attention and a second bias of a
recurrent cell, these are 0.

Transformers and recurrent models compute a padded batch of five pairs of
sentences, the others each pair alone.

A file contains, with the N positions that are not padding in a row:

    command, torch, settings   provenance, and hparams as JSON
    weights/PATH               float16, which represents each weight exactly
    LAYOUT/FEATURE             ids, segments and positions: padded, packed, or
                               "batch" of models that compute columns
    columns                    [B], columns of the encoder's output
    encoder_output             [N, D] float32, or [all columns, D], or images
                               [all columns, w, m] of the Neural GPU
    logits                     [N, V] float32
    attention                  [layers, N, L] float32, 0 at padding: ConvS2S
    smoothed, plain            [] float32, mean losses per token
    importance, load           [] float32, sums over both mixtures of experts
    gradients/PATH             of the sum of the losses but `plain`, float32

Files of several models have them in a folder each: NORM/ for post_norm and
pre_norm of the Transformer, whose weights are the same; CELL/ for lstm and gru.
"""

import argparse
import functools
import json
import math
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import rnn
from torch.nn.utils.parametrizations import weight_norm

FOLDER = pathlib.Path(__file__).parent
VOCAB_SIZE = 23
EPSILON = 1e-6  # added to the variance in layer normalization
LENGTHS = ((5, 4), (2, 6), (7, 3), (3, 5), (1, 2))  # (source, target)
# The sentences of each row.
PADDED = ((0,), (1,), (2,), (3,), (4,))
BOTH = {"padded": PADDED, "packed": ((0, 1), (2, 3, 4))}


def draw_sentences(random):
    """Return random pairs of lists of ids; EOS is 1."""
    return [
        [[*random.integers(2, VOCAB_SIZE, n - 1), 1] for n in lengths]
        for lengths in LENGTHS
    ]


def lay_out(sentences, rows):
    """Return {feature: [rows, slots] int64}; a row ends in a padding slot."""
    batch = {}
    for side, name in enumerate(("inputs", "targets")):
        texts = [[sentences[i][side] for i in row] for row in rows]
        slots = 1 + max(sum(map(len, row)) for row in texts)
        features = torch.zeros(3, len(rows), slots, dtype=int)
        for row, parts in zip(texts, features.unbind(1), strict=True):
            triples = [
                (token, segment, position)
                for segment, text in enumerate(row, start=1)
                for position, token in enumerate(text)
            ]
            parts[:, : len(triples)] = torch.tensor(triples).T
        for ending, feature in zip(
            ("", "_segment", "_position"), features, strict=True
        ):
            batch[f"{name}{ending}"] = feature
    return batch


def losses(logits, labels, smoothing):
    """Return the smoothed and the plain mean loss.

    Args:
        logits: [N, V].
        labels: [N].
        smoothing: label smoothing over the other V - 1 ids.
    """
    # torch gives e' / V to every subword, the target included; tensor2tensor
    # e / (V - 1) to every other one. Both are equal if e' = e V / (V - 1).
    vocab_size = logits.shape[-1]
    smoothing = smoothing * vocab_size / (vocab_size - 1)
    return {
        "smoothed": functional.cross_entropy(
            logits, labels, label_smoothing=smoothing
        ),
        "plain": functional.cross_entropy(logits, labels),
    }


def gradient(parameter):
    """Return a parameter's gradient; zeros if nothing reads it."""
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad


class Model(nn.Module):
    """A model of a padded batch.

    Its forward() returns the encoder output [B, L, D] and logits [B, T, V] of a
    batch of lay_out().
    """

    def arrays(self, array):
        """Yield names of weights in t2t_repro, and views of torch's parameters.

        By default, the modules have the names of the layers in t2t_repro.

        Args:
            array: a function of a parameter; it returns a tensor of that shape.
        """
        for name, module in self.named_modules():
            yield from weights_of(array, name.replace(".", "/"), module)

    def outputs(self, sentences):
        """Return {name: tensor} without padding, of pairs of sentences."""
        batch = lay_out(sentences, PADDED)
        memory, logits = self(batch)
        return {
            "encoder_output": memory[batch["inputs_segment"] > 0],
            "logits": logits[batch["targets_segment"] > 0],
        }

    def auxiliary(self):
        """Return the losses of the last batch beside the cross-entropy."""
        return {}

    def results(self, sentences, smoothing):
        """Return {name: array} of outputs, losses and gradients."""
        self.zero_grad()
        found = self.outputs(sentences)
        labels = torch.tensor([i for _, target in sentences for i in target])
        found |= losses(found["logits"], labels, smoothing) | self.auxiliary()
        sum([found["smoothed"], *self.auxiliary().values()]).backward()
        for path, view in self.arrays(gradient):
            found[f"gradients/{path}"] = view
        return {name: value.detach().numpy() for name, value in found.items()}


class Table(nn.Embedding):
    """An embedding that is a learned table in t2t_repro."""


def weights_of(array, path, module):
    """Yield the weights of a layer in t2t_repro by name, as Model.arrays().

    Modules that contain others have none of their own.
    """
    if hasattr(module, "parametrizations"):  # weight-normalized
        weight = module.parametrizations.weight
        direction = array(weight.original1)
        if direction.ndim == 3:  # [out, in, width] -> [out, width, in]
            direction = direction.permute(0, 2, 1)
        yield f"{path}/gain", array(weight.original0).reshape(-1)
        yield f"{path}/direction", direction
        yield f"{path}/bias", array(module.bias)
    elif isinstance(module, nn.LayerNorm):
        yield f"{path}/gamma", array(module.weight)
        yield f"{path}/beta", array(module.bias)
    elif isinstance(module, nn.Embedding):
        word = "table" if isinstance(module, Table) else "weight"
        yield f"{path}/{word}", array(module.weight)
    elif isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
        # [out, in, …] -> […, in, out]; the kernel of a width of 1 is a matrix.
        kernel = array(module.weight).movedim((0, 1), (-1, -2))
        if isinstance(module, nn.Conv1d) and len(kernel) == 1:
            kernel = kernel[0]
        mark = "_" if isinstance(module, nn.Conv2d) else "/"
        yield f"{path}{mark}kernel", kernel
        if module.bias is not None:
            yield f"{path}{mark}bias", array(module.bias)


# The Transformer, and its mixture of experts.

TRANSFORMER = {
    "hidden_size": 16,
    "filter_size": 32,
    "num_heads": 4,
    "num_hidden_layers": 2,
    "label_smoothing": 0.1,
}


class Transformer(Model):
    """torch.nn's stacks between the paper's embeddings and softmax."""

    def __init__(self, norm_first):
        super().__init__()
        size = TRANSFORMER["hidden_size"]
        layers = TRANSFORMER["num_hidden_layers"]
        stacks = nn.Transformer(
            size,
            TRANSFORMER["num_heads"],
            layers,
            layers,
            TRANSFORMER["filter_size"],
            dropout=0.0,
            layer_norm_eps=EPSILON,
            batch_first=True,
            norm_first=norm_first,
        )
        self.embedding = nn.Parameter(torch.empty(VOCAB_SIZE, size))
        self.encoder, self.decoder = stacks.encoder, stacks.decoder
        if not norm_first:
            self.encoder.norm = self.decoder.norm = None

    def forward(self, batch):
        padding = batch["inputs_segment"] == 0
        memory = self.encoder(
            self.embed(batch["inputs"], batch["inputs_position"]),
            src_key_padding_mask=padding,
        )
        # Before a sentence: the zero row below the embedding matrix.
        position = batch["targets_position"]
        previous = torch.where(
            position == 0, VOCAB_SIZE, batch["targets"].roll(1, dims=1)
        )
        length = previous.shape[1]
        y = self.decoder(
            self.embed(previous, position),
            memory,
            tgt_mask=torch.ones(length, length).triu(1).bool(),
            memory_key_padding_mask=padding,
        )
        return memory, functional.linear(y, self.embedding)

    def embed(self, ids, position):
        """Return embeddings times sqrt(D) (section 3.4), plus sinusoids."""
        size = TRANSFORMER["hidden_size"]
        matrix = torch.cat([self.embedding, torch.zeros(1, size)])
        vectors = functional.embedding(ids, matrix) * size**0.5
        rates = 10_000 ** -(torch.arange(0, size, 2) / size)
        angles = torch.arange(ids.shape[1])[:, None] * rates
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        return vectors + table[position]

    def arrays(self, array):
        yield "embedding/weight", array(self.embedding)
        for name in ("encoder", "decoder"):
            stack = getattr(self, name)
            for i, layer in enumerate(stack.layers):
                yield from self.layer_arrays(array, f"{name}/layer_{i}", layer)
            if stack.norm is not None:
                yield from weights_of(array, f"{name}/norm", stack.norm)

    def layer_arrays(self, array, path, layer):
        """Yield the weights of a layer by their names, as arrays()."""
        attentions = {"self_attention": layer.self_attn}
        if hasattr(layer, "multihead_attn"):
            attentions["cross_attention"] = layer.multihead_attn
        for block, module in attentions.items():
            scope = f"{path}/{block}/multihead_attention"
            # torch stores three matrices in one, each as [out, in].
            matrices = array(module.in_proj_weight).chunk(3)
            for name, matrix in zip(
                ("query", "key", "value"), matrices, strict=True
            ):
                yield f"{scope}/{name}/kernel", matrix.T
            matrix = array(module.out_proj.weight)
            yield f"{scope}/output_projection/kernel", matrix.T
        scope = f"{path}/ffn/feed_forward"
        yield from weights_of(array, f"{scope}/filter", layer.linear1)
        yield from weights_of(
            array, f"{scope}/output_projection", layer.linear2
        )
        name = "input_norm" if layer.norm_first else "norm"
        for number, block in enumerate((*attentions, "ffn"), start=1):
            module = getattr(layer, f"norm{number}")
            yield from weights_of(array, f"{path}/{block}/{name}", module)


MOE = TRANSFORMER | {
    "num_experts": 5,
    "experts_per_token": 2,
    "expert_filter_size": 8,
    "mixture_period": 2,
    "importance_loss_weight": 1.0,
    "load_loss_weight": 1.0,
}


class Mixture(nn.Module):
    """A mixture that stores its losses; `is_real` [B, T] must be set first."""

    def __init__(self):
        super().__init__()
        size, inner = MOE["hidden_size"], MOE["expert_filter_size"]
        count = MOE["num_experts"]
        self.gate = nn.Linear(size, count, bias=False)
        self.noise = nn.Linear(size, count, bias=False)
        for name, shape in {
            "filter_kernel": (size, inner),
            "filter_bias": (inner,),
            "output_kernel": (inner, size),
            "output_bias": (size,),
        }.items():
            setattr(self, name, nn.Parameter(torch.empty(count, *shape)))

    def expert(self, i, x):
        """Return the output of expert i."""
        y = (x @ self.filter_kernel[i] + self.filter_bias[i]).relu()
        return y @ self.output_kernel[i] + self.output_bias[i]

    def forward(self, x):
        logits, k = self.gate(x), MOE["experts_per_token"]
        top, chosen = torch.topk(logits, k)
        gates = torch.zeros_like(logits).scatter(-1, chosen, top.softmax(-1))
        deviation = functional.softplus(self.noise(x))
        load = []
        for i in range(MOE["num_experts"]):
            others = torch.cat([logits[..., :i], logits[..., i + 1 :]], -1)
            threshold = torch.topk(others, k).values[..., -1]
            z = (logits[..., i] - threshold) / deviation[..., i]
            probability = torch.distributions.Normal(0.0, 1.0).cdf(z)
            load.append(probability[self.is_real].sum())
        self.importance = squared_variation(gates[self.is_real].sum(0))
        self.load = squared_variation(torch.stack(load))
        return sum(
            gates[..., i : i + 1] * self.expert(i, x)
            for i in range(MOE["num_experts"])
        )


def squared_variation(x):
    """Return variance over squared mean, of a population."""
    return x.var(unbiased=False) / x.mean() ** 2


class TransformerMoe(Transformer):
    """The Transformer whose second layers have mixtures."""

    def __init__(self):
        super().__init__(norm_first=False)
        self.mixtures = nn.ModuleList([Mixture(), Mixture()])
        for stack, mixture in zip(
            (self.encoder, self.decoder), self.mixtures, strict=True
        ):
            stack.layers[1]._ff_block = mixture.forward

    def forward(self, batch):
        for side, mixture in zip(
            ("inputs", "targets"), self.mixtures, strict=True
        ):
            mixture.is_real = batch[f"{side}_segment"] > 0
        return super().forward(batch)

    def auxiliary(self):
        return {
            name: sum(getattr(mixture, name) for mixture in self.mixtures)
            for name in ("importance", "load")
        }

    def arrays(self, array):
        for path, view in super().arrays(array):
            if "layer_1/ffn/feed_forward" not in path:
                yield path, view
        for stack, mixture in zip(
            ("encoder", "decoder"), self.mixtures, strict=True
        ):
            path = f"{stack}/layer_1/ffn/mixture_of_experts"
            yield f"{path}/gating/weight", array(mixture.gate.weight).T
            yield f"{path}/gating/noise_weight", array(mixture.noise.weight).T
            for name in ("filter", "output"):
                for end in ("kernel", "bias"):
                    view = array(getattr(mixture, f"{name}_{end}"))
                    yield f"{path}/{name}_{end}", view


# Recurrent models.

SIZE = 8
GNMT = {
    "hidden_size": SIZE,
    "num_encoder_layers": 4,
    "num_bidirectional_layers": 1,
    "num_decoder_layers": 3,
    "attention_size": 6,
    "label_smoothing": 0.1,
}
FIRST_RESIDUAL = 2
CELLS = {"lstm": (nn.LSTM, nn.LSTMCell), "gru": (nn.GRU, nn.GRUCell)}


class Recurrent(Model):
    """Model with one matrix for all embeddings, and attention to `channels`."""

    def __init__(self, channels, attention_size):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(VOCAB_SIZE, SIZE))
        self.query = nn.Linear(SIZE, attention_size, bias=False)
        self.key = nn.Linear(channels, attention_size, bias=False)
        self.energy = nn.Linear(attention_size, 1, bias=False)

    def embed(self, ids):
        """Return embeddings times sqrt(D)."""
        return functional.embedding(ids, self.embedding) * SIZE**0.5

    def context(self, output, memory, mask):
        """Return the context of the decoder's last output."""
        hidden = self.query(output)[:, None] + self.key(memory)
        energies = self.energy(torch.tanh(hidden))[..., 0]
        energies = energies.masked_fill(~mask, -torch.inf)
        weights = torch.softmax(energies, dim=1)
        return (weights[..., None] * memory).sum(dim=1)

    def attention_arrays(self, array):
        """Yield the weights of the attention, as arrays()."""
        path = "decoder/layer_0/attention"
        yield from weights_of(array, f"{path}/query", self.query)
        yield from weights_of(array, f"{path}/key", self.key)
        yield f"{path}/compatibility/weight", array(self.energy.weight)


class Gnmt(Recurrent):
    """Encoder and decoder of section 3."""

    def __init__(self, cell):
        super().__init__(SIZE, GNMT["attention_size"])
        layer, bottom = CELLS[cell]
        layer = functools.partial(layer, hidden_size=SIZE, batch_first=True)
        self.encoder = nn.ModuleList(
            [
                layer(SIZE, bidirectional=True),
                layer(2 * SIZE),
                *(layer(SIZE) for _ in range(GNMT["num_encoder_layers"] - 2)),
            ]
        )
        self.bottom = bottom(2 * SIZE, SIZE)
        self.upper = nn.ModuleList(
            layer(2 * SIZE) for _ in range(GNMT["num_decoder_layers"] - 1)
        )

    def forward(self, batch):
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
        for vector in x.unbind(1):
            contexts.append(self.context(output, memory, mask))
            state = self.bottom(torch.cat([vector, contexts[-1]], -1), state)
            output = state[0] if isinstance(state, tuple) else state
            outputs.append(output)
        return torch.stack(outputs, dim=1), torch.stack(contexts, dim=1)

    def arrays(self, array):
        yield "embedding/weight", array(self.embedding)
        yield from self.attention_arrays(array)
        layers = {
            "encoder/layer_0/forward": (self.encoder[0], "_l0"),
            "encoder/layer_0/backward": (self.encoder[0], "_l0_reverse"),
            **{
                f"encoder/layer_{i}": (layer, "_l0")
                for i, layer in enumerate(self.encoder[1:], start=1)
            },
            "decoder/layer_0": (self.bottom, ""),
            **{
                f"decoder/layer_{i}": (layer, "_l0")
                for i, layer in enumerate(self.upper, start=1)
            },
        }
        for path, (module, suffix) in layers.items():
            kernel, matrix, bias, recurrent_bias = (
                array(getattr(module, f"{name}{suffix}"))
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            context = kernel.T[SIZE:]
            if module is self.bottom:
                kernel = kernel[:, :SIZE]
            yield f"{path}/cell/kernel", kernel.T
            yield f"{path}/cell/recurrent_kernel", matrix.T
            yield f"{path}/cell/bias", bias
            if len(bias) == 3 * SIZE:
                yield f"{path}/cell/recurrent_bias", recurrent_bias[2 * SIZE :]
            if module is self.bottom:
                yield f"{path}/context_projection/kernel", context


GATES = 4 * SIZE
CONTEXT = 2 * (SIZE + GATES) // 4
DEEP_ATT = {
    "hidden_size": SIZE,
    "num_encoder_layers": 3,
    "num_decoder_layers": 3,
    "attention_size": 6,
    "label_smoothing": 0.1,
}


class FastForward(nn.Module):
    """Feed-forward and recurrent part of an LSTM."""

    def __init__(self, input_size, recurrence=nn.LSTM):
        super().__init__()
        self.feed_forward = nn.Linear(input_size, GATES)
        self.recurrence = recurrence(GATES, SIZE, bias=False)
        for name, parameter in self.recurrence.named_parameters():
            if "weight_ih" in name:
                parameter.requires_grad_(False).copy_(torch.eye(GATES))

    def recur(self, f, lengths, reverse=False):
        """Return h [B, T, D], zero at padding, from f [B, T, gates]."""
        outputs = torch.zeros(*f.shape[:2], SIZE)
        for row, length in enumerate(lengths):
            steps = f[row, :length]
            steps = steps.flip(0) if reverse else steps
            h, _ = self.recurrence(steps)
            outputs[row, :length] = h.flip(0) if reverse else h
        return outputs


def fast_forward_stack(first, layers):
    """Return the layers of a column; those above the first take f and h."""
    upper = (FastForward(GATES // 2 + SIZE) for _ in range(layers - 1))
    return nn.ModuleList([first, *upper])


def join(f, h):
    """Return the input of a feed-forward part: half of f, and h."""
    return torch.cat([f[..., : GATES // 2], h], -1)


class DeepAtt(Recurrent):
    """Encoder and decoder of section 3."""

    def __init__(self):
        super().__init__(CONTEXT, DEEP_ATT["attention_size"])
        self.columns = nn.ModuleList(
            fast_forward_stack(
                FastForward(SIZE), DEEP_ATT["num_encoder_layers"]
            )
            for _ in range(2)
        )
        self.projection = nn.Linear(4 * CONTEXT, CONTEXT, bias=False)
        self.decoder = fast_forward_stack(
            FastForward(SIZE + CONTEXT, nn.LSTMCell),
            DEEP_ATT["num_decoder_layers"],
        )

    def forward(self, batch):
        inputs, targets = batch["inputs"], batch["targets"]
        x, lengths = self.embed(inputs), (inputs > 0).sum(dim=1)
        tops = []
        for number, column in enumerate(self.columns):
            f, h = None, x
            for depth, layer in enumerate(column):
                f = layer.feed_forward(join(f, h) if depth else h)
                h = layer.recur(f, lengths, (number + depth) % 2 == 1)
            tops += [h, f]
        memory = self.projection(torch.cat(tops, dim=-1))
        y = functional.pad(self.embed(targets), (0, 0, 1, -1))
        f, h = self.attend(y, memory, inputs > 0)
        lengths = [targets.shape[1]] * len(targets)
        for layer in self.decoder[1:]:
            f = layer.feed_forward(join(f, h))
            h = layer.recur(f, lengths)
        return memory, functional.linear(h, self.embedding)

    def attend(self, x, memory, mask):
        """Return f and h of the decoder's bottom layer."""
        layer, every_f, every_h = self.decoder[0], [], []
        state = torch.zeros(2, len(x), SIZE)
        for vector in x.unbind(1):
            context = self.context(state[0], memory, mask)
            f = layer.feed_forward(torch.cat([vector, context], -1))
            state = layer.recurrence(f, tuple(state))
            every_f.append(f)
            every_h.append(state[0])
        return torch.stack(every_f, dim=1), torch.stack(every_h, dim=1)

    def arrays(self, array):
        yield "embedding/weight", array(self.embedding)
        yield from weights_of(array, "encoder/projection", self.projection)
        yield from self.attention_arrays(array)
        bottom = self.decoder[0]
        for prefix, column in {
            "decoder/": self.decoder,
            "encoder/column_0_": self.columns[0],
            "encoder/column_1_": self.columns[1],
        }.items():
            for depth, layer in enumerate(column):
                path = f"{prefix}layer_{depth}{'/recurrent' if depth else ''}"
                kernel = array(layer.feed_forward.weight).T
                if layer is bottom:
                    kernel = kernel[:SIZE]
                yield f"{path}/cell/kernel", kernel
                yield f"{path}/cell/bias", array(layer.feed_forward.bias)
                suffix = "" if layer is bottom else "_l0"
                matrix = getattr(layer.recurrence, f"weight_hh{suffix}")
                yield f"{path}/cell/recurrent_kernel", array(matrix).T
        kernel = array(bottom.feed_forward.weight).T[SIZE:]
        yield "decoder/layer_0/context_projection/kernel", kernel


# Convolutional models, which compute each pair alone.

# (channels, kernel width)
ENCODER_BLOCKS = ((12, 3), (12, 3), (8, 2), (8, 1))
DECODER_BLOCKS = ((12, 3), (10, 2), (10, 1))
CONVS2S = {
    "hidden_size": 8,
    "encoder_convolutions": "12x3*2+8x2+8x1",
    "decoder_convolutions": "12x3+10x2+10x1",
    "max_length": 8,
    "label_smoothing": 0.1,
}


def normalized_linear(inputs, outputs):
    """Return a weight-normalized linear layer."""
    return weight_norm(nn.Linear(inputs, outputs))


class GatedBlock(nn.ModuleDict):
    """Gated convolution of x [1, N, C] in a residual; attention if causal."""

    def __init__(self, inputs, channels, width, causal):
        size = CONVS2S["hidden_size"]
        conv = weight_norm(nn.Conv1d(inputs, 2 * channels, width))
        super().__init__({"convolution/linear": conv})
        self.causal, self.width = causal, width
        if inputs != channels:
            self["projection"] = normalized_linear(inputs, channels)
        if causal:
            self["attention/query"] = normalized_linear(channels, size)
            output = normalized_linear(size, channels)
            self["attention/output_projection"] = output

    def forward(self, x, embedded=None, source=None):
        residual = self["projection"](x) if "projection" in self else x
        before = self.width - 1 if self.causal else (self.width - 1) // 2
        padded = functional.pad(
            x.transpose(1, 2), (before, self.width - 1 - before)
        )
        y = self["convolution/linear"](padded).transpose(1, 2)
        y, weights = functional.glu(y, dim=-1), None
        if self.causal:
            states, values = source
            query = (self["attention/query"](y) + embedded) * math.sqrt(0.5)
            weights = torch.softmax(query @ states.transpose(1, 2), dim=-1)
            length = states.shape[1]
            context = weights @ values * (length * math.sqrt(1 / length))
            context = self["attention/output_projection"](context)
            y = (y + context) * math.sqrt(0.5)
        return (y + residual) * math.sqrt(0.5), weights


class Stack(nn.ModuleDict):
    """Embeddings, blocks and projections of one side."""

    def __init__(self, convolutions, causal):
        size, channels = CONVS2S["hidden_size"], convolutions[0][0]
        blocks = {}
        for i, (outputs, width) in enumerate(convolutions):
            block = GatedBlock(channels, outputs, width, causal)
            blocks[f"layer_{i}"], channels = block, outputs
        super().__init__(
            {
                "embedding": Table(VOCAB_SIZE, size),
                "positions": Table(CONVS2S["max_length"], size),
                "input_projection": normalized_linear(size, convolutions[0][0]),
                "output_projection": normalized_linear(channels, size),
            }
            | blocks
        )
        self.blocks = [*blocks.values()]

    def forward(self, vectors, source=None):
        """Return embeddings, output and the blocks' attention weights."""
        positions = torch.arange(vectors.shape[1])
        embedded = vectors + self["positions"](positions)
        x, attention = self["input_projection"](embedded), []
        for block in self.blocks:
            x, weights = block(x, embedded, source)
            attention.append(weights)
        return embedded, self["output_projection"](x), attention


class ConvS2S(Model):
    """Two stacks and a normalized linear layer."""

    def __init__(self):
        super().__init__()
        self.encoder = Stack(ENCODER_BLOCKS, causal=False)
        self.decoder = Stack(DECODER_BLOCKS, causal=True)
        self.softmax = normalized_linear(CONVS2S["hidden_size"], VOCAB_SIZE)

    def forward(self, inputs, targets):
        """Return encoder output, logits and attention of ids [1, L], [1, T]."""
        embedded, states, _ = self.encoder(self.encoder["embedding"](inputs))
        if states.requires_grad:
            states.register_hook(lambda grad: grad / len(DECODER_BLOCKS))
        values = (states + embedded) * math.sqrt(0.5)
        vectors = self.decoder["embedding"](targets)
        start = torch.zeros_like(vectors[:, :1])
        shifted = torch.cat([start, vectors[:, :-1]], dim=1)
        _, x, attention = self.decoder(shifted, (states, values))
        return states, self.softmax(x), attention

    def outputs(self, sentences):
        slots = lay_out(sentences, PADDED)["inputs"].shape[1]
        states, logits, attention = [], [], []
        for pair in sentences:
            found = self(*(torch.tensor([ids]) for ids in pair))
            states.append(found[0][0])
            logits.append(found[1][0])
            weights = torch.cat(found[2])  # [layers, T, L]
            attention.append(functional.pad(weights, (0, slots - len(pair[0]))))
        return {
            "encoder_output": torch.cat(states),
            "logits": torch.cat(logits),
            "attention": torch.cat(attention, dim=1),
        }


class ColumnModel(Model):
    """Model of columns, more than subwords; forward() takes lists of ids."""

    def __init__(self, settings):
        super().__init__()
        self.settings, self.size = settings, settings["hidden_size"]
        for name in TABLES:
            setattr(self, name, nn.Embedding(VOCAB_SIZE, self.size))

    def embed(self, name, ids):
        """Return embeddings [N, D] times sqrt(D)."""
        ids = torch.tensor(ids, dtype=int)
        return getattr(self, name)(ids) * self.size**0.5

    def count(self, source):
        """Return the number of columns."""
        # 1.2 |s| in tenths, which floats represent.
        columns = math.ceil(len(source) * 12 / 10)
        return columns + self.settings["target_offset"]

    def outputs(self, sentences):
        columns, logits = zip(*(self(*pair) for pair in sentences), strict=True)
        return {
            "columns": torch.tensor([len(each) for each in columns]),
            "encoder_output": torch.cat(columns),
            "logits": torch.cat(logits),
        }


TABLES = "inputs_embedding", "targets_embedding", "softmax"
BYTENET = {
    "hidden_size": 16,
    "kernel_width": 3,
    "max_dilation": 4,
    "num_block_repeat": 1,
    "target_ratio": 1.2,
    "target_offset": 1,
    "label_smoothing": 0.1,
}
DILATIONS = (1, 2, 4)


class DilatedBlock(nn.ModuleDict):
    """Residual block of figure 3, left, on x [1, channels, T]."""

    def __init__(self, dilation, causal):
        outer, inner = BYTENET["hidden_size"], BYTENET["hidden_size"] // 2
        width = BYTENET["kernel_width"]
        super().__init__(
            {
                "input_norm": nn.LayerNorm(outer, EPSILON),
                "inner_norm": nn.LayerNorm(inner, EPSILON),
                "output_norm": nn.LayerNorm(inner, EPSILON),
                "input_projection": nn.Conv1d(outer, inner, 1),
                "convolution": nn.Conv1d(
                    inner, inner, width, dilation=dilation
                ),
                "output_projection": nn.Conv1d(inner, outer, 1),
            }
        )
        reach = (width - 1) * dilation
        # Zeros on the left, or on both sides.
        self.pads = (reach, 0) if causal else (reach // 2, reach // 2)

    def forward(self, x):
        modules, y = list(self.values()), x
        for norm, convolve in zip(modules[:3], modules[3:], strict=True):
            y = norm(y.transpose(1, 2)).transpose(1, 2).relu()
            if convolve is self["convolution"]:
                y = functional.pad(y, self.pads)
            y = convolve(y)
        return x + y


class ByteNet(ColumnModel):
    """Both stacks, with embeddings and softmax."""

    def __init__(self):
        super().__init__(BYTENET)
        for name, causal in (("encoder", False), ("decoder", True)):
            blocks = {
                f"block_{i}": DilatedBlock(dilation, causal)
                for i, dilation in enumerate(DILATIONS)
            }
            norm = nn.LayerNorm(self.size, EPSILON)
            setattr(self, name, nn.ModuleDict(blocks | {"norm": norm}))

    def run(self, name, x):
        """Run a stack on x [T, D]."""
        *blocks, norm = getattr(self, name).values()
        x = x.T[None]
        for block in blocks:
            x = block(x)
        return norm(x[0].T)

    def forward(self, source, target):
        """Return the encoder's columns and logits [T, V]."""
        count = self.count(source)
        padded = source + [0] * (count - len(source))
        columns = self.run("encoder", self.embed("inputs_embedding", padded))
        y = self.embed("targets_embedding", target[:-1])
        y = functional.pad(y, (0, 0, 1, 0))
        shared = min(count, len(target))
        y = y + functional.pad(
            columns[:shared], (0, 0, 0, len(target) - shared)
        )
        states = self.run("decoder", y)
        return columns, functional.linear(states, self.softmax.weight)


NEURAL_GPU = {
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
MAPS, ROWS = NEURAL_GPU["hidden_size"], NEURAL_GPU["image_width"]
LAYERS = NEURAL_GPU["num_hidden_layers"]


class Unit(nn.Module):
    """CGRU of the paper, on an image [1, m, n, w], and a tape as large."""

    def __init__(self, reads_tape):
        super().__init__()
        sizes = NEURAL_GPU["kernel_length"], NEURAL_GPU["kernel_width"]
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


def image_of(vectors, columns):
    """Return an image [1, m, columns, w] whose first row has [N, m]."""
    pads = (0, ROWS - 1, 0, columns - len(vectors))
    return functional.pad(vectors.T[None, :, :, None], pads)


class NeuralGpu(ColumnModel):
    """Encoder and decoder, with embeddings and softmax."""

    def __init__(self):
        super().__init__(NEURAL_GPU)
        for side in ("encoder", "decoder"):
            units = [Unit(reads_tape=side == "decoder") for _ in range(LAYERS)]
            setattr(self, side, units)
            for i, unit in enumerate(units):
                setattr(self, f"{side}_{i}", unit)

    def forward(self, source, target):
        """Return the encoder's columns and logits [T, V]."""
        columns = self.count(source)
        assert len(target) <= columns
        image = image_of(self.embed("inputs_embedding", source), columns)
        for _ in range(columns):
            for unit in self.encoder:
                image = unit(image)
        memory, states = image, []
        y = self.embed("targets_embedding", target)
        for step in range(len(target)):
            tape = image_of(y[:step], columns)
            for unit in self.decoder:
                image = unit(image, tape)
            states.append(image[0, :, step, 0])
        logits = functional.linear(torch.stack(states), self.softmax.weight)
        return memory[0].permute(1, 2, 0), logits

    def arrays(self, array):
        for path, view in super().arrays(array):
            if path.endswith("tape_kernel"):
                # The other taps only see rows of the tape that are zero.
                view = view[:, : NEURAL_GPU["kernel_width"] // 2 + 1]
            yield path, view


class Writer(NamedTuple):
    """What a file is made of."""

    settings: dict  # hparams
    seed: int  # of the weights and the sentences
    models: dict[str, Callable]  # {folder in the file: builds a model}
    deviation: float  # of the weights
    layouts: dict[str, tuple] = {"padded": PADDED}
    shared_weights: bool = False  # by all models, outside their folders


WRITERS = {
    "transformer": Writer(
        TRANSFORMER,
        20170612,
        {
            "post_norm/": lambda: Transformer(norm_first=False),
            "pre_norm/": lambda: Transformer(norm_first=True),
        },
        0.25,
        BOTH,
        shared_weights=True,
    ),
    "transformer_moe": Writer(MOE, 20170612, {"": TransformerMoe}, 0.25, BOTH),
    "recurrent": Writer(
        GNMT,
        20160926,
        {f"{cell}/": functools.partial(Gnmt, cell) for cell in CELLS},
        0.5,
    ),
    # Fast-forward connections are linear: larger weights would make huge sums.
    "deep_att": Writer(DEEP_ATT, 20160926, {"deep_att/": DeepAtt}, 0.3),
    "convs2s": Writer(CONVS2S, 20170508, {"": ConvS2S}, 0.5),
    "bytenet": Writer(
        BYTENET, 20161031, {"": ByteNet}, 0.25, {"batch": PADDED}
    ),
    "neural_gpu": Writer(
        NEURAL_GPU, 20161026, {"": NeuralGpu}, 0.3, {"batch": PADDED}
    ),
}


def draw_weights(random, model, deviation, weights):
    """Set torch's parameters to random values that float16 represents.

    Args:
        random: NumPy generator.
        model: a Model.
        deviation: standard deviation.
        weights: {path: float16 array}; those that are missing are drawn.
    """
    for name, parameter in model.named_parameters():
        if name.endswith(("in_proj_bias", "out_proj.bias")) or (
            "bias_hh" in name
        ):
            nn.init.zeros_(parameter)  # ours has none
    for path, view in model.arrays(lambda p: p.detach()):
        if path not in weights:
            mean = 1.0 if path.endswith(("gamma", "gain")) else 0.0
            # Attention far from uniform makes all gradients large.
            is_sharp = isinstance(model, Recurrent) and "attention" in path
            scale = 1.5 if is_sharp else deviation
            values = random.normal(mean, scale, tuple(view.shape))
            weights[path] = values.astype(np.float16)
        view.copy_(torch.from_numpy(weights[path]))


def compute(writer):
    """Return the arrays of a file."""
    random = np.random.default_rng(writer.seed)
    sentences = draw_sentences(random)
    stored, weights = {}, {}
    for folder, build in writer.models.items():
        if not writer.shared_weights:
            weights = {}
        model = build()
        draw_weights(random, model, writer.deviation, weights)
        results = model.results(sentences, writer.settings["label_smoothing"])
        place = "" if writer.shared_weights else folder
        stored |= {f"{place}weights/{p}": a for p, a in weights.items()}
        for path, array in results.items():
            stored[f"{folder}{path}"] = array.astype(np.float32)
    for path, array in stored.items():
        if path.endswith("/direction"):  # [out, width, in]
            stored[path] = array.reshape(len(array), -1)
    for layout, rows in writer.layouts.items():
        for feature, ids in lay_out(sentences, rows).items():
            stored[f"{layout}/{feature}"] = ids.numpy().astype(np.uint8)
    return stored


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=WRITERS)
    for name in parser.parse_args().names:
        torch.set_default_dtype(torch.float64)
        file = FOLDER / f"pytorch_{name}.npz"
        stored = {
            "command": f"python -m tests.golden.golden_pytorch {name}",
            "torch": torch.__version__,
            "settings": json.dumps(WRITERS[name].settings),
            **compute(WRITERS[name]),
        }
        np.savez_compressed(file, **stored)
        print(f"{file}: {len(stored)} arrays, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
