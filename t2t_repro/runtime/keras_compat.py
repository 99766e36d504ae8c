"""Private parts of Keras that this package relies on, and its type of tensors.

tests/runtime/test_keras_compat.py tests each assumption.
"""

import collections
import contextlib
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias
from unittest import mock

import keras
from keras.src import backend
from keras.src.backend.common import global_state
from keras.src.initializers import random_initializers

from t2t_repro import errors

# A tensor of the Keras backend in use: TensorFlow's, JAX's or numpy's.
Tensor: TypeAlias = Any
Int: TypeAlias = Tensor | int  # also one that a graph computes
# Lowest loss scale, as in fairseq (min_loss_scale). Halved further, the scale
# would become 0, from which doubling does not lead back.
_MIN_LOSS_SCALE = 1e-4


def require_defaults() -> None:
    """Require that Keras computes with TensorFlow, and in float32 by default.

    Commands see to it; a Python program has its own settings of Keras.

    Raises:
        UserError: names the setting that differs.
    """
    for name, needed in (("backend", "tensorflow"), ("floatx", "float32")):
        if (value := getattr(keras.config, name)()) != needed:
            raise errors.UserError(
                f"Keras's {name} must be {needed!r}; got {value!r}, which "
                "keras.json or this program sets. Correct it before Keras is "
                "imported, or use the commands, which ignore that file."
            )


@contextlib.contextmanager
def _global_attribute(name: str, value: Any) -> Iterator[None]:
    """Replace a part of Keras's global state within the context."""
    known = global_state.get_global_attribute(name)
    global_state.set_global_attribute(name, value)
    try:
        yield
    finally:
        global_state.set_global_attribute(name, known)


def fresh_names() -> AbstractContextManager[None]:
    """Restart the numbering of layers without a name, as in a new process."""
    numbers: dict[str, int] = collections.defaultdict(int)
    return _global_attribute("object_name_uids", numbers)


class _Zeros(list):
    """Variables without a value, which read as zeros."""

    def append(self, variable: keras.Variable) -> None:
        variable._initializer = keras.initializers.Zeros()
        super().append(variable)


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Create variables that have a shape and keep no memory."""
    with (
        _global_attribute("uninitialized_variables", _Zeros()),
        keras.StatelessScope(initialize_variables=False),
    ):
        yield


@contextlib.contextmanager
def without_random_values() -> Iterator[None]:
    """Create variables with zeros where initializers draw random numbers.

    Those of hundreds of millions of weights take seconds and memory.
    """

    def zeros(shape: Any, *_: Any, dtype: Any = None, **__: Any) -> Tensor:
        return keras.ops.zeros(shape, dtype)

    names = "normal", "truncated_normal", "uniform"
    functions = vars(random_initializers.random) | dict.fromkeys(names, zeros)
    with mock.patch.object(
        random_initializers, "random", types.SimpleNamespace(**functions)
    ):
        yield


def trace(layer: keras.Layer, *args: Any) -> None:
    """Call a layer on arguments to build its weights, and compute nothing."""
    backend.compute_output_spec(layer, *args)


@contextlib.contextmanager
def observed_calls(
    observe: Callable[[keras.Layer, Any], None],
) -> Iterator[None]:
    """Call a function with each layer that is called, and its output.

    It is called twice for each: before, with None as the output, and after.
    """
    call = keras.Layer.__call__

    def observed_call(layer, *args, **kwargs):
        observe(layer, None)
        output = call(layer, *args, **kwargs)
        observe(layer, output)
        return output

    with mock.patch.object(keras.Layer, "__call__", observed_call):
        yield


def all_layers(layer: keras.Layer) -> list[keras.Layer]:
    """Return a layer and all layers within it, each once."""
    return list(layer._flatten_layers())


def has_seed_generator(layer: keras.Layer) -> bool:
    """Return whether a layer itself has a seed generator."""
    return bool(layer._seed_generators)


def optimizer_variables(
    optimizer: keras.optimizers.Optimizer,
) -> Iterator[tuple]:
    """Yield each of optimizer.variables with the attribute that holds it.

    A slot is in a list, at the index of its weight; a variable that belongs to
    no weight is an attribute itself.

    Yields:
        variable, name of the attribute, index in its list or None. The name is
        None where no attribute holds the variable.
    """
    attributes: dict[int, tuple[str, int | None]] = {}
    for name, held in vars(optimizer).items():
        if name in ("_variables", "_trainable_variables"):  # all of them
            continue
        if isinstance(held, keras.Variable):
            attributes.setdefault(id(held), (name, None))
        elif isinstance(held, list):
            for index, variable in enumerate(held):
                attributes.setdefault(id(variable), (name, index))
    for variable in optimizer.variables:
        yield variable, *attributes.get(id(variable), (None, None))


def slot_kind(slot: keras.Variable, weight: keras.Variable) -> str | None:
    """Return "momentum" for the slot "model_layer_kernel_momentum".

    The slot's name begins with the path of its weight, "model/layer/kernel";
    None if it does not.
    """
    prefix = f"{weight.path.replace('/', '_')}_"
    name = slot.name
    return name.removeprefix(prefix) if name.startswith(prefix) else None


def adam_moments(
    adam: keras.optimizers.Adam, variable: Any
) -> tuple[keras.Variable, keras.Variable]:
    """Return the slots of a weight of Keras's Adam: momentum and velocity."""
    index = adam._get_variable_index(variable)
    return adam._momentums[index], adam._velocities[index]


def inner_optimizer(
    optimizer: keras.optimizers.Optimizer,
) -> keras.optimizers.Optimizer:
    """Return the optimizer inside a LossScaleOptimizer, or the optimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def disable_gradient_all_reduce(optimizer: keras.optimizers.Optimizer) -> None:
    """Make `optimizer.apply` use gradients as they are, on every replica.

    In Keras 3 every update calls this method to sum them over replicas; its
    predecessor had an argument instead.
    """
    inner = inner_optimizer(optimizer)
    inner._all_reduce_sum_gradients = list


class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """Keras's dynamic loss scale for float16, with a count of every step.

    A gradient below 6e-8 is 0 in float16. So the loss is multiplied by a scale,
    and gradients are divided by it in float32. If they overflow, the update is
    skipped and the scale halved, to 1e-4 at the lowest; after 2,000 steps
    without overflow it doubles (Micikevicius et al. 2017, arXiv 1710.03740,
    section 3.2). A skipped update counts as a step, since batches and learning
    rates follow the count, and Adam's correction of young moments, too.
    """

    def _stateful_handle_non_finite_grads(self):
        super()._stateful_handle_non_finite_grads()
        self.dynamic_scale.assign(
            keras.ops.maximum(self.dynamic_scale, _MIN_LOSS_SCALE)
        )
        # Update the average, too: it begins with the weights of the first step.
        inner = self.inner_optimizer
        inner._update_model_variables_moving_average(inner._trainable_variables)
        self.iterations.assign_add(1)
