"""Models of all systems that are refused, by the name of what is wrong.

refused.yml has the rows: a system, what differs from a good model, the message.
"""

import inspect
import pathlib

import imported_models
import numpy as np
import pytest
import yaml

from t2t_repro import errors
from t2t_repro.importing import ctranslate2

HERE = pathlib.Path(__file__).parent


def write_ctranslate2(folder, settings, files=(), change=None, config=()):
    pytest.importorskip(
        "ctranslate2", reason="the extra ctranslate2 is not installed"
    )
    import ctranslate2_specs as specs

    sides = [settings.pop(side, {}) for side in ("encoder", "decoder")]
    spec = specs.build(layers=1, sides=sides, **settings)
    for name, value in dict(config).items():
        setattr(spec.config, name, value)
    if change:
        name, *arguments = change
        globals()[name](spec, *arguments)
    specs.save(spec, folder)
    imported_models.change_files(folder, files)
    return lambda: ctranslate2.read(folder)


def heads(spec, number):
    for side in (spec.encoder, spec.decoder):
        side.num_heads = np.dtype("int16").type(number)


def language(spec, token):
    (tokens,) = spec._vocabularies["source"]
    tokens = [*tokens[:-1], token]
    spec._vocabularies = {"source": [tokens], "target": [tokens]}
    spec.config.decoder_start_token = "</s>"


def short_relative_tables(spec):
    for side in (spec.encoder, spec.decoder):
        for layer in side.layer:
            for kind in ("keys", "values"):
                name = f"relative_position_{kind}"
                table = getattr(layer.self_attention, name)
                setattr(layer.self_attention, name, table[:1])


def only_encoder_has_positions(spec):
    table = np.ones((4, 16), np.float32)
    spec.encoder.position_encodings.encodings = table


def unknown_matrix(spec):
    linear = spec.decoder.layer[0].ffn.linear_1
    linear.weight_zero = np.ones((3, 3), np.float32)


ROWS = yaml.safe_load((HERE / "refused.yml").read_text("utf-8"))


@pytest.mark.parametrize(
    ("system", "changes", "message"),
    [
        pytest.param(system, *row, id=f"{system}-{i}")
        for system, rows in ROWS.items()
        for i, row in enumerate(rows)
    ],
)
def test_model_is_refused_by_name(system, changes, message, tmp_path):
    name = f"write_{system}"
    write = globals().get(name) or getattr(imported_models, name)
    known = inspect.signature(write).parameters
    settings = {k: v for k, v in changes.items() if k not in known}
    others = {k: v for k, v in changes.items() if k in known}
    read = write(tmp_path, settings, **others)
    with pytest.raises(errors.UserError, match=message) as error:
        read()
    assert len(str(error.value)) < 3_000
