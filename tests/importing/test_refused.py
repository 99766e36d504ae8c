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


def write_ctranslate2(
    folder, settings, arrays=(), files=(), config=(), token="g"
):
    import ctranslate2_specs as specs

    sides = [settings.pop(side, {}) for side in ("encoder", "decoder")]
    spec = specs.build(layers=1, sides=sides, **settings)
    for name, value in dict(config).items():
        setattr(spec.config, name, value)
    for path, shape in dict(arrays).items():
        scope, _, name = path.rpartition("/")
        layer = specs.specs.model_spec.index_spec(spec, scope)
        setattr(layer, name, np.ones(shape, np.float32))
    tokens = [*specs.TOKENS[:-1], token]
    spec._vocabularies = {"source": [tokens], "target": [tokens]}
    specs.save(spec, folder)
    imported_models.change_files(folder, files)
    return lambda: ctranslate2.read(folder)


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
