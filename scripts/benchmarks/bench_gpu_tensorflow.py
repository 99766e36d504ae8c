"""Process of bench_gpu that trains our model with the trainer's step.

It prints one JSON object.
"""

import tensorflow as tf

from scripts.benchmarks import bench_train, harness
from t2t_repro.data import batches
from t2t_repro.models import building, seq2seq
from t2t_repro.runtime import devices
from t2t_repro.training import optimizer, step


def peak_megabytes():
    """Return the highest memory of tensors on a GPU, or of the process."""
    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e6
    return harness.peak_megabytes()


def measure_steps(settings):
    """Return seconds, FLOPs and memory of the trainer's steps."""
    strategy, xla = tf.distribute.get_strategy(), devices.use_xla()
    length, policy = settings["length"], harness.POLICIES[settings["dtype"]]
    hparams = harness.build_hparams(settings, max_length=length)
    model = building.build(hparams, settings["vocab_size"], policy)
    train_step = step.build_train_step(
        model,
        optimizer.build(hparams, model.trainable_variables, xla=xla),
        hparams,
        seed=0,
        # One chunk of logits is what the trainer tries first.
        execution=step.Execution(strategy, xla, num_chunks=1),
    )
    rows = harness.full_rows(settings)
    batch = {
        name: tf.constant(array[0])
        for name, array in batches.split_rows(rows, 1).items()
    }
    seconds = harness.time_calls(
        # The number is there when the step is over.
        lambda: float(train_step(batch).gradient_norm),
        settings["steps"],
        settings["warm_up"],
    )
    memory = peak_megabytes()  # before the large product
    size, tokens = harness.peak_matrix(settings), rows["targets"].size
    return {
        "seconds": seconds,
        "FLOPs": seq2seq.training_flops(model, tokens, length, length),
        "peak megabytes": memory,
        "peak": bench_train.peak_flops(settings["dtype"], size),
        "machine": f"TensorFlow {tf.__version__}, "
        f"{devices.summary(strategy, policy, xla)}",
    }


if __name__ == "__main__":
    harness.run_measurement({"steps": measure_steps})
