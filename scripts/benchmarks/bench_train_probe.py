"""Process of bench_train that trains our model.

It prints one JSON object.
"""

import pathlib
import resource
import time

import tensorflow as tf

from scripts.benchmarks import harness
from t2t_repro.data import batch_plan, batches, corpus
from t2t_repro.models import building, seq2seq
from t2t_repro.runtime import devices
from t2t_repro.training import optimizer, step

MATRIX = 2048  # rows and columns of the product that measures the peak


def cpu_seconds():
    """Return the CPU time of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_flops(dtype, size=MATRIX):
    """Return the FLOP/s of a large matrix product."""
    matrix = tf.cast(tf.random.normal((size, size)), dtype)
    # A GPU copies only a number to the host.
    product = tf.function(lambda: tf.linalg.matmul(matrix, matrix)[0, 0])
    return 2 * size**3 / min(harness.time_calls(lambda: product().numpy(), 10))


class Training:
    """A model and its training step, built as in the trainer."""

    def __init__(self, settings):
        devices.choose_threads("one_device", xla="off")
        strategy = tf.distribute.get_strategy()
        self.microbatches = batches.Microbatches(
            settings.get("max_tokens"),
            devices.parallel_microbatches(strategy, xla=False),
        )
        self.hparams = harness.build_hparams(
            settings,
            batching="packed",
            batch_tokens=settings["batch_tokens"],
            label_smoothing=settings["label_smoothing"],
            layer_prepostprocess_dropout=settings["dropout"],
            max_length=settings["max_length"],
        )
        self.corpus = corpus.Corpus(
            [pathlib.Path(shard) for shard in settings["shards"]]
        )
        self.plan = batch_plan.build(
            self.corpus.lengths,
            self.hparams.batching,
            self.hparams.batch_tokens,
            self.hparams.max_length,
            seed=0,
            proportional_rows=self.hparams.proportional_rows,
        )
        self.model = building.build(
            self.hparams,
            settings["vocab_size"],
            harness.POLICIES[settings["dtype"]],
        )
        self.adam = optimizer.build(
            self.hparams, self.model.trainable_variables
        )
        self.step = step.build_train_step(
            self.model,
            self.adam,
            self.hparams,
            seed=0,
            strategy=strategy,
            xla=False,
            num_chunks=step.num_chunks(
                self.plan,
                1,
                self.microbatches.max_tokens,
                settings["vocab_size"],
            ),
            parallel=self.microbatches.parallel,
        )

    def batches(self, count):
        """Return an iterator of `count` batches."""
        return iter(
            batches.training_dataset(
                self.corpus,
                self.plan,
                0,
                count,
                tf.distribute.InputContext(),
                self.microbatches,
            )
        )

    def run_step(self, element):
        """Run a step, and wait until it is over."""
        return float(self.step(element).sums.tokens)


def measure_steps(settings):
    """Return seconds, CPU, real tokens, FLOPs and memory of steps."""
    training = Training(settings)
    count = settings["warm_up"] + settings["steps"]
    elements = training.batches(count)
    seconds, tokens = [], 0
    for number in range(count):
        if number == settings["warm_up"]:
            cpu = cpu_seconds()
        start = time.perf_counter()
        training.run_step(next(elements))
        if number >= settings["warm_up"]:
            seconds.append(time.perf_counter() - start)
            batch = training.plan.batch(number)
            tokens += harness.num_tokens(training.corpus, batch)
    cpu = cpu_seconds() - cpu
    memory = harness.peak_megabytes()  # before the large product
    start = cpu_seconds()
    for _ in training.batches(50):
        pass
    return {
        "seconds": seconds,
        "tokens": tokens,
        "CPU of a step": cpu / settings["steps"],
        "CPU of a batch": (cpu_seconds() - start) / 50,
        "FLOPs of a token": seq2seq.training_flops(
            training.model,
            1,
            *(
                float(array.mean())
                for array in training.corpus.lengths.values()
            ),
        ),
        "peak megabytes": memory,
        "peak": peak_flops(settings["dtype"]) * training.microbatches.parallel,
    }


def measure_update(settings):
    """Return seconds of Adam's update alone."""
    training = Training(settings)
    variables = training.model.trainable_variables
    gradients = [tf.random.normal(v.shape) * 1e-3 for v in variables]
    update = tf.function(lambda: training.adam.apply(gradients, variables))
    return {"seconds": harness.time_calls(update, settings["steps"])}


def measure_memory(settings):
    """Return the memory after a tenth of the steps and after all, in MB."""
    training = Training(settings)
    megabytes = {settings["steps"] // 10: 0.0, settings["steps"]: 0.0}
    elements = training.batches(settings["steps"])
    for number in range(1, settings["steps"] + 1):
        training.run_step(next(elements))
        if number in megabytes:
            megabytes[number] = harness.resident_megabytes()
    return {"megabytes": list(megabytes.values())}


if __name__ == "__main__":
    harness.run_measurement(
        {
            "steps": measure_steps,
            "update": measure_update,
            "memory": measure_memory,
        }
    )
