"""Models that a reader of importing/ found, built with their weights."""

import numpy as np
import pytest

from t2t_repro import registry
from t2t_repro.data import batches
from t2t_repro.importing import run_writer
from t2t_repro.models import building


def few(names, count=2):
    """Return test parameters, all but the first of which are slow."""
    return [
        pytest.param(name, id=name, marks=[] if i < count else pytest.mark.slow)
        for i, name in enumerate(names)
    ]


def build(found):
    """Return the model of an Imported, with its weights."""
    registry.load_definitions()
    hparams = run_writer.build_hparams(found)
    variables = run_writer.build_variables(found, hparams)
    model = building.build(hparams, **found.vocabularies.sizes)
    for path, weight in building.by_path(model.weights).items():
        weight.assign(variables[f"weights/{path}"])
    return model


def forward(model, inputs, targets):
    """Return the logits [T, V] of a model for ids [L] and [T]."""
    batch = batches.one_sentence_per_row(
        np.array([inputs], np.int32), np.array([targets], np.int32)
    )
    return np.asarray(model(batch))[0]


def logits(found, inputs, targets):
    """Return forward() of an Imported."""
    return forward(build(found), inputs, targets)
