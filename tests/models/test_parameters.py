"""Tests of names and initial values of the Transformer's weights.

tests/reports/test_cost.py tests their number.
"""

import dataclasses
import math

import numpy as np
import pytest

from t2t_repro.models import building

PROJECTIONS = ("query", "key", "value", "output_projection")


def _paths(hparams, vocab_size):
    model = building.build(hparams, vocab_size)
    paths = [weight.path.partition("/")[2] for weight in model.weights]
    assert len(set(paths)) == len(paths)
    return set(paths)


def _blocks():
    """Yield each residual's path, such as "decoder/layer_1/cross_attention"."""
    for layer in ("layer_0", "layer_1"):
        for stack, blocks in (
            ("encoder", ("self_attention", "ffn")),
            ("decoder", ("self_attention", "cross_attention", "ffn")),
        ):
            yield from (f"{stack}/{layer}/{block}" for block in blocks)


def _within(ending, names):
    """Return paths of `names` in each block whose path ends in `ending`."""
    return {
        f"{block}/{name}"
        for block in _blocks()
        if block.endswith(ending)
        for name in names
    }


def _norms(name):
    return {f"{name}/gamma", f"{name}/beta"}


BASE = (
    {"embedding/weight"}
    | _within(
        "attention", [f"multihead_attention/{p}/kernel" for p in PROJECTIONS]
    )
    | _within(
        "ffn",
        [
            f"feed_forward/{dense}/{weight}"
            for dense in ("filter", "output_projection")
            for weight in ("kernel", "bias")
        ],
    )
    | _within("", _norms("norm"))
)


def test_base_model_has_exactly_these_weight_paths(tiny_hparams, vocab_size):
    assert _paths(tiny_hparams, vocab_size) == BASE


@pytest.mark.parametrize(
    ("changes", "removed", "added"),
    [
        (
            {
                "layer_preprocess_sequence": "n",
                "layer_postprocess_sequence": "da",
            },
            _within("", _norms("norm")),
            _within("", _norms("input_norm"))
            | _norms("encoder/norm")
            | _norms("decoder/norm"),
        ),
        (
            {"shared_embedding_and_softmax_weights": False},
            {"embedding/weight"},
            {
                "inputs_embedding/weight",
                "targets_embedding/weight",
                "softmax/weight",
            },
        ),
        (
            {"pos": "emb"},
            set(),
            {"inputs_positions/table", "targets_positions/table"},
        ),
        (
            {"attention_type": "additive"},
            set(),
            _within("attention", ["multihead_attention/compatibility/weight"]),
        ),
        (
            {"max_relative_position": 4},
            set(),
            _within(
                "self_attention",
                [
                    "multihead_attention/relative_keys",
                    "multihead_attention/relative_values",
                ],
            ),
        ),
        ({"pos": "timing", "restricted_attention": 3}, set(), set()),
    ],
)
def test_option_adds_and_removes_these_weight_paths(
    tiny_hparams, vocab_size, changes, removed, added
):
    hparams = dataclasses.replace(tiny_hparams, **changes)
    assert removed <= BASE
    assert _paths(hparams, vocab_size) == BASE - removed | added


def test_initial_weights_follow_their_initializers(tiny_hparams, vocab_size):
    """Kernels are Glorot uniform, biases 0, norms identities."""
    for weight in building.build(tiny_hparams, vocab_size).weights:
        value = weight.numpy()
        if weight.path.endswith("kernel"):
            limit = math.sqrt(6 / sum(value.shape))
            assert 0.9 * limit < np.abs(value).max() <= limit
        elif weight.path.endswith(("bias", "beta")):
            assert not value.any()
        elif weight.path.endswith("gamma"):
            assert (value == 1).all()
        else:  # the embedding: 320 values of deviation 16^-0.5
            assert weight.path.endswith("embedding/weight")
            assert value.std() == pytest.approx(0.25, rel=0.2)
