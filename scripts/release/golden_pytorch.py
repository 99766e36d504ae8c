"""Writer of tests/golden/pytorch_transformer.npz, computed with PyTorch.

    python -m venv torch_venv
    torch_venv/bin/pip install torch==2.13.0 numpy
    torch_venv/bin/python -m scripts.release.golden_pytorch

The model is a small Transformer of torch.nn's own layers, post-norm and
pre-norm. It computes in float64, so the numbers are accurate and the same on
every machine. It shares no code with t2t_repro, only the names of the weights.
Five pairs of sentences are computed twice, padded and packed into rows, with
different masks in PyTorch: a padding mask, and a mask over all queries and
keys. The script checks that both results are equal, and stores one of them.

The file contains, with the N positions that are not padding in a row:

    command, torch, settings   provenance, and hparams as JSON
    weights/PATH               float16, which represents each weight exactly
    LAYOUT/FEATURE             ids, segments and positions: padded, packed
    NORM/encoder_output        [N, D] float32, for post_norm and pre_norm
    NORM/logits                [N, V] float32
    NORM/smoothed, NORM/plain  [] float32, mean losses per token
    NORM/gradients/PATH        of the smoothed loss, float32
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from scripts.release import golden_files
from scripts.release.golden_files import EPSILON, VOCAB_SIZE

SETTINGS = {
    "hidden_size": 16,
    "filter_size": 32,
    "num_heads": 4,
    "num_hidden_layers": 2,
    "label_smoothing": 0.1,
}
SEED = 20170612


class Transformer(nn.Module):
    """torch.nn's stacks between the paper's embeddings and softmax."""

    def __init__(self, norm_first):
        super().__init__()
        size, layers = SETTINGS["hidden_size"], SETTINGS["num_hidden_layers"]
        options = {
            "d_model": size,
            "nhead": SETTINGS["num_heads"],
            "dim_feedforward": SETTINGS["filter_size"],
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
        size = SETTINGS["hidden_size"]
        matrix = torch.cat([self.embedding, torch.zeros(1, size)])
        table = np.empty((ids.shape[1], size))
        for column in range(0, size, 2):
            angles = np.arange(len(table)) / 10_000 ** (column / size)
            table[:, column] = np.sin(angles)
            table[:, column + 1] = np.cos(angles)
        vectors = functional.embedding(ids, matrix) * size**0.5
        return vectors + torch.from_numpy(table)[position]


def named_arrays(model, array):
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


def draw_weights(random):
    """Return {path: random float16 array}, also for biases and norms."""
    weights = {}
    for norm_first in (False, True):
        model = Transformer(norm_first)
        for path, view in named_arrays(model, lambda p: p.detach()).items():
            if path not in weights:
                mean = 1.0 if path.endswith("gamma") else 0.0
                values = random.normal(mean, 0.25, view.shape)
                weights[path] = values.astype(np.float16)
    return weights


def load(model, weights):
    """Set torch's parameters; biases of attention, absent in ours, are 0."""
    for name, parameter in model.named_parameters():
        if name.endswith(("in_proj_bias", "out_proj.bias")):
            nn.init.zeros_(parameter)
    for path, view in named_arrays(model, lambda p: p.detach()).items():
        view.copy_(torch.from_numpy(weights[path]))


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
        return masked.repeat_interleave(SETTINGS["num_heads"], dim=0)

    length = batch["targets"].shape[1]
    future = torch.ones(length, length).triu(1).bool()
    return {"mask": mask_other_sentences("inputs", "inputs")}, {
        "tgt_mask": mask_other_sentences("targets", "targets") | future,
        "memory_mask": mask_other_sentences("targets", "inputs"),
    }


def compute(model, batch, masks):
    """Return {name: array} of a batch: outputs, losses and gradients."""
    model.zero_grad()
    memory, logits = model(batch, *masks)
    results = golden_files.real_outputs(
        batch, memory, logits, SETTINGS["label_smoothing"]
    )
    results["smoothed"].backward()
    for path, view in named_arrays(model, lambda p: p.grad).items():
        results[f"gradients/{path}"] = view
    return {name: value.detach().numpy() for name, value in results.items()}


def main():
    random = np.random.default_rng(SEED)
    sentences = golden_files.draw_sentences(random)
    weights = draw_weights(random)
    padded = golden_files.lay_out(sentences, golden_files.PADDED)
    packed = golden_files.lay_out(sentences, golden_files.PACKED)
    stored = {f"weights/{path}": array for path, array in weights.items()}
    for layout, batch in (("padded", padded), ("packed", packed)):
        for feature, array in batch.items():
            stored[f"{layout}/{feature}"] = array.astype(np.uint8)
            batch[feature] = torch.from_numpy(array)
    for norm in ("post_norm", "pre_norm"):
        model = Transformer(norm_first=norm == "pre_norm")
        load(model, weights)
        results = compute(model, padded, padding_masks(padded))
        others = compute(model, packed, packing_masks(packed))
        for name, array in results.items():
            np.testing.assert_allclose(others[name], array, atol=1e-12)
            stored[f"{norm}/{name}"] = array.astype(np.float32)
    golden_files.save("transformer", SETTINGS, stored)


if __name__ == "__main__":
    golden_files.run(main, __doc__)
