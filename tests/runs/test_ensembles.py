"""Loading the models of an ensemble, of one run and of several."""

import dataclasses
import types

import pytest

from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.runs import checkpoints, run_json
from t2t_repro.runs.run import Run
from t2t_repro.text.vocabulary_pair import Vocabularies


@pytest.fixture
def built(monkeypatch):
    """Return (hparams, V, checkpoint) of each model that is built."""
    models = []

    def build(hparams, vocab_size, source_vocab_size):
        models.append([hparams, vocab_size])
        return models[-1]

    monkeypatch.setattr(building, "build", build)
    monkeypatch.setattr(
        checkpoints,
        "restore_weights",
        lambda model, path, sha256: model.append(path),
    )
    return models


def test_checkpoint_of_another_run_has_its_hparams(
    built, tmp_path, tiny_hparams, monkeypatch
):
    other = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
    for name, hparams in (("run", tiny_hparams), ("other", other)):
        (tmp_path / name).mkdir()
        settings = {"hparams": dataclasses.asdict(hparams)}
        files.write_json(tmp_path / name / run_json.RUN, settings)
    vocabularies = Vocabularies.shared(
        types.SimpleNamespace(size=20, sha256="")
    )
    monkeypatch.setattr(Run, "vocabularies", vocabularies)
    run = Run(tmp_path / "run", {}, None, tiny_hparams)
    names = "run/averaged/ckpt-1", "other/checkpoints/ckpt-2", "lost/x/ckpt-3"
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.with_suffix(".index").touch()
    names = ",".join(map(str, paths))
    assert run.checkpoints(names) == paths
    assert run.models(names) == built
    assert [hparams for hparams, *_ in built] == [
        tiny_hparams,
        other,
        tiny_hparams,
    ]
    assert [path for *_, path in built] == paths
