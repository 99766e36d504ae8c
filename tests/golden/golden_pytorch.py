"""Writer of results in tests/golden/pytorch_*.npz: small models of PyTorch.

    python -m venv torch_venv
    torch_venv/bin/pip install torch==2.13.0 numpy
    torch_venv/bin/python -m tests.golden.golden_pytorch transformer bytenet

A file has random weights and five random pairs of sentences, which stay as they
are; this program computes the rest. Its models are functions of weights, by
their names in t2t_repro, and of one pair. They share no code with t2t_repro;
the layers of the Transformer and the recurrent cells are PyTorch's. They
compute in float64, so that the numbers are accurate and the same on every
machine.

A file contains, with the N positions of all sentences in a row:

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

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

FOLDER = pathlib.Path(__file__).parent
EPSILON = 1e-6  # added to the variance in layer normalization


# Layers: functions of weights `w` by their names, and of a path among these.


def dense(w, path, x):
    return x @ w[f"{path}/kernel"] + w[f"{path}/bias"]


def layer_norm(w, path, x):
    gain, bias = w[f"{path}/gamma"], w[f"{path}/beta"]
    return functional.layer_norm(x, x.shape[-1:], gain, bias, EPSILON)


def normalized(w, path):
    """Return a weight-normalized matrix [outputs, inputs] and its bias."""
    direction, gain = w[f"{path}/direction"], w[f"{path}/gain"]
    matrix = direction * (gain / direction.norm(dim=1))[:, None]
    return matrix, w[f"{path}/bias"]


def embed(w, ids, name="embedding"):
    """Return embeddings [N, D] times sqrt(D) (section 3.4)."""
    matrix = w[f"{name}/weight"]
    return matrix[ids] * matrix.shape[1] ** 0.5


def shift(x):
    """Return x [T, D] with zeros first and without its last vector."""
    return functional.pad(x, (0, 0, 1, -1))


# Models: functions of weights, hparams `h`, and ids of source and target. They
# return arrays whose first axis has the positions of a sentence, or one row.


def transformer(w, h, source, target, pre_norm=False):
    """Run torch.nn's layers between the paper's embeddings and softmax."""
    sums = []  # of mixtures
    layer = functools.partial(transformer_layer, w, h, pre_norm, sums)
    x = embed(w, source) + sinusoids(len(source), h["hidden_size"])
    for i in range(h["num_hidden_layers"]):
        x = layer(f"encoder/layer_{i}", x)
    if pre_norm:
        x = layer_norm(w, "encoder/norm", x)
    y = shift(embed(w, target)) + sinusoids(len(target), h["hidden_size"])
    mask = torch.ones(len(y), len(y)).triu(1).bool()
    for i in range(h["num_hidden_layers"]):
        y = layer(f"decoder/layer_{i}", y, x, mask)
    if pre_norm:
        y = layer_norm(w, "decoder/norm", y)
    found = {"encoder_output": x, "logits": y @ w["embedding/weight"].T}
    if sums:
        importance, load = zip(*sums, strict=True)
        found |= {"importance": torch.stack(importance)[None]}
        found |= {"load": torch.stack(load)[None]}
    return found


def sinusoids(length, size):
    rates = 10_000 ** -(torch.arange(0, size, 2) / size)
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def transformer_layer(w, h, pre_norm, sums, path, *arguments):
    """Run a layer of torch.nn; biases of attention are 0.

    A mixture of experts appends to `sums`.
    """
    settings = {"dropout": 0.0, "layer_norm_eps": EPSILON}
    settings |= {"norm_first": pre_norm}
    sizes = h["hidden_size"], h["num_heads"], h["filter_size"]
    attentions = {"self_attention": "self_attn"}
    if path.startswith("encoder"):
        layer = nn.TransformerEncoderLayer(*sizes, **settings)
    else:
        layer = nn.TransformerDecoderLayer(*sizes, **settings)
        attentions["cross_attention"] = "multihead_attn"
    state = {}
    for block, name in attentions.items():
        *inputs, output = (
            w[f"{path}/{block}/multihead_attention/{projection}/kernel"].T
            for projection in ("query", "key", "value", "output_projection")
        )
        # torch stores three matrices in one, each as [out, in].
        state[f"{name}.in_proj_weight"] = torch.cat(inputs)
        state[f"{name}.out_proj.weight"] = output
    for number, block in enumerate((*attentions, "ffn"), start=1):
        scope = f"{path}/{block}/{'input_norm' if pre_norm else 'norm'}"
        state[f"norm{number}.weight"] = w[f"{scope}/gamma"]
        state[f"norm{number}.bias"] = w[f"{scope}/beta"]
    names = {"linear1": "filter", "linear2": "output_projection"}
    experts = f"{path}/ffn/mixture_of_experts"
    if f"{experts}/filter_kernel" in w:
        layer._ff_block = functools.partial(mixture, w, h, experts, sums)
        names = {}
    for name, block in names.items():
        scope = f"{path}/ffn/feed_forward/{block}"
        state[f"{name}.weight"] = w[f"{scope}/kernel"].T
        state[f"{name}.bias"] = w[f"{scope}/bias"]
    return functional_call(layer, state, arguments)


def mixture(w, h, path, sums, x):
    """Mix experts for x [T, D]; append sums [E] of gates and of loads."""
    logits, k = x @ w[f"{path}/gating/weight"], h["experts_per_token"]
    top, chosen = torch.topk(logits, k)
    gates = torch.zeros_like(logits).scatter(-1, chosen, top.softmax(-1))
    deviation = functional.softplus(x @ w[f"{path}/gating/noise_weight"])
    load, y = [], 0
    for i in range(h["num_experts"]):
        others = torch.cat([logits[:, :i], logits[:, i + 1 :]], -1)
        threshold = torch.topk(others, k).values[:, -1]
        z = (logits[:, i] - threshold) / deviation[:, i]
        load.append(torch.distributions.Normal(0.0, 1.0).cdf(z).sum())
        kernels, biases = (
            [w[f"{path}/{name}_{part}"][i] for name in ("filter", "output")]
            for part in ("kernel", "bias")
        )
        hidden = (x @ kernels[0] + biases[0]).relu()
        y = y + gates[:, i : i + 1] * (hidden @ kernels[1] + biases[1])
    sums.append((gates.sum(0), torch.stack(load)))
    return y


# Recurrent models.


def attend(w, output, memory):
    """Return the context [1, channels] of the last output [1, D]."""
    path = "decoder/layer_0/attention"
    keys = memory @ w[f"{path}/key/kernel"]
    hidden = torch.tanh(output @ w[f"{path}/query/kernel"] + keys)
    energies = w[f"{path}/compatibility/weight"] @ hidden.T
    return torch.softmax(energies, dim=1) @ memory


def cell_parameters(w, path):
    """Return PyTorch's parameters of a cell, and its class: LSTM or GRU.

    PyTorch has a second bias, of which t2t_repro has the last third in a GRU.
    """
    kernel, matrix, bias = (
        w[f"{path}/cell/{name}"]
        for name in ("kernel", "recurrent_kernel", "bias")
    )
    second = torch.zeros_like(bias)
    if len(bias) == 3 * len(matrix):
        more = w[f"{path}/cell/recurrent_bias"]
        second = torch.cat([second[len(more) :], more])
    return [kernel.T, matrix.T, bias, second]


def recur(x, parameters, reverse=False):
    """Return the outputs [T, D] of an LSTM or a GRU for x [T, inputs].

    Its parameters are matrices of x and of the state, and perhaps two biases.
    """
    gates, size = parameters[1].shape
    x, state = (x.flip(0) if reverse else x)[:, None], torch.zeros(1, 1, size)
    options = len(parameters) > 2, 1, 0.0, False, False, False
    if gates == 4 * size:
        y = torch.lstm(x, (state, state), parameters, *options)[0][:, 0]
    else:
        y = torch.gru(x, state, parameters, *options)[0][:, 0]
    return y.flip(0) if reverse else y


def gnmt(w, h, source, target):
    """Run encoder and decoder of section 3 of GNMT's paper."""
    x = embed(w, source)
    forward, backward = (
        recur(x, cell_parameters(w, f"encoder/layer_0/{name}"), reverse)
        for name, reverse in (("forward", False), ("backward", True))
    )
    x = torch.cat([forward, backward], -1)
    for i in range(1, h["num_encoder_layers"]):
        y = recur(x, cell_parameters(w, f"encoder/layer_{i}"))
        x = x + y if i >= 2 else y
    memory = x
    # The decoder's bottom layer, whose contexts the others read, too.
    kernel, *others = cell_parameters(w, "decoder/layer_0")
    more = w["decoder/layer_0/context_projection/kernel"].T
    parameters = torch.cat([kernel, more], dim=1), *others
    output = state = torch.zeros(1, h["hidden_size"])
    outputs, contexts = [], []
    for vector in shift(embed(w, target)).split(1):
        contexts.append(attend(w, output, memory))
        joined = torch.cat([vector, contexts[-1]], -1)
        if len(kernel) == 4 * h["hidden_size"]:  # an LSTM
            pair = output, state
            output, state = torch.lstm_cell(joined, pair, *parameters)
        else:
            output = torch.gru_cell(joined, output, *parameters)
        outputs.append(output)
    x, contexts = torch.cat(outputs), torch.cat(contexts)
    for i in range(1, h["num_decoder_layers"]):
        y = torch.cat([x, contexts], -1)
        y = recur(y, cell_parameters(w, f"decoder/layer_{i}"))
        x = x + y if i >= 2 else y
    return {"encoder_output": memory, "logits": x @ w["embedding/weight"].T}


