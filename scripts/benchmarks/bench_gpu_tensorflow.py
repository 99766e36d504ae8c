"""Process of bench_gpu that trains our model with the trainer's step.

It prints one JSON object.
"""

import tensorflow as tf

from scripts.benchmarks import bench_train, harness
from t2t_repro.data import batches
from t2t_repro.models import building, seq2seq
from t2t_repro.runtime import devices
from t2t_repro.training import optimizer, step


class Training:
    """A model and its training step, built as in the trainer."""

    def __init__(self, settings):
        strategy = tf.distribute.get_strategy()
        hparams = harness.build_hparams(settings, max_length=settings["length"])
        self.model = building.build(
            hparams,
            settings["vocab_size"],
            harness.POLICIES[settings["dtype"]],
        )
        rows = harness.full_rows(settings)
        xla = devices.use_xla()
        adam = optimizer.build(hparams, self.model.trainable_variables, xla=xla)
        self.train_step = step.build_train_step(
            self.model,
            adam,
            hparams,
            seed=0,
            strategy=strategy,
            xla=xla,
            num_chunks=1,  # which the trainer tries first
        )
        self.batch = {
            name: tf.constant(array[0])
            for name, array in batches.split_rows(rows, 1).items()
        }

    def step(self):
        """Run one step, and wait until it is over."""
        return float(self.train_step(self.batch).gradient_norm)


def peak_megabytes():
    """Return the highest memory of tensors on a GPU, or of the process."""
    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e6
    return harness.peak_megabytes()


def measure_steps(settings):
    """Return seconds, FLOPs and memory of steps."""
    training = Training(settings)
    seconds = harness.time_calls(
        training.step, settings["steps"], settings["warm_up"]
    )
    memory = peak_megabytes()  # before the large product
    length, pairs = settings["length"], training.batch["targets"].shape
    return {
        "seconds": seconds,
        "FLOPs": seq2seq.training_flops(
            training.model, pairs.num_elements(), length, length
        ),
        "peak megabytes": memory,
        "peak": bench_train.peak_flops(
            settings["dtype"], harness.peak_matrix(settings)
        ),
        "machine": f"TensorFlow {tf.__version__}, "
        + devices.summary(
            tf.distribute.get_strategy(),
            harness.POLICIES[settings["dtype"]],
            devices.use_xla(),
        ),
    }


if __name__ == "__main__":
    harness.run_measurement({"steps": measure_steps})
