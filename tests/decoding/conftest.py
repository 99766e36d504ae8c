"""Models that searches are tried on."""

import dataclasses

import keras
import pytest

from t2t_repro import registry
from t2t_repro.models import transformer


@pytest.fixture(scope="package")
def models():
    """Two tiny models of the same shape and different weights."""
    registry.load_definitions()
    hparams = dataclasses.replace(
        registry.build_hparams("tiny"),
        hidden_size=16,
        filter_size=32,
        num_heads=2,
    )
    keras.utils.set_random_seed(1)
    return [transformer.build(hparams, 24) for _ in range(2)]
