"""Process of bench_gpu that trains our model with JAX.

The environment variable KERAS_BACKEND must be "jax". It needs keras, jax and
pyarrow, but not TensorFlow. It prints one JSON object.
"""

import functools

import jax
import keras

from scripts.benchmarks import harness
from t2t_repro import errors
from t2t_repro.layers import randomness
from t2t_repro.layers.attention import DotProduct, MultiHeadAttention
from t2t_repro.models import building, seq2seq
from t2t_repro.runtime import keras_compat


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
            install(self.model, "cudnn" if on_gpu else "xla")
        step = Step(self.model)
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
        "peak megabytes": memory_bytes(training.compiled) / 1e6,
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
        """Return the new state and the loss.

        Args:
            state: values of `variables`.
            rows: result of rows().
            number: the step's number, for dropout.
        """
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


# Flash attention of JAX in the attention layers of a model.
#
# Keras's TensorFlow backend has no flash attention, and commands run on it.
# This is therefore an option of bench_gpu, not of hparams.


def install(model, implementation):
    """Replace the attention of every layer of a model.

    The layers then return None instead of attention weights, which flash
    attention does not store.

    Args:
        model: a model on Keras's JAX backend.
        implementation: of jax.nn.dot_product_attention: "cudnn" on GPUs in 16
            bits; "xla" computes the same without flash attention.

    Raises:
        UserError: the kernel cannot compute the attention of a layer.
    """
    for layer in keras_compat.all_layers(model):
        if isinstance(layer, MultiHeadAttention):
            _check(layer, implementation)
            layer.attend = functools.partial(_attend, implementation)


def _check(layer, implementation):
    """Refuse what the kernel does not compute."""
    unsupported = {
        f"attention_type={layer.attention_type}": type(layer.compatibility)
        is not DotProduct,
        "relative positions": type(layer) is not MultiHeadAttention,
        # cuDNN draws its own random numbers, which depend on the device.
        f"attention_dropout={layer.dropout_rate}": layer.dropout_rate > 0,
        "float32": implementation == "cudnn"
        and layer.compute_dtype == "float32",
    }
    for setting, found in unsupported.items():
        if found:
            raise errors.UserError(
                "Flash attention computes scaled dot products in 16 bits "
                "without dropout of attention weights and without relative "
                f"positions; got {setting}. Omit --flash_attention."
            )


def _attend(implementation, query, key, value, mask, rng=None):
    """Compute what MultiHeadAttention.attend() does, without weights."""
    by_position = [x.transpose(0, 2, 1, 3) for x in (query, key, value)]
    context = jax.nn.dot_product_attention(
        *by_position, mask=mask, implementation=implementation
    )
    return context.transpose(0, 2, 1, 3), None


if __name__ == "__main__":
    harness.run_measurement({"steps": measure_steps})
