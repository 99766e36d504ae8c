"""Variables of a training, each under the name that checkpoints give it.

weights/encoder/…/kernel    a weight, by its path
momentum/encoder/…/kernel   a slot: its kind, and the path of its weight
optimizer/u_product         a variable that belongs to no weight
step                        updates done
loss_scale/scale            of float16, where the loss is scaled
"""

import keras

from t2t_repro import errors, keras_compat
from t2t_repro.models import building

# Kinds that have another name in checkpoints than in Keras.
_KINDS = {
    "average": "ema",
    "r": "row_velocity",
    "c": "column_velocity",
}


def unscaled(optimizer):
    """Return the optimizer itself, without the loss scale around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def loss_scale(optimizer) -> dict[str, keras.Variable]:
    """Return {name: variable} of the dynamic loss scale, if there is one.

    The wrapper's own step and learning rate stay 0: nothing reads them.
    """
    if unscaled(optimizer) is optimizer:
        return {}
    return {
        "loss_scale/scale": optimizer.dynamic_scale,
        "loss_scale/finite_steps": optimizer.step_counter,
    }


def training_state(model, optimizer) -> dict[str, keras.Variable]:
    """Return {name: variable} of all that further training depends on.

    The loss scale is not among them: it may come and go.

    Args:
        model: with weights.
        optimizer: built for model.trainable_variables.

    Raises:
        UserError: two variables have one name; or one has no name but the
            number that Keras gave it.
    """
    optimizer = unscaled(optimizer)
    weights = building.by_path(model.weights)
    trained = building.by_path(model.trainable_variables)  # not frozen ones
    paths = list(trained)
    found = {f"weights/{path}": weight for path, weight in weights.items()}
    for kind, index, variable in _entries(optimizer, list(trained.values())):
        name = kind if index is None else f"{kind}/{paths[index]}"
        if name in found:
            raise errors.UserError(
                f"The optimizer {type(optimizer).__name__} cannot be used: "
                f"{found[name].path} and {variable.path} would both be {name} "
                "in checkpoints."
            )
        found[name] = variable
    return found


def of_kind(optimizer, weights, kind) -> dict[int, keras.Variable]:
    """Return {index of a weight: its slot of the kind "momentum", "ema", …}."""
    entries = _entries(unscaled(optimizer), weights)
    return {
        index: variable for found, index, variable in entries if found == kind
    }


def _entries(optimizer, weights):
    """Yield kind, index of the weight, slot; or name, None, variable."""
    for variable, held_by, index in keras_compat.optimizer_variables(optimizer):
        if variable is optimizer.iterations:
            yield "step", None, variable
        elif held_by is None:
            raise errors.UserError(
                f"The optimizer {type(optimizer).__name__} cannot be used: its "
                f"variable {variable.path} has a number for a name, and would "
                "be lost from checkpoints."
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

    Adafactor has placeholders for the factors of vectors, and computes the
    velocity of a matrix from its factors at each update.
    """
    if not isinstance(optimizer, keras.optimizers.Adafactor) or kind == "ema":
        return True
    return (rank < 2) == (kind == "velocity")
