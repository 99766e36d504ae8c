"""Construction of models from settings, with or without values of weights."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro import errors
from t2t_repro.hparam import HParams
from t2t_repro.layers.randomness import Dropout
from t2t_repro.models import seq2seq
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.registry import models
from t2t_repro.runtime import keras_compat


def build(
    hparams: HParams,
    vocab_size: int,
    dtype: str = "float32",
    recompute_grad: bool = False,
    source_vocab_size: int | None = None,
) -> Seq2Seq:
    """Build the model that hparams.model names, with weights.

    Args:
        hparams: settings of the model's own dataclass.
        vocab_size: V of the targets, read from the vocabulary.
        dtype: Keras dtype policy: "float32", "mixed_bfloat16",
            "mixed_float16".
        recompute_grad: whether the backward pass computes the activations
            within a layer again instead of storing them.
        source_vocab_size: V of the inputs; None: the same vocabulary.

    Raises:
        UserError: the model violates a rule of docs/models.md.
    """
    check_model(hparams, recompute_grad)
    model = _new(hparams, vocab_size, source_vocab_size, dtype)
    model.recompute_grad = recompute_grad
    with _explained(type(model), hparams.model):
        model(_one_sentence())
        _check_random_numbers(model)
        _check_paths(model)
    return model


def build_abstract(
    hparams: HParams, vocab_size: int, source_vocab_size: int | None = None
) -> Seq2Seq:
    """Build a model whose weights have shapes, but no values.

    It serves to count parameters and FLOPs; this takes a second for any size.
    """
    check_model(hparams)
    with keras_compat.without_values():
        model = _new(hparams, vocab_size, source_vocab_size, "float32")
        # A call would fill the largest weights with zeros.
        keras_compat.trace(model, _one_sentence())
    return model


class LayerShape(NamedTuple):
    """Layer of a model, and what it returns."""

    path: str  # names of the layers around it, and its own
    kind: str  # name of its class
    shape: tuple[str | int, ...]  # of its last output, with B, L, T and V
    num_parameters: int  # its own, and those of the layers within


def layer_shapes(hparams: HParams, vocab_size: int) -> list[LayerShape]:
    """Return the layers of a model in the order in which they are called.

    Of several outputs, the shape is that of the first one.
    """
    letters = {11: "B", 17: "L", 19: "T", vocab_size: "V"}
    model = build_abstract(hparams, vocab_size)
    shapes: dict[keras.Layer, tuple] = {}

    def note(layer, output):
        first = next(iter(keras.tree.flatten(output)), None)
        shapes[layer] = tuple(
            letters.get(size, size) for size in getattr(first, "shape", ())
        )

    inputs, targets = ops.ones((11, 17), "int32"), ops.ones((11, 19), "int32")
    batch = seq2seq.one_sentence_per_row(inputs, targets)
    with keras_compat.without_values(), keras_compat.observed_calls(note):
        keras_compat.trace(model, batch)
    return [
        LayerShape(
            layer.path, type(layer).__name__, shape, layer.count_params()
        )
        for layer, shape in shapes.items()
        if layer.path  # not of a layer that passes its input on
    ]


def notes_of(model: str) -> tuple[str, ...]:
    """Return the notes of a model, and one on FLOPs of another arithmetic.

    Raises:
        UserError: the name is unknown, or not that of a model.
    """
    cls = models.subclass(model, Seq2Seq)
    changed = {"hidden_states", "decode_step"}
    for base in cls.__mro__:
        if "flops" in vars(base):
            break
        if found := sorted(changed & {*vars(base)}):
            return (
                *cls.notes,
                f"{base.__name__} has its own {' and '.join(found)}, but "
                "inherits flops(): if its arithmetic differs, counted FLOPs "
                "are wrong. Define flops(), too.",
            )
    return cls.notes


def check_model(hparams: HParams, recompute_grad: bool = False) -> None:
    """Check that the model supports its settings, without building it.

    Raises:
        UserError: what is registered is not a model, has another settings
            class, or lacks a requested feature.
    """
    cls = models.subclass(hparams.model, Seq2Seq)
    expected = models[hparams.model].hparams
    # A subclass has fields that a run of the model could not be read with.
    if type(hparams) is not expected:
        raise errors.UserError(
            f"The model {hparams.model!r} has settings of {expected.__name__}; "
            f"got {type(hparams).__name__}. Build them with "
            f"{expected.__name__}.like(parent, model={hparams.model!r}, …)."
        )
    if hparams.batching == "packed" and not cls.packed_rows:
        raise errors.UserError(
            f"The model {hparams.model!r} takes one sentence a row. Use "
            "--hparams=batching=bucketed."
        )
    if recompute_grad and not cls.recomputation:
        raise errors.UserError(
            f"The model {hparams.model!r} cannot recompute activations. Omit "
            "--recompute_grad."
        )


def _new(
    hparams: HParams, vocab_size: int, source_vocab_size: int | None, dtype: str
) -> Seq2Seq:
    cls = models[hparams.model].value
    kwargs = {}
    if source_vocab_size not in (None, vocab_size):
        kwargs["source_vocab_size"] = source_vocab_size
    with keras_compat.fresh_names(), _explained(cls, hparams.model):
        return cls(hparams, vocab_size, dtype=dtype, **kwargs)


@contextlib.contextmanager
def _explained(cls: type[Seq2Seq], name: str) -> Iterator[None]:
    """Explain errors of Keras and Python that do not say what is wrong."""
    try:
        yield
    except (AttributeError, TypeError, ValueError) as error:
        if reason := _reason(cls, str(error)):
            raise errors.UserError(
                f"The model {name!r} cannot be built: {reason}"
            ) from error
        raise


def _reason(cls, message):
    """Return what a model does wrong, and what to do; None: unknown."""
    if "cannot add new elements of state" in message:
        return (
            "hidden_states() or another method makes a layer or a weight when "
            "it is called. Make all in __init__()."
        )
    if "unexpected keyword argument 'source_vocab_size'" in message:
        return (
            "its __init__() does not take source_vocab_size, which is given "
            "if each side has a vocabulary. Take **kwargs, and pass them to "
            "super().__init__()."
        )
    found = re.search(
        r"property '(\w+)' of|set attribute '(\w+)'|`Model\.(\w+)` attribute",
        message,  # the second is of Python 3.10
    )
    names = {name for name in found.groups() if name} if found else set()
    for base in () if found else cls.__mro__[: cls.__mro__.index(Seq2Seq)]:
        if not base.__module__.startswith("t2t_repro."):
            names |= vars(base).keys() - vars(Seq2Seq).keys()
    names = {n for n in names & {*dir(keras.Model)} if not n.startswith("__")}
    if not names:
        return None
    return (
        f"keras.Model has {', '.join(sorted(names))}, too, with another "
        f"meaning. Use another name. Python says: {message.splitlines()[0]}"
    )


def _one_sentence() -> dict[str, Any]:
    """Return a batch of 8 subwords, for the call in which Keras builds."""
    ids = ops.ones((1, 8), "int32")
    return seq2seq.one_sentence_per_row(ids, ids)


def _check_random_numbers(model: Seq2Seq) -> None:
    """Refuse Keras's seed generators: their numbers depend on the replica."""
    name, layers = model.hparams.model, keras_compat.all_layers(model)
    for layer in filter(keras_compat.has_seed_generator, layers):
        within = [
            each.name
            for each in layers[1:]
            if any(layer is part for part in keras_compat.all_layers(each))
        ]
        raise errors.UserError(
            f"The model {name!r} has the layer {'/'.join(within)} "
            f"({type(layer).__name__}), whose random numbers are those of a "
            "seed generator of Keras: they depend on the batch and on the "
            "number of devices. Use Dropout, uniform or normal of "
            "t2t_repro.layers.randomness instead, or a rate of 0."
        )
    weights = {id(weight) for weight in model.weights}
    for variable in model.variables:
        if id(variable) not in weights:
            raise errors.UserError(
                f"The model {name!r} has the variable {variable.path}, which "
                "is not a weight, but a state of a metric or of random "
                "numbers. Use add_weight() for what a checkpoint stores."
            )


