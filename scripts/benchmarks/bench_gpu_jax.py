"""Process of bench_gpu that trains our model with JAX.

It needs keras, jax and pyarrow, but not TensorFlow. It prints one JSON object.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax

from scripts.benchmarks import flash_attention, harness, jax_step
from t2t_repro.models import building, seq2seq


def peak_flops(settings):
    """Return the FLOP/s of a large matrix product."""
    size = harness.peak_matrix(settings)
    matrix = jax.random.normal(jax.random.key(0), (size, size)).astype(
        settings["dtype"]
    )
    # An argument: XLA would compute a product of constants as it compiles.
    product = jax.jit(lambda matrix: matrix @ matrix)
    seconds = harness.time_calls(
        lambda: jax.block_until_ready(product(matrix)), 10
    )
    return 2 * size**3 / min(seconds)


class Training:
    """A model and its optimizer, with a step compiled as a whole."""

    def __init__(self, settings):
        hparams = harness.build_hparams(settings, max_length=settings["length"])
        policy = harness.POLICIES[settings["dtype"]]
        self.model = building.build(hparams, settings["vocab_size"], policy)
        if settings["flash_attention"]:
            on_gpu = settings["device"] == "gpu"
            flash_attention.install(self.model, "cudnn" if on_gpu else "xla")
        step = jax_step.Step(self.model)
        self.state = jax.tree.map(lambda v: v.value, step.variables)
        self.rows = jax.device_put(harness.full_rows(settings))
        self.compiled = (
            jax.jit(step, donate_argnums=(0,))
            .lower(self.state, self.rows, 1)
            .compile()
        )

    def step(self):
        """Run one step, and wait until it is over."""
        self.state, value = self.compiled(self.state, self.rows, 1)
        return float(value)


def measure_steps(settings):
    """Return seconds, FLOPs and memory of steps."""
    training = Training(settings)
    seconds = harness.time_calls(
        training.step, settings["steps"], settings["warm_up"]
    )
    length = settings["length"]
    return {
        "seconds": seconds,
        "FLOPs": seq2seq.training_flops(
            training.model, training.rows["targets"].size, length, length
        ),
        "peak megabytes": jax_step.memory_bytes(training.compiled) / 1e6,
        "peak": peak_flops(settings),
        "machine": f"JAX {jax.__version__} on {jax.devices()[0].device_kind}",
    }


if __name__ == "__main__":
    harness.run_measurement({"steps": measure_steps})
