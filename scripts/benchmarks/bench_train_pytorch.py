"""Process of bench_train and bench_gpu that trains PyTorch's nn.Transformer.

    python -m scripts.benchmarks.bench_train_pytorch FILE.npz SETTINGS

Batches are of pairs of similar lengths. The program prints one JSON object: the
seconds of each step, real tokens of all steps, and the highest memory.
"""

import json
import math
import sys
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from scripts.benchmarks import harness


class Model(nn.Module):
    """nn.Transformer with tied embeddings and sinusoids, as in the paper.

    It drops elements where the paper's model does (section 5.4). By default,
    nn.Transformer also drops attention weights and elements within the
    feed-forward network, which is more work: with dropout,
    scaled_dot_product_attention stores all weights on a CPU.
    """

    def __init__(self, settings):
        super().__init__()
        width = settings["hidden_size"]
        self.scale = width**0.5
        self.embedding = nn.Embedding(settings["vocab_size"], width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.dropout = nn.Dropout(settings["dropout"])
        self.transformer = nn.Transformer(
            width,
            settings["num_heads"],
            settings["num_hidden_layers"],
            settings["num_hidden_layers"],
            settings["filter_size"],
            settings["dropout"],
            batch_first=True,
        )
        for layer in (
            *self.transformer.encoder.layers,
            *self.transformer.decoder.layers,
        ):
            layer.dropout = nn.Identity()  # of the hidden layer
            layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        positions = torch.arange(settings["max_length"] + 1)[:, None]
        rates = torch.exp(
            torch.arange(0, width, 2) * (-math.log(10_000.0) / width)
        )
        table = torch.empty(len(positions), width)
        table[:, 0::2] = torch.sin(positions * rates)
        table[:, 1::2] = torch.cos(positions * rates)
        self.register_buffer("positions", table)

    def embed(self, ids):
        vectors = self.embedding(ids) * self.scale
        return self.dropout(vectors + self.positions[: ids.shape[1]])

    def forward(self, inputs, shifted, inputs_padding, shifted_padding):
        length = shifted.shape[1]
        future = torch.ones(
            length, length, dtype=torch.bool, device=shifted.device
        ).triu(1)
        hidden = self.transformer(
            self.embed(inputs),
            self.embed(shifted),
            tgt_mask=future,
            src_key_padding_mask=inputs_padding,
            tgt_key_padding_mask=shifted_padding,
            memory_key_padding_mask=inputs_padding,
            tgt_is_causal=True,
        )
        return hidden @ self.embedding.weight.t()


def padding(ids):
    """Return the mask of padding; None without any, for faster attention."""
    mask = ids == PAD
    return mask if mask.any() else None


def peak_megabytes(device):
    """Return the highest memory of tensors on a GPU, or of the process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6
    return harness.peak_megabytes()


def main():
    path, settings = sys.argv[1], json.loads(sys.argv[2])
    torch.set_num_threads(settings["threads"])
    torch.set_float32_matmul_precision("high")  # TF32, if the GPU supports it
    torch.manual_seed(0)
    device = settings["device"]
    model = Model(settings).to(device)
    adam = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9
    )
    cross_entropy = nn.CrossEntropyLoss(
        ignore_index=PAD, label_smoothing=settings["label_smoothing"]
    )
    batches = make_batches(path, settings["batch_tokens"])
    half = settings["dtype"] == "bfloat16"

    def step(batch):
        masks = [padding(ids) for ids in batch[:2]]  # looked up on the CPU
        inputs, shifted, targets = (ids.to(device) for ids in batch)
        masks = [mask if mask is None else mask.to(device) for mask in masks]
        adam.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=half):
            logits = model(inputs, shifted, *masks)
            loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        adam.step()
        if device == "cuda":
            torch.cuda.synchronize()

    seconds, tokens = [], 0
    for number in range(settings["warm_up"] + settings["steps"]):
        batch = batches[number % len(batches)]
        start = time.perf_counter()
        step(batch)
        if number >= settings["warm_up"]:
            seconds.append(time.perf_counter() - start)
            sides = batch.inputs, batch.targets
            tokens += sum(int((side != PAD).sum()) for side in sides)
    measured = {"seconds": seconds, "tokens": tokens}
    print(json.dumps(measured | {"peak megabytes": peak_megabytes(device)}))


# Batches of pairs of similar lengths, for models without packing.

PAD, BOS = 0, 2


class Batch(NamedTuple):
    """Padded ids [B, L] or [B, T] int64."""

    inputs: torch.Tensor
    shifted: torch.Tensor  # targets after BOS, without EOS
    targets: torch.Tensor


def make_batches(path: str, batch_tokens: int) -> list[Batch]:
    """Return the pairs of a file in batches, in random order.

    Pairs are sorted by length and cut into batches of so many target tokens,
    which gives the least padding that a model without packing can have. The
    .npz file has inputs and targets as flat ids, and their lengths.
    """
    arrays = np.load(path)
    sides = (
        np.split(arrays[side], np.cumsum(arrays[f"{side}_lengths"])[:-1])
        for side in ("inputs", "targets")
    )
    pairs = list(zip(*sides, strict=True))
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
    batches, batch = [], []
    for pair in pairs:
        batch.append(pair)
        if sum(len(targets) for _, targets in batch) >= batch_tokens:
            batches.append(batch)
            batch = []
    np.random.default_rng(0).shuffle(batches)
    return [
        Batch(
            _pad([inputs for inputs, _ in batch]),
            _pad([np.append(BOS, targets[:-1]) for _, targets in batch]),
            _pad([targets for _, targets in batch]),
        )
        for batch in batches
    ]


def _pad(sentences):
    return nn.utils.rnn.pad_sequence(
        [torch.from_numpy(np.asarray(ids, np.int64)) for ids in sentences],
        batch_first=True,
        padding_value=PAD,
    )


if __name__ == "__main__":
    main()
