"""Training steps of ours, timed; for bench_train.py.

python -m scripts.benchmarks.bench_train_probe SETTINGS.json

Prints one JSON object. A process of its own: the memory and the threads of
another measurement would disturb this one.
"""

import pathlib
import resource
import time

import tensorflow as tf

from scripts.benchmarks import harness
from t2t_repro.data import batch_plan, batches, corpus
from t2t_repro.models import building
from t2t_repro.reports import cost
from t2t_repro.training import loss, optimizer, step

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
MATRIX = 2048  # rows and columns of the product that stands for the peak


def cpu_seconds():
    """CPU time of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_flops(dtype):
    """What a large matrix product reaches, per second."""
    left = tf.cast(tf.random.normal((MATRIX, MATRIX)), dtype)
    product = tf.function(lambda: tf.linalg.matmul(left, left))
    return (
        2 * MATRIX**3 / min(harness.time_calls(lambda: product().numpy(), 10))
    )


class Training:
    """A model and its step, as the trainer makes them."""

    def __init__(self, settings):
        self.max_tokens = settings.get("max_tokens")  # in memory at once
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
        )
        self.model = building.build(
            self.hparams, settings["vocab_size"], POLICIES[settings["dtype"]]
        )
        self.adam = optimizer.build(
            self.hparams, self.model.trainable_variables
        )
        self.step = step.build_train_step(
            self.model,
            self.adam,
            self.hparams,
            seed=0,
            strategy=tf.distribute.get_strategy(),
            xla=False,
            num_chunks=loss.num_chunks(
                self.plan, 1, self.max_tokens, settings["vocab_size"]
            ),
        )

    def batches(self, count):
        """An iterator of `count` batches."""
        return iter(
            batches.training_dataset(
                self.corpus,
                self.plan,
                0,
                count,
                tf.distribute.InputContext(),
                self.max_tokens,
            )
        )

    def take(self, element):
        """A step that is over when this returns."""
        return float(self.step(element).sums.tokens)


def measure_steps(settings):
    """Seconds, CPU and real tokens of steps."""
    training = Training(settings)
    count = settings["warm_up"] + settings["steps"]
    elements = training.batches(count)
    seconds, tokens = [], 0
    for number in range(count):
        if number == settings["warm_up"]:
            cpu = cpu_seconds()
        began = time.perf_counter()
        training.take(next(elements))
        if number >= settings["warm_up"]:
            seconds.append(time.perf_counter() - began)
            batch = training.plan.batch(number)
            tokens += batches.count(training.corpus, batch).tokens
    cpu = cpu_seconds() - cpu
    began = cpu_seconds()
    for _ in training.batches(50):
        pass
    return {
        "seconds": seconds,
        "tokens": tokens,
        "CPU of a step": cpu / settings["steps"],
        "CPU of a batch": (cpu_seconds() - began) / 50,
        "FLOPs of a token": cost.training_flops(
            training.model,
            1,
            *(float(of.mean()) for of in training.corpus.lengths.values()),
        ),
        "peak": peak_flops(settings["dtype"]),
    }


def measure_update(settings):
    """Seconds of Adam's update alone."""
    training = Training(settings)
    variables = training.model.trainable_variables
    gradients = [tf.random.normal(v.shape) * 1e-3 for v in variables]
    update = tf.function(lambda: training.adam.apply(gradients, variables))
    return {"seconds": harness.time_calls(update, settings["steps"])}


def measure_memory(settings):
    """Memory after the first tenth of many steps and after all."""
    training = Training(settings)
    marks = {settings["steps"] // 10: 0.0, settings["steps"]: 0.0}
    elements = training.batches(settings["steps"])
    for number in range(1, settings["steps"] + 1):
        training.take(next(elements))
        if number in marks:
            marks[number] = harness.resident_megabytes()
    return {"megabytes": list(marks.values())}


if __name__ == "__main__":
    harness.run_measurement(
        {
            "steps": measure_steps,
            "update": measure_update,
            "memory": measure_memory,
        }
    )
