"""Process of bench_gpu that trains our model with JAX.

The environment variable KERAS_BACKEND must be "jax". It needs keras, jax and
pyarrow, but not TensorFlow. It prints one JSON object.
"""

import jax
import keras

from scripts.benchmarks import harness
from t2t_repro.layers import randomness
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


def measure_steps(settings):
    """Return seconds, FLOPs and memory of steps, compiled as a whole."""
    length, policy = settings["length"], harness.POLICIES[settings["dtype"]]
    hparams = harness.build_hparams(settings, max_length=length)
    model = building.build(hparams, settings["vocab_size"], policy)
    step = Step(model)
    state = jax.tree.map(lambda variable: variable.value, step.variables)
    rows = jax.device_put(harness.full_rows(settings))
    compiled = (
        jax.jit(step, donate_argnums=(0,)).lower(state, rows, 1).compile()
    )

    def run():
        nonlocal state
        state, value = compiled(state, rows, 1)
        return float(value)  # is there when the step is over

    seconds = harness.time_calls(run, settings["steps"], settings["warm_up"])
    tokens = rows["targets"].size
    return {
        "seconds": seconds,
        "FLOPs": seq2seq.training_flops(model, tokens, length, length),
        "peak megabytes": memory_bytes(compiled) / 1e6,
        "peak": peak_flops(settings),
        "machine": f"JAX {jax.__version__} on {jax.devices()[0].device_kind}",
    }


# A training step of our models. The layers use keras.ops, so TensorFlow is not
# needed.


def smoothed_loss(logits, targets, smoothing):
    """Return the mean loss, as training/cross_entropy.py computes it.

    Sums over one-hot targets instead of looked-up logits: the gradient of a
    look-up is a scatter, for which XLA writes [N, V] float32 three times.
    """
    low = smoothing / (logits.shape[-1] - 1)
    log_sum = jax.nn.logsumexp(logits, -1)
    one_hot = jax.nn.one_hot(targets, logits.shape[-1])
    probabilities = low + (1 - smoothing - low) * one_hot
    return (log_sum - (probabilities * logits).sum(-1)).mean()


class Step:
    """Forward pass, backward pass and Adam's update of a model."""

    def __init__(self, model):
        self.model = model
        self.adam = keras.optimizers.Adam(1e-4, 0.9, 0.98, 1e-9)
        self.adam.build(model.trainable_variables)
        self.variables = model.trainable_variables, self.adam.variables

    def __call__(self, state, rows, number):
        """Return the new state and loss; `number` is the step, for dropout."""
        weights, slots = state
        rng = randomness.step_rng(1, number, 0, rows["targets"].shape[0])

        def loss(weights):
            logits, _ = self.model.stateless_call(weights, [], rows, rng=rng)
            smoothing = self.model.hparams.label_smoothing
            return smoothed_loss(logits, rows["targets"], smoothing)

        value, gradients = jax.value_and_grad(loss)(weights)
        weights, slots = self.adam.stateless_apply(slots, gradients, weights)
        return (weights, slots), value


def memory_bytes(compiled):
    """Return the memory that a compiled step needs, with its arguments."""
    memory = compiled.memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes  # outputs in place of arguments
        + memory.temp_size_in_bytes
    )


if __name__ == "__main__":
    harness.run_measurement({"full rows": measure_steps})
