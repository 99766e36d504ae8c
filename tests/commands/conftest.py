"""Fixtures: commands in forks of a process that has TensorFlow, and runs."""

import pytest
from forked import ok
from made_up_words import problem_flags, write_raw

# Smaller than "tiny": these tests are not about the model.
HPARAMS = (
    "hidden_size=32,filter_size=64,num_heads=2,num_hidden_layers=1,"
    "batch_tokens=512,shared_embedding_and_softmax_weights=false,"
    "learning_rate_warmup_steps=50,learning_rate_constant=0.07"
)


@pytest.fixture(scope="session")
def run(forked):
    """Return a function that runs a command, in a fork: see forked.py."""
    return forked


@pytest.fixture(scope="session")
def trained(run, tmp_path_factory):
    """Return a folder with data/ and run/ of training on made-up words.

    Its vocabularies are separate; that of tests/fixtures/run is shared.
    """
    folder = tmp_path_factory.mktemp("trained")
    write_raw(folder / "raw")
    ok(
        run(
            "trainer",
            *problem_flags(folder),
            "--hparams_set=tiny",
            f"--hparams={HPARAMS}",
            f"--output_dir={folder / 'run'}",
            "--train_steps=60",
            "--save_checkpoints_steps=20",
            "--eval_bleu_sentences=8",
        )
    )
    return folder