def deep_att(w, h, source, target):
    """Run encoder and decoder of section 3 of Deep-Att's paper."""
    tops = []
    for number in range(2):
        f, state = None, embed(w, source)
        for depth in range(h["num_encoder_layers"]):
            path = f"encoder/column_{number}_layer_{depth}"
            reverse = (number + depth) % 2 == 1
            f, state = fast_forward(w, path, f, state, reverse)
        tops += [state, f]
    memory = torch.cat(tops, dim=-1) @ w["encoder/projection/kernel"]
    # The decoder's bottom layer, which attends.
    path, every_f, every_h = "decoder/layer_0", [], []
    matrix = w[f"{path}/cell/recurrent_kernel"].T
    pair = torch.zeros(2, 1, h["hidden_size"]).unbind()
    for vector in shift(embed(w, target)).split(1):
        context = attend(w, pair[0], memory)
        f = dense(w, f"{path}/cell", vector)
        f = f + context @ w[f"{path}/context_projection/kernel"]
        pair = torch.lstm_cell(f, pair, torch.eye(len(matrix)), matrix)
        every_f.append(f)
        every_h.append(pair[0])
    f, state = torch.cat(every_f), torch.cat(every_h)
    for depth in range(1, h["num_decoder_layers"]):
        f, state = fast_forward(w, f"decoder/layer_{depth}", f, state)
    logits = state @ w["embedding/weight"].T
    return {"encoder_output": memory, "logits": logits}


