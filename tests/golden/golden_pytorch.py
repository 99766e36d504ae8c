"""Writer of tests/golden/pytorch_*.npz: small models of PyTorch, and results.

    python -m venv torch_venv
    torch_venv/bin/pip install torch==2.13.0 numpy
    torch_venv/bin/python -m tests.golden.golden_pytorch transformer bytenet

The models are small ones of torch.nn's own layers. They share no code with
t2t_repro, only the names of the weights, and compute in float64, so that the
numbers are accurate and the same on every machine. Where PyTorch has weights
that t2t_repro lacks, such as biases of attention and a second bias of a
recurrent cell, these are 0.

Transformers compute five pairs of sentences twice, padded and packed into rows,
with different masks in PyTorch; the writer checks that both results are equal.
Recurrent models compute a padded batch, the others each pair alone.

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
PACKED = ((0, 1), (2, 3, 4))


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
        ids, segments, positions = np.zeros((3, len(rows), slots), np.int64)
        for number, row in enumerate(texts):
            start = 0
            for segment, text in enumerate(row, start=1):
                place = number, slice(start, start + len(text))
                ids[place] = text
                segments[place] = segment
                positions[place] = range(len(text))
                start += len(text)
        batch[name] = ids
        batch[f"{name}_segment"] = segments
        batch[f"{name}_position"] = positions
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


def real_outputs(batch, memory, logits, smoothing):
    """Return outputs without padding, and their losses.

    Args:
        batch: {feature: tensor}, of lay_out().
        memory: encoder output [B, L, D].
        logits: [B, T, V].
        smoothing: of losses().
    """
    real = batch["targets_segment"] > 0
    return {
        "encoder_output": memory[batch["inputs_segment"] > 0],
        "logits": logits[real],
        **losses(logits[real], batch["targets"][real], smoothing),
    }


def draw_weights(random, named, deviation, weights):
    """Set torch's parameters to random values that float16 represents.

    Args:
        random: NumPy generator.
        named: {path: view of a parameter, or list of views}.
        deviation: standard deviation, a number or a function of the path.
        weights: {path: float16 array}; those that are missing are drawn.
    """
    for path, view in named.items():
        if path not in weights:
            mean = 1.0 if path.endswith(("gamma", "gain")) else 0.0
            scale = deviation(path) if callable(deviation) else deviation
            values = random.normal(mean, scale, tuple(stacked(view).shape))
            weights[path] = values.astype(np.float16)
        tensor = torch.from_numpy(weights[path])
        if isinstance(view, list):
            for one, part in zip(view, tensor, strict=True):
                one.copy_(part)
        else:
            view.copy_(tensor)


def stacked(view):
    """Return a view, or the stack of a list of views."""
    return torch.stack(view) if isinstance(view, list) else view


def gradient(parameter):
    """Return a parameter's gradient; zeros if nothing reads it."""
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad


def with_gradients(results, named_arrays, model):
    """Return {name: float64 array} of results and gradients of their losses."""
    names = ("smoothed", "importance", "load")
    sum(results[name] for name in names if name in results).backward()
    for path, view in named_arrays(model, gradient).items():
        results[f"gradients/{path}"] = stacked(view)
    return {name: value.detach().numpy() for name, value in results.items()}


def tensors(batch):
    """Return {feature: tensor} of {feature: array}."""
    return {name: torch.from_numpy(array) for name, array in batch.items()}


# The Transformer, and its mixture of experts.

TRANSFORMER = {
    "hidden_size": 16,
    "filter_size": 32,
    "num_heads": 4,
    "num_hidden_layers": 2,
    "label_smoothing": 0.1,
}