def by_path(items: Iterable[Any]) -> dict[str, Any]:
    """Return {path without the model's own name: item}, in their order.

    Items are weights or layers of one model.

    Raises:
        UserError: two of them have the same path.
    """
    result: dict[str, Any] = {}
    for item in items:
        path = item.path.partition("/")[2]
        if path in result:
            paths = result[path].path, item.path
            remedy = "Give each layer a unique name"
            if len({path.partition("/")[0] for path in paths}) > 1:
                remedy = (
                    "They were built outside the model's call, so that their "
                    "paths lack its name. Omit layer.build() in __init__(): "
                    "the first call builds them"
                )
            raise errors.UserError(
                f"The model has two items with the path {path}: "
                f"{' and '.join(paths)}. {remedy}: checkpoints store weights "
                "by their paths."
            )
        result[path] = item
    return result


def _check_paths(model: Seq2Seq) -> None:
    """Refuse paths that are used twice, or that Keras has numbered."""
    layers = keras_compat.all_layers(model)
    dropouts = (each for each in layers if isinstance(each, Dropout))
    by_path((*model.weights, *(each for each in dropouts if each.built)))
    for layer in layers:
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(layer).__name__)
        numbered = re.fullmatch(rf"{snake.lower()}_\d+", layer.name)
        if numbered and (layer.weights or isinstance(layer, Dropout)):
            raise errors.UserError(
                f"The model {model.hparams.model!r} has a layer that Keras "
                f"named {layer.path or layer.name}, by the order of creation. "
                "Give it another name than its class with a number: name=…."
            )