def fast_forward(w, path, f, state, reverse=False):
    """Return f [T, gates] and h [T, D] of a layer, from those below.

    The layers above the first, for which f is None, read half of f.
    """
    if f is not None:
        path = f"{path}/recurrent"
        state = torch.cat([f[:, : f.shape[1] // 2], state], -1)
    f = dense(w, f"{path}/cell", state)
    matrix = w[f"{path}/cell/recurrent_kernel"].T
    return f, recur(f, [torch.eye(len(matrix)), matrix], reverse)


# Convolutional models.

WIDTHS = {"encoder": (3, 3, 2, 1), "decoder": (3, 2, 1)}  # of ConvS2S


def convs2s(w, h, source, target):
    """Run two stacks and a weight-normalized softmax."""
    embedded = w["encoder/embedding/table"][source]
    embedded = embedded + w["encoder/positions/table"][: len(source)]
    states, _ = convs2s_stack(w, h, "encoder", embedded)
    states.register_hook(lambda grad: grad / len(WIDTHS["decoder"]))
    memory = states, (states + embedded) * math.sqrt(0.5)
    y = shift(w["decoder/embedding/table"][target])
    y = y + w["decoder/positions/table"][: len(target)]
    y, attention = convs2s_stack(w, h, "decoder", y, memory)
    padding = h["max_length"] - len(source)
    return {
        "encoder_output": states,
        "logits": functional.linear(y, *normalized(w, "softmax")),
        "attention": functional.pad(torch.stack(attention, 1), (0, padding)),
    }


def convs2s_stack(w, h, side, embedded, memory=None):
    """Return the output of a stack, and the attention [T, L] of each layer."""

    def linear(path, x):
        return functional.linear(x, *normalized(w, f"{side}/{path}"))

    x, attention = linear("input_projection", embedded), []
    for i, width in enumerate(WIDTHS[side]):
        residual = x
        if f"{side}/layer_{i}/projection/gain" in w:
            residual = linear(f"layer_{i}/projection", x)
        matrix, bias = normalized(w, f"{side}/layer_{i}/convolution/linear")
        kernel = matrix.unflatten(1, (width, -1)).movedim(1, 2)
        before = (width - 1) // 2 if side == "encoder" else width - 1
        padded = functional.pad(x.T, (before, width - 1 - before))
        y = functional.glu(functional.conv1d(padded, kernel, bias).T)
        if side == "decoder":
            states, values = memory
            query = linear(f"layer_{i}/attention/query", y) + embedded
            energies = query * math.sqrt(0.5) @ states.T
            attention.append(torch.softmax(energies, dim=-1))
            context = attention[-1] @ values * math.sqrt(len(states))
            context = linear(f"layer_{i}/attention/output_projection", context)
            y = (y + context) * math.sqrt(0.5)
        x = (y + residual) * math.sqrt(0.5)
    return linear("output_projection", x), attention


def num_columns(source, h):
    # 1.2 |s| in tenths, which floats represent.
    return math.ceil(len(source) * 12 / 10) + h["target_offset"]


def bytenet(w, h, source, target):
    """Run both stacks; the decoder adds the encoder's columns to targets."""
    count, length = num_columns(source, h), len(target)
    padded = functional.pad(source, (0, count - len(source)))
    x = embed(w, padded, "inputs_embedding")
    columns = bytenet_stack(w, h, "encoder", x)
    y = shift(embed(w, target, "targets_embedding"))
    shared = functional.pad(columns[:length], (0, 0, 0, max(length - count, 0)))
    states = bytenet_stack(w, h, "decoder", y + shared)
    return {
        "columns": torch.tensor([count]),
        "encoder_output": columns,
        "logits": states @ w["softmax/weight"].T,
    }


def bytenet_stack(w, h, side, x):
    """Run the residual blocks of figure 3, left, on x [T, D]."""
    for i in range(3):
        path = f"{side}/block_{i}"
        y = layer_norm(w, f"{path}/input_norm", x).relu()
        y = dense(w, f"{path}/input_projection", y)
        y = layer_norm(w, f"{path}/inner_norm", y).relu()
        reach = (h["kernel_width"] - 1) * 2**i
        # Zeros on both sides, or on the left.
        pads = (reach // 2, reach // 2) if side == "encoder" else (reach, 0)
        y = functional.conv1d(
            functional.pad(y.T, pads),
            w[f"{path}/convolution/kernel"].permute(2, 1, 0),
            w[f"{path}/convolution/bias"],
            dilation=2**i,
        ).T
        y = layer_norm(w, f"{path}/output_norm", y).relu()
        x = x + dense(w, f"{path}/output_projection", y)
    return layer_norm(w, f"{side}/norm", x)


def neural_gpu(w, h, source, target):
    """Run encoder and decoder, which writes a tape."""
    count, layers = num_columns(source, h), range(h["num_hidden_layers"])
    assert len(target) <= count

    def image_of(vectors):
        """Return an image [m, columns, w] whose first row has [N, m]."""
        pads = (0, h["image_width"] - 1, 0, count - len(vectors))
        return functional.pad(vectors.T[:, :, None], pads)

    image = image_of(embed(w, source, "inputs_embedding"))
    for _ in range(count):
        for i in layers:
            image = cgru(w, f"encoder_{i}", image)
    memory, states = image, []
    y = embed(w, target, "targets_embedding")
    for step in range(len(target)):
        for i in layers:
            image = cgru(w, f"decoder_{i}", image, image_of(y[:step]))
        states.append(image[:, step, 0])
    return {
        "columns": torch.tensor([count]),
        "encoder_output": memory.permute(1, 2, 0),
        "logits": torch.stack(states) @ w["softmax/weight"].T,
    }


def cgru(w, path, image, tape=None):
    """Run the unit of the paper on an image [m, n, w], and a tape as large."""
    maps = len(image)

    def convolve(name, x):
        kernel = w[f"{path}/{name}_kernel"].permute(3, 2, 0, 1)
        # The other taps would only see rows of the tape that are zero.
        kernel = functional.pad(kernel, (0, 3 - kernel.shape[-1]))
        bias = w.get(f"{path}/{name}_bias")
        return functional.conv2d(x, kernel, bias, padding="same")

    seen = torch.zeros(3 * maps, 1, 1)
    if tape is not None:
        seen = convolve("tape", tape)  # W', W'', W
    gates = convolve("gates", image) + seen[: 2 * maps]  # U', U''
    update, reset = gates.sigmoid().chunk(2)
    candidate = convolve("candidate", reset * image) + seen[2 * maps :]  # U
    return update * image + (1 - update) * candidate.tanh()


# {file: {folder: model}}
MODELS = {
    "transformer": {
        "post_norm/": transformer,
        "pre_norm/": functools.partial(transformer, pre_norm=True),
    },
    "transformer_moe": {"": transformer},
    "recurrent": {"lstm/": gnmt, "gru/": gnmt},
    "deep_att": {"deep_att/": deep_att},
    "convs2s": {"": convs2s},
    "bytenet": {"": bytenet},
    "neural_gpu": {"": neural_gpu},
}


def compute(model, w, h, pairs):
    """Return {name: array} of outputs, losses and gradients of a model."""
    of_pairs = [model(w, h, *pair) for pair in pairs]
    found = {
        name: torch.cat([outputs[name] for outputs in of_pairs])
        for name in of_pairs[0]
    }
    if "attention" in found:
        found["attention"] = found["attention"].movedim(1, 0)
    labels = torch.cat([target for _, target in pairs])
    found["plain"] = functional.cross_entropy(found["logits"], labels)
    # torch gives e' / V to every subword, the target included; tensor2tensor
    # e / (V - 1) to every other one. Both are equal if e' = e V / (V - 1).
    vocab_size = found["logits"].shape[-1]
    smoothing = h["label_smoothing"] * vocab_size / (vocab_size - 1)
    total = found["smoothed"] = functional.cross_entropy(
        found["logits"], labels, label_smoothing=smoothing
    )
    for name in {"importance", "load"} & found.keys():
        sums = found[name].sum(0)  # [mixtures, E] of all pairs
        # Variance over squared mean, of a population.
        found[name] = sum(x.var(unbiased=False) / x.mean() ** 2 for x in sums)
        total = total + found[name]
    gradients = torch.autograd.grad(total, [*w.values()], allow_unused=True)
    for path, gradient in zip(w, gradients, strict=True):
        if gradient is not None:  # pre_norm and post_norm have other norms
            found[f"gradients/{path}"] = gradient
    return {
        name: value.detach().numpy().astype(np.float32)
        for name, value in found.items()
    }


def results(name, stored):
    """Compute what follows from the weights and sentences of a file."""
    h = json.loads(str(stored["settings"]))
    layout = "padded" if "padded/inputs" in stored else "batch"
    pairs = [
        [torch.tensor(row[row > 0], dtype=int) for row in rows]
        for rows in zip(
            stored[f"{layout}/inputs"], stored[f"{layout}/targets"], strict=True
        )
    ]
    found = {}
    for folder, model in MODELS[name].items():
        # The two Transformers share their weights.
        place = "" if "weights/embedding/weight" in stored else folder
        w = {
            path.removeprefix(f"{place}weights/"): torch.tensor(
                array, dtype=float, requires_grad=True
            )
            for path, array in stored.items()
            if path.startswith(f"{place}weights/")
        }
        for path, array in compute(model, w, h, pairs).items():
            found[f"{folder}{path}"] = array
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=MODELS)
    torch.set_default_dtype(torch.float64)
    for name in parser.parse_args().names:
        file = FOLDER / f"pytorch_{name}.npz"
        with np.load(file) as arrays:
            stored = dict(arrays)
        stored |= results(name, stored) | {"torch": torch.__version__}
        np.savez_compressed(file, **stored)
        print(f"{file}: {len(stored)} arrays, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
