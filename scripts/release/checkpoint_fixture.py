"""Writer of a checkpoint fixture: a tiny model and its logits.

    python -m scripts.release.checkpoint_fixture tests/fixtures/checkpoint

tests/runs/test_checkpoint_format.py reads both. The folder must be new: a
committed checkpoint represents those of users, and is kept when a later version
writes another format.
"""

import dataclasses
import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import t2t_repro
from scripts.benchmarks import harness
from t2t_repro import registry
from t2t_repro.data import batches
from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.runs import checkpoints
from t2t_repro.training import optimizer, step

SETTINGS = {
    "hidden_size": 8,
    "filter_size": 16,
    "num_heads": 2,
    "num_hidden_layers": 1,
    "learning_rate_warmup_steps": 10,
}
VOCAB_SIZE = 12
STEPS = 5
SEED = 1
VOCABULARY = "0" * 64  # stands for a sha256
BATCH = {  # packed as in data/batches.py: two pairs in a row, and one
    "inputs": [[5, 4, 1, 7, 1, 0], [2, 10, 3, 3, 9, 1]],
    "inputs_segment": [[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1]],
    "inputs_position": [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]],
    "targets": [[4, 5, 1, 8, 11, 1], [9, 6, 10, 1, 0, 0]],
    "targets_segment": [[1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 0, 0]],
    "targets_position": [[0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 0, 0]],
}


def main():
    parser = harness.argument_parser(__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True)
    keras.utils.set_random_seed(SEED)
    registry.load_definitions()
    hparams = dataclasses.replace(registry.build_hparams("base"), **SETTINGS)
    model = building.build(hparams, VOCAB_SIZE)
    adam = optimizer.build(hparams, model.weights)
    train_step = step.build_train_step(
        model, adam, hparams, SEED, tf.distribute.get_strategy(), xla=False
    )
    arrays = {name: np.array(ids, np.int32) for name, ids in BATCH.items()}
    split = batches.split_rows(arrays, replicas=1)
    for _ in range(STEPS):
        train_step({name: array[0] for name, array in split.items()})
    checkpoints.CheckpointManager(
        model, adam, folder, max_to_keep=1, vocabulary_sha256=VOCABULARY
    ).save(STEPS)
    logits = model(arrays).numpy()[arrays["targets_segment"] > 0]
    expected = {
        "command": " ".join(
            ["python -m scripts.release.checkpoint_fixture", *sys.argv[1:]]
        ),
        "version": t2t_repro.__version__,
        "hparams": SETTINGS,
        "vocab_size": VOCAB_SIZE,
        "vocabulary_sha256": VOCABULARY,
        "batch": BATCH,
        "logits": logits.astype(float).round(6).tolist(),  # without padding
    }
    lines = [f'"{name}": {json.dumps(expected[name])}' for name in expected]
    text = "{\n" + ",\n".join(lines) + "\n}\n"  # one entry per line
    files.write_text(folder / "expected.json", text)


if __name__ == "__main__":
    main()
