"""Tests of initial values of the Transformer's weights."""

import math

import numpy as np
import pytest

from t2t_repro.models import building


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