class Transformer(nn.Module):
    """torch.nn's stacks between the paper's embeddings and softmax."""

    def __init__(self, norm_first):
        super().__init__()
        size, layers = (
            TRANSFORMER["hidden_size"],
            TRANSFORMER["num_hidden_layers"],
        )
        options = {
            "d_model": size,
            "nhead": TRANSFORMER["num_heads"],
            "dim_feedforward": TRANSFORMER["filter_size"],
            "dropout": 0.0,
            "layer_norm_eps": EPSILON,
            "batch_first": True,
            "norm_first": norm_first,
        }

        def final_norm():
            return nn.LayerNorm(size, EPSILON) if norm_first else None

        self.embedding = nn.Parameter(torch.empty(VOCAB_SIZE, size))
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**options),
            layers,
            norm=final_norm(),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**options), layers, norm=final_norm()
        )

    def forward(self, batch, encoder_masks, decoder_masks):
        """Return the encoder output [B, L, D] and logits [B, T, V]."""
        memory = self.encoder(
            self.embed(batch["inputs"], batch["inputs_position"]),
            **encoder_masks,
        )
        # Before a sentence: the zero row below the embedding matrix.
        position = batch["targets_position"]
        previous = torch.where(
            position == 0, VOCAB_SIZE, batch["targets"].roll(1, dims=1)
        )
        x = self.embed(previous, position)
        y = self.decoder(x, memory, **decoder_masks)
        return memory, functional.linear(y, self.embedding)

    def embed(self, ids, position):
        """Return embeddings times sqrt(D) (section 3.4), plus sinusoids."""
        size = TRANSFORMER["hidden_size"]
        matrix = torch.cat([self.embedding, torch.zeros(1, size)])
        table = np.empty((ids.shape[1], size))
        for column in range(0, size, 2):
            angles = np.arange(len(table)) / 10_000 ** (column / size)
            table[:, column] = np.sin(angles)
            table[:, column + 1] = np.cos(angles)
        vectors = functional.embedding(ids, matrix) * size**0.5
        return vectors + torch.from_numpy(table)[position]


def transformer_arrays(model, array):
    """Map the names of weights in t2t_repro to views of torch's parameters.

    Args:
        model: a Transformer.
        array: a function of a parameter; it returns a tensor of that shape.

    Returns:
        {path in t2t_repro: view of `array` of the parameter}.
    """
    named = {"embedding/weight": array(model.embedding)}

    def attention(path, module):
        # torch stores three matrices in one, each as [out, in].
        for name, matrix in zip(
            ("query", "key", "value"),
            array(module.in_proj_weight).chunk(3),
            strict=True,
        ):
            named[f"{path}/{name}/kernel"] = matrix.T
        matrix = array(module.out_proj.weight)
        named[f"{path}/output_projection/kernel"] = matrix.T

    def dense(path, module):
        named[f"{path}/kernel"] = array(module.weight).T
        named[f"{path}/bias"] = array(module.bias)

    def norm(path, module):
        named[f"{path}/gamma"] = array(module.weight)
        named[f"{path}/beta"] = array(module.bias)

    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, layer in enumerate(stack.layers):
            blocks = {"self_attention": layer.self_attn}
            if name == "decoder":
                blocks["cross_attention"] = layer.multihead_attn
            path = f"{name}/layer_{i}"
            for block, module in blocks.items():
                attention(f"{path}/{block}/multihead_attention", module)
            dense(f"{path}/ffn/feed_forward/filter", layer.linear1)
            dense(f"{path}/ffn/feed_forward/output_projection", layer.linear2)
            for number, block in enumerate((*blocks, "ffn"), start=1):
                module = getattr(layer, f"norm{number}")
                name_of_norm = "input_norm" if layer.norm_first else "norm"
                norm(f"{path}/{block}/{name_of_norm}", module)
        if stack.norm is not None:
            norm(f"{name}/norm", stack.norm)
    return named


def padding_masks(batch):
    """Return torch's masks for rows of one sentence; True is masked."""
    padding = batch["inputs_segment"] == 0
    length = batch["targets"].shape[1]
    return {"src_key_padding_mask": padding}, {
        "tgt_mask": torch.ones(length, length).triu(1).bool(),
        "memory_key_padding_mask": padding,
    }


