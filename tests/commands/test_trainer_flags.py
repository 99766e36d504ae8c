"""Flags of the trainer other than --problem and --hparams."""

import os
import re

import pytest

from t2t_repro.io import files

SMALL = (
    "hidden_size=32,filter_size=64,num_heads=2,num_hidden_layers=1,"
    "batch_tokens=512"
)


@pytest.fixture(scope="module")
def trainer(run, flags_of, raw_writer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("flags")
    raw_writer(folder / "raw", train=500)

    def train(name, *flags, code=0):
        result = run(
            "trainer",
            *flags_of(folder),
            "--hparams_set=tiny",
            f"--output_dir={folder / name}",
            "--eval_every=5",
            "--eval_bleu_sentences=0",
            *flags,
        )
        assert result.returncode == code, result.stderr
        return folder / name, result.stdout + result.stderr

    return train


def checkpoints(folder):
    paths = (folder / "checkpoints").glob("*.index")
    return sorted(int(path.stem.removeprefix("ckpt-")) for path in paths)


@pytest.mark.slow
@pytest.mark.parametrize("xla", ["off", "on"])
def test_trainer_uses_replicas_xla_bfloat16_and_accumulation(trainer, xla):
    folder, text = trainer(
        f"xla_{xla}",
        f"--hparams={SMALL}",
        "--train_steps=12",
        "--logical_devices=2",
        f"--xla={xla}",
        "--mixed_precision=bfloat16",
        "--max_tokens_per_replica=128",
        "--profile",
    )
    assert "2 replicas on CPUs (MirroredStrategy), " in text
    assert f"mixed_bfloat16, XLA {xla}\n" in text
    assert "products of matrices reach" in text
    assert "at most 128 slots at once" in text
    assert checkpoints(folder) == [12]
    assert list(folder.glob("plugins/profile/*/*.xplane.pb"))


@pytest.fixture(scope="module")
def stopped_training(trainer):
    return trainer(
        "stopping",
        # So high a learning rate that the loss rises at once.
        f"--hparams={SMALL},learning_rate_constant=50,batching=bucketed",
        "--train_steps=200",
        "--save_checkpoints_steps=10",
        "--keep_checkpoint_max=2",
        "--early_stopping_evals=3",
        "--deterministic",
    )


@pytest.mark.slow
def test_early_stopping_leaves_the_last_checkpoints(stopped_training):
    folder, text = stopped_training
    stopped = int(re.search(r"Stopped after step (\d+)", text)[1])
    assert stopped < 200
    assert "has not improved for 3 evaluations" in text
    assert "bucketed shapes" in text
    # Two scheduled ones, and the last step.
    last = stopped // 10 * 10
    assert checkpoints(folder) == sorted({last - 10, last, stopped})


def test_second_training_of_a_run_is_refused(trainer, tmp_path):
    with files.locked(tmp_path):
        folder, text = trainer(tmp_path, f"--hparams={SMALL}", code=1)
    assert f"{folder} is taken: process {os.getpid()} on " in text
    assert "Traceback" not in text
    assert not (folder / "run.json").exists()


@pytest.mark.slow
def test_warm_start_takes_weights_only(trainer, stopped_training):
    first, _ = stopped_training
    weights = first / "checkpoints" / f"ckpt-{checkpoints(first)[-1]}"
    _, text = trainer(
        "second",
        f"--hparams={SMALL}",
        "--train_steps=2",
        "--save_checkpoints_secs=1000",
        f"--warm_start_from={weights}",
    )
    assert f"Starting from the weights of {weights}" in text
    assert "0 done" in text
