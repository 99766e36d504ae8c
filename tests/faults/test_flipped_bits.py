"""Damaged data and settings: they read as before, or are named."""

import pytest
from small_corpora import draw_pairs, generate_corpus, start_run

from t2t_repro import hparam
from t2t_repro.data import manifest
from t2t_repro.runs.run import Run

COUNTS = pytest.mark.parametrize(
    "count", [6, pytest.param(60, marks=pytest.mark.slow)]
)


@pytest.fixture
def data(tmp_path):
    """Return the folder of a corpus of three shards."""
    folder, pairs = tmp_path / "data", draw_pairs(60)
    generate_corpus(folder, pairs, pairs[:20], shard_pairs=30)
    return folder


def read_data(folder):
    """Return all that the trainer or a report reads of a corpus."""
    found = [manifest.open_vocabularies(folder).sha256]
    for split in ("train", "test"):
        corpus = manifest.open_corpus(folder, split)
        found += [corpus.sentences(side) for side in ("inputs", "targets")]
    return [*found, corpus.text("inputs"), corpus.text("targets")]


@COUNTS
def test_damage_to_any_data_file_is_detected(data, damage, count):
    expected, made = read_data(data), manifest.read(data)

    def open_it():
        assert read_data(data) == expected
        found = manifest.read(data)
        # A changed name would be one more key, which nobody reads.
        assert {name: found.get(name) for name in made} == made

    paths = sorted(data.iterdir())
    assert len(paths) == 5
    for path in paths:
        damage("data", path, path, open_it, count)


@pytest.fixture
def run_folder(data, tmp_path):
    """Return the folder of a run on the data."""
    start_run(tmp_path / "run", data, manifest.open_vocabularies(data))
    return tmp_path / "run"


@COUNTS
def test_damage_to_any_file_of_a_run_is_found(run_folder, damage, count):
    expected = Run.open(run_folder)
    assert isinstance(expected.hparams, hparam.HParams)
    assert expected.vocabularies.is_shared

    def open_it():
        found = Run.open(run_folder)
        for name, value in expected.settings.items():
            assert found.settings.get(name) == value
        assert found.hparams == expected.hparams
        assert found.vocabularies.sha256 == expected.vocabularies.sha256

    paths = sorted(run_folder.iterdir())
    assert [path.name for path in paths] == ["run.json", "vocab.model"]
    for path in paths:
        damage("run", path, path, open_it, count)