def packing_masks(batch):
    """Return torch's masks [B * H, T, L] for packed rows; True is masked."""

    def mask_other_sentences(queries, keys):
        queries, keys = (batch[f"{side}_segment"] for side in (queries, keys))
        masked = queries[:, :, None] != keys[:, None]
        # Padding attends to all: softmax over no key is NaN.
        masked &= (queries > 0)[:, :, None]
        return masked.repeat_interleave(TRANSFORMER["num_heads"], dim=0)

    length = batch["targets"].shape[1]
    future = torch.ones(length, length).triu(1).bool()
    return {"mask": mask_other_sentences("inputs", "inputs")}, {
        "tgt_mask": mask_other_sentences("targets", "targets") | future,
        "memory_mask": mask_other_sentences("targets", "inputs"),
    }


MOE = TRANSFORMER | {
    "num_experts": 5,
    "experts_per_token": 2,
    "expert_filter_size": 8,
    "mixture_period": 2,
    "importance_loss_weight": 1.0,
    "load_loss_weight": 1.0,
}
MIXTURE = "ffn/mixture_of_experts"  # its path in a layer of t2t_repro


class Mixture(nn.Module):
    """A mixture that stores its losses; `is_real` [B, T] must be set first."""

    def __init__(self):
        super().__init__()
        size, inner = MOE["hidden_size"], MOE["expert_filter_size"]
        count = MOE["num_experts"]
        self.experts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(size, inner), nn.ReLU(), nn.Linear(inner, size)
            )
            for _ in range(count)
        )
        self.gate = nn.Linear(size, count, bias=False)
        self.noise = nn.Linear(size, count, bias=False)

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
            gates[..., i : i + 1] * expert(x)
            for i, expert in enumerate(self.experts)
        )


def squared_variation(x):
    """Return variance over squared mean, of a population."""
    return x.var(unbiased=False) / x.mean() ** 2


def mixtures(model):
    """Return the mixtures of encoder and decoder."""
    return [stack.layers[1].mixture for stack in (model.encoder, model.decoder)]


class TransformerMoe(Transformer):
    """The Transformer whose second layers have mixtures."""

    def __init__(self):
        super().__init__(norm_first=False)
        for stack in (self.encoder, self.decoder):
            layer = stack.layers[1]
            layer.mixture = Mixture()
            layer._ff_block = layer.mixture.forward

    def forward(self, batch, encoder_masks, decoder_masks):
        for side, mixture in zip(
            ("inputs", "targets"), mixtures(self), strict=True
        ):
            mixture.is_real = batch[f"{side}_segment"] > 0
        return super().forward(batch, encoder_masks, decoder_masks)


def moe_arrays(model, array):
    """Return {path in t2t_repro: view, or list of the experts' views}.

    Args:
        model: a TransformerMoe.
        array: a function of a parameter; it returns a tensor of that shape.
    """
    named = {
        path: view
        for path, view in transformer_arrays(model, array).items()
        if "layer_1/ffn/feed_forward" not in path
    }
    for stack, mixture in zip(
        ("encoder", "decoder"), mixtures(model), strict=True
    ):
        path = f"{stack}/layer_1/{MIXTURE}"
        named[f"{path}/gating/weight"] = array(mixture.gate.weight).T
        named[f"{path}/gating/noise_weight"] = array(mixture.noise.weight).T
        for name, index in (("filter", 0), ("output", 2)):
            layers = [expert[index] for expert in mixture.experts]
            named[f"{path}/{name}_kernel"] = [
                array(layer.weight).T for layer in layers
            ]
            named[f"{path}/{name}_bias"] = [
                array(layer.bias) for layer in layers
            ]
    return named


def transformer_results(model, named_arrays, sentences, smoothing):
    """Return {name: array}, equal for padded and packed rows."""
    found = []
    for rows, masks in ((PADDED, padding_masks), (PACKED, packing_masks)):
        batch = tensors(lay_out(sentences, rows))
        model.zero_grad()
        memory, logits = model(batch, *masks(batch))
        results = real_outputs(batch, memory, logits, smoothing)
        if isinstance(model, TransformerMoe):
            for name in ("importance", "load"):
                results[name] = sum(getattr(x, name) for x in mixtures(model))
        found.append(with_gradients(results, named_arrays, model))
    padded, packed = found
    for name, array in padded.items():
        np.testing.assert_allclose(packed[name], array, atol=1e-12)
    return padded


