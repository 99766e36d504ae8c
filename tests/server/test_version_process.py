"""The model in the process of a version: its threads, and shards of a batch."""

import functools
import shutil

import numpy as np
import pytest

from t2t_repro.runtime import devices
from t2t_repro.server import version_process
from t2t_repro.serving import saved_model

INPUTS = {
    "inputs": [f"{'ein vogel ' * (i % 4)}{i}".encode() for i in range(26)]
}


@pytest.fixture(scope="module")
def models(exported):
    """Return {number of shards: the export with so many}, of one graph."""
    load = functools.cache(saved_model.load)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_model, "load", load)
        return {n: version_process.Model(exported / "2", n) for n in (1, 3)}


@pytest.mark.parametrize(
    ("signature", "num_shards"),
    # The pieces of the last one are padded to the longest of the batch.
    [("serving_default", 3), ("n_best", 3), ("attention", 1)],
)
def test_shards_have_the_outputs_of_the_whole_batch(
    models, monkeypatch, signature, num_shards
):
    counts = []

    def call_in_threads(function, parts):
        counts.append(len(parts))
        return list(map(function, parts))

    expected = models[1].run(signature, INPUTS)
    monkeypatch.setattr(devices, "call_in_threads", call_in_threads)
    outputs = models[3].run(signature, INPUTS)
    assert counts == [num_shards]
    assert outputs.keys() == expected.keys()
    for name, array in outputs.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, expected[name], rtol=1e-4)
        else:
            np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize(
    ("limit", "damaged", "is_small"),
    [(10**9, False, True), (10, False, False), (10**9, True, False)],
)
def test_small_models_have_a_thread_for_each_shard(
    exported, monkeypatch, tmp_path, limit, damaged, is_small
):
    folder = exported / "2"
    if damaged:
        folder = shutil.copytree(folder, tmp_path / "2")
        (folder / "variables" / "variables.index").write_bytes(b"")
    calls = []
    monkeypatch.setattr(devices, "MIN_WEIGHTS_FOR_THREADS", limit)
    monkeypatch.setattr(devices, "default_num_shards", lambda: 5)
    monkeypatch.setattr(
        devices, "use_one_thread_per_operation", lambda: calls.append(1)
    )
    assert version_process._start_tensorflow(folder) == (5 if is_small else 1)
    assert calls == [1] * is_small
