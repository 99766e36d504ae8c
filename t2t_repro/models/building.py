"""Models from settings: with weights, or with the shapes of weights alone."""

import re

from keras import ops

from t2t_repro import errors, keras_compat
from t2t_repro.layers.dropout import Dropout
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.registry import models


def build(
    hparams,
    vocab_size,
    dtype="float32",
    recompute_grad=False,
    source_vocab_size=None,
) -> Seq2Seq:
    """Build the model that hparams.model names, with weights.

    Args:
        hparams: settings of the model's own dataclass.
        vocab_size: V of the targets, read from the vocabulary.
        dtype: Keras dtype policy: "float32", "mixed_bfloat16",
            "mixed_float16".
        recompute_grad: whether the backward pass computes activations of a
            layer again, which are not kept until then.
        source_vocab_size: V of the inputs; None: the same vocabulary.

    Raises:
        UserError: the model breaks a rule of models/seq2seq.py; names it.
    """
    check_model(hparams, recompute_grad)
    model = _new(hparams, vocab_size, source_vocab_size, dtype)
    model.recompute_grad = recompute_grad
    model(_batch(ops.ones((1, 8), "int32")))
    _check_random_numbers(model)
    _check_paths(model)
    return model


def build_abstract(hparams, vocab_size, source_vocab_size=None) -> Seq2Seq:
    """Build a model whose weights have shapes, but no values.

    It counts its parameters and FLOPs in a second, whatever its size.
    """
    check_model(hparams)
    with keras_compat.without_values():
        model = _new(hparams, vocab_size, source_vocab_size, "float32")
        model(_batch(ops.ones((1, 8), "int32")))
    return model


def check_model(hparams, recompute_grad=False):
    """Check that a model can be trained as its settings say, without it.

    Raises:
        UserError: the model is none, has other settings, or lacks what is
            asked for; says which.
    """
    cls = models[hparams.model].value
    if not (isinstance(cls, type) and issubclass(cls, Seq2Seq)):
        raise errors.UserError(
            f"The model {hparams.model!r} must be a subclass of "
            f"t2t_repro.models.seq2seq.Seq2Seq; got {cls!r}."
        )
    expected = models.hparams_class(hparams.model)
    if not isinstance(hparams, expected):
        raise errors.UserError(
            f"The model {hparams.model!r} has settings of {expected.__name__}; "
            f"got {type(hparams).__name__}. Build them with "
            f"{expected.__name__}.like(parent, model={hparams.model!r}, …)."
        )
    if hparams.batching == "packed" and not cls.packed_rows:
        raise errors.UserError(
            f"The model {hparams.model!r} takes one sentence a row. Say "
            "--hparams=batching=bucketed."
        )
    if recompute_grad and not cls.recomputation:
        raise errors.UserError(
            f"The model {hparams.model!r} cannot recompute activations. Leave "
            "--recompute_grad out."
        )


def _new(hparams, vocab_size, source_vocab_size, dtype):
    cls = models[hparams.model].value
    more = {}
    if source_vocab_size not in (None, vocab_size):
        more["source_vocab_size"] = source_vocab_size
    with keras_compat.fresh_names():
        return cls(hparams, vocab_size, dtype=dtype, **more)


def _batch(row):
    """Return a batch of one sentence, by the features of data/batches.py."""
    return {
        f"{side}{suffix}": row
        for side in ("inputs", "targets")
        for suffix in ("", "_segment", "_position")
    }


def _check_random_numbers(model):
    """Refuse Keras's seed generators: their numbers depend on the replica."""
    weights = {id(weight) for weight in model.weights}
    for variable in model.variables:
        if id(variable) not in weights:
            raise errors.UserError(
                f"The model {model.hparams.model!r} has {variable.path}, which "
                "is neither a weight nor drawn by layers/counter_rng.py. Draw "
                "random numbers with layers.dropout.Dropout or "
                "layers.counter_rng."
            )


def by_path(items) -> dict:
    """Return {path without the model's own name: item}, in their order.

    Args:
        items: weights or layers of one model.

    Raises:
        UserError: two of them have one path.
    """
    found: dict = {}
    for item in items:
        path = item.path.partition("/")[2]
        if path in found:
            raise errors.UserError(
                f"The model has two of {path}: {found[path].path} and "
                f"{item.path}. Give each layer a name of its own: checkpoints "
                "store weights by their paths."
            )
        found[path] = item
    return found


def _check_paths(model):
    """Refuse paths that are used twice, or that Keras has numbered."""
    layers = keras_compat.all_layers(model)
    places = [layer for layer in layers if isinstance(layer, Dropout)]
    by_path((*model.weights, *(one for one in places if one.built)))
    for layer in layers:
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(layer).__name__)
        numbered = re.fullmatch(rf"{snake.lower()}_\d+", layer.name)
        if numbered and (layer.weights or isinstance(layer, Dropout)):
            raise errors.UserError(
                f"The model {model.hparams.model!r} has a layer that Keras has "
                f"named {layer.path or layer.name}, by the order in which "
                "layers are made. Name it: name=…."
            )