# Recurrent models.

RECURRENT_SIZE = 8
GNMT = {
    "hidden_size": RECURRENT_SIZE,
    "num_encoder_layers": 4,
    "num_bidirectional_layers": 1,
    "num_decoder_layers": 3,
    "attention_size": 6,
    "label_smoothing": 0.1,
}
FIRST_RESIDUAL = 2
LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU}
CELLS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}


class Gnmt(nn.Module):
    """Encoder and decoder of section 3, with one matrix for all embeddings."""

    def __init__(self, cell):
        super().__init__()
        layer, options = LAYERS[cell], {"batch_first": True}
        self.embedding = nn.Parameter(torch.empty(VOCAB_SIZE, RECURRENT_SIZE))
        self.encoder = nn.ModuleList(
            [
                layer(
                    RECURRENT_SIZE,
                    RECURRENT_SIZE,
                    bidirectional=True,
                    **options,
                ),
                layer(2 * RECURRENT_SIZE, RECURRENT_SIZE, **options),
            ]
            + [
                layer(RECURRENT_SIZE, RECURRENT_SIZE, **options)
                for _ in range(GNMT["num_encoder_layers"] - 2)
            ]
        )
        self.bottom = CELLS[cell](2 * RECURRENT_SIZE, RECURRENT_SIZE)
        self.upper = nn.ModuleList(
            layer(2 * RECURRENT_SIZE, RECURRENT_SIZE, **options)
            for _ in range(GNMT["num_decoder_layers"] - 1)
        )
        self.query = nn.Linear(
            RECURRENT_SIZE, GNMT["attention_size"], bias=False
        )
        self.key = nn.Linear(RECURRENT_SIZE, GNMT["attention_size"], bias=False)
        self.energy = nn.Linear(GNMT["attention_size"], 1, bias=False)

    def embed(self, ids):
        """Return embeddings times sqrt(D)."""
        return functional.embedding(ids, self.embedding) * RECURRENT_SIZE**0.5

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
        output, state = torch.zeros(len(x), RECURRENT_SIZE), None
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


def gnmt_arrays(model, array):
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
        if len(view("bias_hh")) == 3 * RECURRENT_SIZE:
            named[f"{path}/cell/recurrent_bias"] = view("bias_hh")[
                2 * RECURRENT_SIZE :
            ]

    cell("encoder/layer_0/forward", model.encoder[0], "_l0")
    cell("encoder/layer_0/backward", model.encoder[0], "_l0_reverse")
    for number, layer in enumerate(model.encoder[1:], start=1):
        cell(f"encoder/layer_{number}", layer, "_l0")
    cell("decoder/layer_0", model.bottom, "")
    both = named["decoder/layer_0/cell/kernel"]
    named["decoder/layer_0/cell/kernel"] = both[:RECURRENT_SIZE]
    named["decoder/layer_0/context_projection/kernel"] = both[RECURRENT_SIZE:]
    for number, layer in enumerate(model.upper, start=1):
        cell(f"decoder/layer_{number}", layer, "_l0")
    return named


