"""Variables of a training run and their names in checkpoints.

weights/encoder/…/kernel    a weight, by its path
momentum/encoder/…/kernel   a slot: its kind, and the path of its weight
optimizer/u_product         a variable that belongs to no weight
step                        number of updates done
loss_scale/scale            the loss scale of float16
"""

from collections.abc import Iterator, Sequence

import keras

from t2t_repro import errors
from t2t_repro.models import building
from t2t_repro.runtime import keras_compat

# Kinds whose name in checkpoints differs from Keras's.
_KINDS = {
    "average": "ema",
    "r": "row_velocity",
    "c": "column_velocity",
}


def loss_scale(
    optimizer: keras.optimizers.Optimizer,
) -> dict[str, keras.Variable]:
    """Return {name: variable} of the dynamic loss scale, if there is one.

    The step and the learning rate of LossScaleOptimizer stay 0 and unread.
    """
    if keras_compat.inner_optimizer(optimizer) is optimizer:
        return {}
    return {
        "loss_scale/scale": optimizer.dynamic_scale,
        "loss_scale/finite_steps": optimizer.step_counter,
    }


def training_state(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> dict[str, keras.Variable]:
    """Return {name: variable} of all variables that training depends on.

    The loss scale is not among them: a run may resume in another precision.

    Args:
        model: a model with weights.
        optimizer: built for model.trainable_variables.

    Raises:
        UserError: two variables have one name; or the only name of a variable
            is a number that Keras gave it.
    """
    optimizer = keras_compat.inner_optimizer(optimizer)
    weights = building.by_path(model.weights)
    trained = building.by_path(model.trainable_variables)  # not frozen ones
    paths = list(trained)
    state = {f"weights/{path}": weight for path, weight in weights.items()}
    for kind, index, variable in _entries(optimizer, list(trained.values())):
        name = kind if index is None else f"{kind}/{paths[index]}"
        if name in state:
            raise errors.UserError(
                f"The optimizer {type(optimizer).__name__} cannot be used: "
                f"{state[name].path} and {variable.path} would both be {name} "
                "in checkpoints."
            )
        state[name] = variable
    return state


def slots_of_kind(
    optimizer: keras.optimizers.Optimizer,
    weights: Sequence[keras.Variable],
    kind: str,
) -> dict[int, keras.Variable]:
    """Return {index of a weight: its slot} of one kind of slots.

    Kinds are "momentum", "velocity", "ema" and so on.
    """
    return {
        index: variable
        for name, index, variable in _entries(
            keras_compat.inner_optimizer(optimizer), weights
        )
        if name == kind and index is not None
    }


def _entries(
    optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]
) -> Iterator[tuple[str, int | None, keras.Variable]]:
    """Yield kind, index of the weight, slot; or name, None, variable."""
    for variable, held_by, index in keras_compat.optimizer_variables(optimizer):
        if variable is optimizer.iterations:
            yield "step", None, variable
        elif held_by is None:
            raise errors.UserError(
                f"The optimizer {type(optimizer).__name__} cannot be used: its "
                f"variable {variable.path} has a number for a name, and would "
                "be missing from checkpoints."
            )
        elif index is None:
            yield f"optimizer/{held_by.strip('_')}", None, variable
        else:
            weight = weights[index]
            kind = keras_compat.slot_kind(variable, weight)
            kind = kind or held_by.strip("_")
            kind = _KINDS.get(kind, kind)
            if _is_state(optimizer, kind, len(weight.shape)):
                yield kind, index, variable


def _is_state(optimizer, kind, rank):
    """Return whether updates depend on a slot.

    In Adafactor, the factors of vectors are placeholders, and the velocity of
    a matrix is computed from its factors at each update.
    """
    if not isinstance(optimizer, keras.optimizers.Adafactor) or kind == "ema":
        return True
    return (rank < 2) == (kind == "velocity")
