"""Tests of names and initial values of the Transformer's weights.

tests/reports/test_cost.py tests their number.
"""

import dataclasses
import math

import numpy as np
import pytest

from t2t_repro.models import building

PROJECTIONS = ("query", "key", "value", "output_projection")


BLOCKS = {  # path of a block, such as "decoder/layer_0/cross_attention"
    f"{stack}/layer_0/{block}"
    for stack in ("encoder", "decoder")
    for block in ("self_attention", "cross_attention", "ffn")
    if (stack, block) != ("encoder", "cross_attention")
}


def _within(ending, *names):
    """Return paths of `names` in each block whose path ends in `ending`."""
    return {
        f"{block}/{name}"
        for block in BLOCKS
        for name in names
        if block.endswith(ending)
    }


BASE = (
    {"embedding/weight"}
    | _within(
        "attention", *(f"multihead_attention/{p}/kernel" for p in PROJECTIONS)
    )
    | _within(
        "ffn",
        *(
            f"feed_forward/{dense}/{weight}"
            for dense in ("filter", "output_projection")
            for weight in ("kernel", "bias")
        ),
    )
    | _within("", "norm/gamma", "norm/beta")
)
CASES = [  # changes of settings, and the paths that they remove and add
    ({}, set(), set()),
    (
        {"layer_preprocess_sequence": "n", "layer_postprocess_sequence": "da"},
        _within("", "norm/gamma", "norm/beta"),
        _within("", "input_norm/gamma", "input_norm/beta")
        | {"encoder/norm/gamma", "encoder/norm/beta"}
        | {"decoder/norm/gamma", "decoder/norm/beta"},
    ),
    (
        {"shared_embedding_and_softmax_weights": False},
        {"embedding/weight"},
        {
            f"{name}/weight"
            for name in ("inputs_embedding", "targets_embedding", "softmax")
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
        _within("attention", "multihead_attention/compatibility/weight"),
    ),
    (
        {"max_relative_position": 4},
        set(),
        _within(
            "self_attention",
            "multihead_attention/relative_keys",
            "multihead_attention/relative_values",
        ),
    ),
    ({"pos": "timing", "restricted_attention": 3}, set(), set()),
]


@pytest.mark.parametrize(("changes", "removed", "added"), CASES)
def test_model_has_exactly_these_weight_paths(
    tiny_hparams, vocab_size, changes, removed, added
):
    hparams = dataclasses.replace(
        tiny_hparams, **{"num_hidden_layers": 1} | changes
    )
    model = building.build_abstract(hparams, vocab_size)
    assert removed <= BASE
    assert building.by_path(model.weights).keys() == BASE - removed | added


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