GATES = 4 * RECURRENT_SIZE
CONTEXT = 2 * (RECURRENT_SIZE + GATES) // 4
DEEP_ATT = {
    "hidden_size": RECURRENT_SIZE,
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
        self.recurrence = recurrence(GATES, RECURRENT_SIZE, bias=False)
        for name, parameter in self.recurrence.named_parameters():
            if "weight_ih" in name:
                parameter.requires_grad_(False).copy_(torch.eye(GATES))

    def recur(self, f, lengths, reverse):
        """Return h [B, T, D], zero at padding, from f [B, T, gates]."""
        outputs = torch.zeros(*f.shape[:2], RECURRENT_SIZE)
        for row, length in enumerate(lengths):
            steps = f[row, :length]
            steps = steps.flip(0) if reverse else steps
            h, _ = self.recurrence(steps)
            outputs[row, :length] = h.flip(0) if reverse else h
        return outputs


def stack(first_input, layers):
    """Return the layers of a column; those above the first take f and h."""
    upper = [
        FastForward(GATES // 2 + RECURRENT_SIZE) for _ in range(layers - 1)
    ]
    return nn.ModuleList([FastForward(first_input), *upper])


class DeepAtt(nn.Module):
    """Encoder and decoder of section 3, with one matrix for all embeddings."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(VOCAB_SIZE, RECURRENT_SIZE))
        self.columns = nn.ModuleList(
            stack(RECURRENT_SIZE, DEEP_ATT["num_encoder_layers"])
            for _ in range(2)
        )
        self.projection = nn.Linear(4 * CONTEXT, CONTEXT, bias=False)
        self.decoder = stack(RECURRENT_SIZE, DEEP_ATT["num_decoder_layers"])
        self.decoder[0] = FastForward(RECURRENT_SIZE + CONTEXT, nn.LSTMCell)
        self.query = nn.Linear(
            RECURRENT_SIZE, DEEP_ATT["attention_size"], bias=False
        )
        self.key = nn.Linear(CONTEXT, DEEP_ATT["attention_size"], bias=False)
        self.energy = nn.Linear(DEEP_ATT["attention_size"], 1, bias=False)

    def embed(self, ids):
        """Return embeddings times sqrt(D)."""
        return functional.embedding(ids, self.embedding) * RECURRENT_SIZE**0.5

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
        state = torch.zeros(2, len(x), RECURRENT_SIZE)
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


def deep_att_arrays(model, array):
    """Map the names of weights in t2t_repro to views of torch's parameters.

    As gnmt_arrays().
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
    named["decoder/layer_0/cell/kernel"] = both[:RECURRENT_SIZE]
    named["decoder/layer_0/context_projection/kernel"] = both[RECURRENT_SIZE:]
    return named


def recurrent_deviation(deviation, path):
    """Return the deviation of a weight, by default `deviation`.

    Attention is far from uniform, so that all gradients are large.
    """
    return 1.5 if "attention" in path else deviation


def recurrent_results(model, named_arrays, sentences, smoothing):
    """Return {name: array} of a padded batch."""
    batch = tensors(lay_out(sentences, PADDED))
    results = real_outputs(batch, *model(batch), smoothing)
    return with_gradients(results, named_arrays, model)


# Convolutional models.

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
    """Return a weight-normalized normalized_linear layer."""
    return weight_norm(nn.Linear(inputs, outputs))


class GatedBlock(nn.Module):
    """Gated convolution of x [1, N, C] in a residual; attention if causal."""

    def __init__(self, inputs, channels, width, causal):
        super().__init__()
        self.causal, self.width = causal, width
        self.conv = weight_norm(nn.Conv1d(inputs, 2 * channels, width))
        self.projection = normalized_linear(inputs, channels)
        self.projects = inputs != channels
        if causal:
            self.query = normalized_linear(channels, CONVS2S["hidden_size"])
            self.output = normalized_linear(CONVS2S["hidden_size"], channels)

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
        size = CONVS2S["hidden_size"]
        self.embedding = nn.Embedding(VOCAB_SIZE, size)
        self.positions = nn.Embedding(CONVS2S["max_length"], size)
        channels = convolutions[0][0]
        self.input = normalized_linear(size, channels)
        self.blocks = nn.ModuleList()
        for outputs, width in convolutions:
            self.blocks.append(GatedBlock(channels, outputs, width, causal))
            channels = outputs
        self.output = normalized_linear(channels, size)

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
    """Two stacks and a normalized_linear layer."""

    def __init__(self):
        super().__init__()
        self.encoder = Stack(ENCODER_BLOCKS, causal=False)
        self.decoder = Stack(DECODER_BLOCKS, causal=True)
        self.softmax = normalized_linear(CONVS2S["hidden_size"], VOCAB_SIZE)

    def forward(self, inputs, targets):
        """Return encoder output, logits and attention of ids [1, L], [1, T]."""
        embedded, states, _ = self.encoder(self.encoder.embedding(inputs))
        if states.requires_grad:
            states.register_hook(lambda grad: grad / len(DECODER_BLOCKS))
        values = (states + embedded) * math.sqrt(0.5)
        vectors = self.decoder.embedding(targets)
        start = torch.zeros_like(vectors[:, :1])
        shifted = torch.cat([start, vectors[:, :-1]], dim=1)
        _, x, attention = self.decoder(shifted, (states, values))
        return states, self.softmax(x), attention


def convs2s_arrays(model, array):
    """As transformer_arrays(), of a ConvS2S; kernels are [out, width, in]."""
    named = {}

    def normalized(path, module):
        weight = module.parametrizations.weight
        direction = array(weight.original1)
        if direction.ndim == 3:
            direction = direction.permute(0, 2, 1)
        named[f"{path}/gain"] = array(weight.original0).reshape(-1)
        named[f"{path}/direction"] = direction
        named[f"{path}/bias"] = array(module.bias)

    for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        named[f"{name}/embedding/table"] = array(stack.embedding.weight)
        named[f"{name}/positions/table"] = array(stack.positions.weight)
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


def convs2s_results(model, named_arrays, sentences, smoothing):
    """Return {name: array} of all pairs, each computed alone."""
    slots = lay_out(sentences, PADDED)["inputs"].shape[1]
    states, logits, attention = [], [], []
    for pair in sentences:
        found = model(*(torch.tensor([ids]) for ids in pair))
        states.append(found[0][0])
        logits.append(found[1][0])
        weights = torch.cat(found[2])  # [layers, T, L]
        attention.append(functional.pad(weights, (0, slots - len(pair[0]))))
    logits = torch.cat(logits)
    results = {
        "encoder_output": torch.cat(states),
        "logits": logits,
        "attention": torch.cat(attention, dim=1),
        **losses(logits, labels_of(sentences), smoothing),
    }
    return with_gradients(results, named_arrays, model)


def labels_of(sentences):
    """Return the ids of all targets in a row."""
    return torch.tensor([i for _, target in sentences for i in target])


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


class DilatedBlock(nn.Module):
    """Residual block of figure 3, left, on x [1, channels, T]."""

    def __init__(self, dilation, causal):
        super().__init__()
        outer, inner = BYTENET["hidden_size"], BYTENET["hidden_size"] // 2
        width = BYTENET["kernel_width"]
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
        size = BYTENET["hidden_size"]
        for name in ("inputs_embedding", "targets_embedding", "softmax"):
            setattr(self, name, nn.Embedding(VOCAB_SIZE, size))
        for name, causal in (("encoder", False), ("decoder", True)):
            blocks = (DilatedBlock(dilation, causal) for dilation in DILATIONS)
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
        scale = BYTENET["hidden_size"] ** 0.5
        # 1.2 |s| in tenths, which floats represent.
        count = math.ceil(len(source) * 12 / 10) + BYTENET["target_offset"]
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


def bytenet_arrays(model, array):
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


class NeuralGpu(nn.Module):
    """Encoder and decoder, with embeddings and softmax."""

    def __init__(self):
        super().__init__()
        for name in ("inputs_embedding", "targets_embedding", "softmax"):
            table = nn.Embedding(VOCAB_SIZE, MAPS)
            setattr(self, name, table)
        layers = range(NEURAL_GPU["num_hidden_layers"])
        self.encoder = nn.ModuleList(Unit(False) for _ in layers)
        self.decoder = nn.ModuleList(Unit(True) for _ in layers)

    def forward(self, source, target):
        """Return the encoder's columns and logits [T, V] of lists of ids."""
        columns = math.ceil(len(source) * 12 / 10) + NEURAL_GPU["target_offset"]
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


def neural_gpu_arrays(model, array):
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
                used = NEURAL_GPU["kernel_width"] // 2 + 1
                named[f"{path}/tape_kernel"] = kernel[:, :used]
    return named


def column_results(model, named_arrays, sentences, smoothing):
    """Return {name: array} of all pairs, each computed alone."""
    columns, logits = zip(*(model(*pair) for pair in sentences), strict=True)
    logits = torch.cat(logits)
    results = {
        "columns": torch.tensor([len(each) for each in columns]),
        "encoder_output": torch.cat(columns),
        "logits": logits,
        **losses(logits, labels_of(sentences), smoothing),
    }
    return with_gradients(results, named_arrays, model)


class Writer(NamedTuple):
    """What a file is made of."""

    settings: dict  # hparams
    seed: int  # of the weights and the sentences
    models: dict[str, Callable]  # {folder in the file: builds a model}
    named_arrays: Callable  # model, function of a parameter -> {path: view}
    results: Callable  # model, named_arrays, sentences, smoothing -> arrays
    deviation: Callable | float  # of the weights, see draw_weights()
    layouts: dict[str, tuple] = {"padded": PADDED}
    shared_weights: bool = False  # by all models, outside their folders


BOTH_LAYOUTS = {"padded": PADDED, "packed": PACKED}
WRITERS = {
    "transformer": Writer(
        TRANSFORMER,
        20170612,
        {
            "post_norm/": lambda: Transformer(norm_first=False),
            "pre_norm/": lambda: Transformer(norm_first=True),
        },
        transformer_arrays,
        transformer_results,
        0.25,
        BOTH_LAYOUTS,
        shared_weights=True,
    ),
    "transformer_moe": Writer(
        MOE,
        20170612,
        {"": TransformerMoe},
        moe_arrays,
        transformer_results,
        0.25,
        BOTH_LAYOUTS,
    ),
    "recurrent": Writer(
        GNMT,
        20160926,
        {f"{cell}/": functools.partial(Gnmt, cell) for cell in LAYERS},
        gnmt_arrays,
        recurrent_results,
        functools.partial(recurrent_deviation, 0.5),
    ),
    # Fast-forward connections are linear: larger weights would make huge sums.
    "deep_att": Writer(
        DEEP_ATT,
        20160926,
        {"deep_att/": DeepAtt},
        deep_att_arrays,
        recurrent_results,
        functools.partial(recurrent_deviation, 0.3),
    ),
    "convs2s": Writer(
        CONVS2S, 20170508, {"": ConvS2S}, convs2s_arrays, convs2s_results, 0.5
    ),
    "bytenet": Writer(
        BYTENET,
        20161031,
        {"": ByteNet},
        bytenet_arrays,
        column_results,
        0.25,
        {"batch": PADDED},
    ),
    "neural_gpu": Writer(
        NEURAL_GPU,
        20161026,
        {"": NeuralGpu},
        neural_gpu_arrays,
        column_results,
        0.3,
        {"batch": PADDED},
    ),
}


def compute(writer):
    """Return the arrays of a file."""
    random = np.random.default_rng(writer.seed)
    smoothing = writer.settings["label_smoothing"]
    models = {folder: build() for folder, build in writer.models.items()}
    sentences = draw_sentences(random)
    stored, weights = {}, {}
    for folder, model in models.items():
        for name, parameter in model.named_parameters():
            if name.endswith(("in_proj_bias", "out_proj.bias")) or (
                "bias_hh" in name
            ):
                nn.init.zeros_(parameter)  # ours has none
        if not writer.shared_weights:
            weights = {}
        views = writer.named_arrays(model, lambda p: p.detach())
        draw_weights(random, views, writer.deviation, weights)
        results = writer.results(
            model, writer.named_arrays, sentences, smoothing
        )
        place = "" if writer.shared_weights else folder
        stored |= {f"{place}weights/{p}": a for p, a in weights.items()}
        for path, array in results.items():
            stored[f"{folder}{path}"] = array.astype(np.float32)
    for path, array in stored.items():
        if path.endswith("/direction"):  # [out, width, in]
            stored[path] = array.reshape(len(array), -1)
    for layout, rows in writer.layouts.items():
        for feature, array in lay_out(sentences, rows).items():
            stored[f"{layout}/{feature}"] = array.astype(np.uint8)
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
