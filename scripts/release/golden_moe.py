"""Writer of tests/golden/pytorch_transformer_moe.npz, computed with PyTorch.

    torch_venv/bin/python -m scripts.release.golden_moe

golden_pytorch.py says how to create torch_venv. The model is its post-norm
Transformer, in whose second layers a mixture of experts of nn.Linear replaces
the feed-forward network. Every expert computes every token, and the losses
follow the equations of arXiv 1701.06538 one expert at a time. There is no
noise. As there, the numbers are float64, and packed rows must give the results
of padded ones.

The file contains, with the N positions that are not padding in a row:

    command, torch, settings   provenance, and hparams as JSON
    weights/PATH               float16, which represents each weight exactly
    LAYOUT/FEATURE             ids, segments and positions: padded, packed
    encoder_output             [N, D] float32
    logits                     [N, V] float32
    smoothed, plain            [] float32, mean losses per token
    importance, load           [] float32, sums over both mixtures
    gradients/PATH             of smoothed + importance + load, float32
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from scripts.release import golden_files, golden_pytorch

SETTINGS = golden_pytorch.SETTINGS | {
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
        size, inner = SETTINGS["hidden_size"], SETTINGS["expert_filter_size"]
        count = SETTINGS["num_experts"]
        self.experts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(size, inner), nn.ReLU(), nn.Linear(inner, size)
            )
            for _ in range(count)
        )
        self.gate = nn.Linear(size, count, bias=False)
        self.noise = nn.Linear(size, count, bias=False)

    def forward(self, x):
        logits, k = self.gate(x), SETTINGS["experts_per_token"]
        top, chosen = torch.topk(logits, k)
        gates = torch.zeros_like(logits).scatter(-1, chosen, top.softmax(-1))
        deviation = functional.softplus(self.noise(x))
        load = []
        for i in range(SETTINGS["num_experts"]):
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


class Transformer(golden_pytorch.Transformer):
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


def named_arrays(model, array):
    """Return {path in t2t_repro: view, or list of the experts' views}.

    Args:
        model: a Transformer.
        array: a function of a parameter; it returns a tensor of that shape.
    """
    named = {
        path: view
        for path, view in golden_pytorch.named_arrays(model, array).items()
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


def stacked(view):
    """Return a view, or the stack of the experts' views."""
    return torch.stack(view) if isinstance(view, list) else view


def gradient(parameter):
    """Return a parameter's gradient; zeros if nothing reads it."""
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad


def draw_weights(model, random):
    """Set random weights, and return them: {path: float16 array}."""
    for name, parameter in model.named_parameters():
        if name.endswith(("in_proj_bias", "out_proj.bias")):
            nn.init.zeros_(parameter)  # ours have none
    weights = {}
    for path, view in named_arrays(model, lambda p: p.detach()).items():
        mean = 1.0 if path.endswith("gamma") else 0.0
        values = random.normal(mean, 0.25, stacked(view).shape)
        weights[path] = values.astype(np.float16)
        tensor = torch.from_numpy(weights[path])
        if isinstance(view, list):
            for one, expert in zip(view, tensor, strict=True):
                one.copy_(expert)
        else:
            view.copy_(tensor)
    return weights


def compute(model, batch, masks):
    """Return {name: array} of a batch: outputs, losses and gradients."""
    model.zero_grad()
    memory, logits = model(batch, *masks)
    results = golden_files.real_outputs(
        batch, memory, logits, SETTINGS["label_smoothing"]
    ) | {
        "importance": sum(mixture.importance for mixture in mixtures(model)),
        "load": sum(mixture.load for mixture in mixtures(model)),
    }
    sum(results[x] for x in ("smoothed", "importance", "load")).backward()
    for path, view in named_arrays(model, gradient).items():
        results[f"gradients/{path}"] = stacked(view)
    return {name: value.detach().numpy() for name, value in results.items()}


def main():
    random = np.random.default_rng(golden_pytorch.SEED)
    model, sentences = Transformer(), golden_files.draw_sentences(random)
    weights = draw_weights(model, random)
    stored = {f"weights/{path}": array for path, array in weights.items()}
    results = []
    for layout, rows, masks in (
        ("padded", golden_files.PADDED, golden_pytorch.padding_masks),
        ("packed", golden_files.PACKED, golden_pytorch.packing_masks),
    ):
        batch = golden_files.lay_out(sentences, rows)
        for feature, array in batch.items():
            stored[f"{layout}/{feature}"] = array.astype(np.uint8)
            batch[feature] = torch.from_numpy(array)
        results.append(compute(model, batch, masks(batch)))
    padded, packed = results
    for name, array in padded.items():
        np.testing.assert_allclose(packed[name], array, atol=1e-12)
        stored[name] = array.astype(np.float32)
    golden_files.save("transformer_moe", SETTINGS, stored)


if __name__ == "__main__":
    golden_files.run(main, __doc__)
