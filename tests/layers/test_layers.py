"""Tests of every layer: shapes, dtypes, finite outputs and names of weights."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from numpy_layers import normal

from t2t_repro.layers import (
    attention,
    convolution,
    embedding,
    mixture_of_experts,
    randomness,
    recurrence,
    sublayers,
)

REAL = np.arange(5) < np.array([[5], [2]])  # [B, T]
IDS = np.array([[3, 0, 10], [5, 5, 1]], np.int32)
POSITIONS = np.array([[0, 1, 2], [0, 1, 0]])
X = normal(2, 3, 8)
MASK = np.ones((1, 1, 3, 5), bool)
PROJECTIONS = {
    "query/kernel": (8, 12),
    "key/kernel": (8, 12),
    "value/kernel": (8, 20),
    "output_projection/kernel": (20, 8),
}
FEED_FORWARD = {
    "filter/kernel": (8, 6),
    "filter/bias": (6,),
    "output_projection/kernel": (6, 8),
    "output_projection/bias": (8,),
}
NOISY_GATES = {"weight": (8, 3), "noise_weight": (8, 3)}
EXPERTS = {
    "filter_kernel": (3, 8, 6),
    "filter_bias": (3, 6),
    "output_kernel": (3, 6, 8),
    "output_bias": (3, 8),
}
NORM = {"gamma": (8,), "beta": (8,)}
DENSE_8_TO_4 = {"kernel": (8, 4), "bias": (4,)}


def _within(folder, weights):
    return {f"{folder}/{path}": shape for path, shape in weights.items()}


def _weight_norm(inputs, units):
    return {"direction": (units, inputs), "gain": (units,), "bias": (units,)}


def _lstm(inputs, size):
    return {
        "cell/kernel": (inputs, 4 * size),
        "cell/recurrent_kernel": (size, 4 * size),
        "cell/bias": (4 * size,),
    }


class _FlatMultiStep(convolution.MultiStepAttention):
    """Attention whose call takes arrays instead of a Source."""

    def call(self, x, embedded, states, values, real):
        source = convolution.Source(states, values, real)
        return super().call(x, embedded, source)


def _residual(layer_class, sublayer_class, *settings):
    """Return a function of name and dtype that builds a residual."""

    def build(sequences=("n", "da"), *, name, dtype):
        sublayer = sublayer_class(*settings, name="sublayer", dtype=dtype)
        return layer_class(sublayer, *sequences, 0.1, name=name, dtype=dtype)

    return build


def _attention(attention_type, *settings):
    return (8, 4, 12, 20, attention_type, 0.1, *settings)


# name: (class, arguments, inputs, shape of the first output, shapes of weights)
CASES = {
    **{
        kind: (
            attention.MultiHeadAttention,
            _attention(kind),
            (X, MASK, normal(2, 5, 8)),
            (2, 3, 8),
            PROJECTIONS
            | ({"compatibility/weight": (4, 3)} if kind == "additive" else {}),
        )
        for kind in attention.COMPATIBILITIES
    },
    "attention_with_biases": (
        attention.MultiHeadAttention,
        _attention("dot_product", True),
        (X, MASK, normal(2, 5, 8)),
        (2, 3, 8),
        PROJECTIONS
        | {
            path.replace("kernel", "bias"): shape[1:]
            for path, shape in PROJECTIONS.items()
        },
    ),
    "relative_attention": (
        functools.partial(
            attention.RelativeAttention,
            max_relative_position=2,
            hidden_size=8,
            num_heads=4,
            key_channels=12,
            value_channels=20,
            attention_type="dot_product",
            dropout_rate=0.1,
        ),
        (),
        (X, MASK[..., :3]),
        (2, 3, 8),
        PROJECTIONS | {"relative_keys": (5, 3), "relative_values": (5, 5)},
    ),
    "dilated_convolution": (
        convolution.DilatedConvolution,
        (4, 3, 2, False),
        (X,),
        (2, 3, 4),
        {"kernel": (3, 8, 4), "bias": (4,)},
    ),
    "dilated_block": (
        convolution.DilatedBlock,
        (8, 3, 2, False, 0.4),
        (X,),
        (2, 3, 8),
        _within("input_norm", NORM)
        | _within("input_projection", DENSE_8_TO_4)
        | _within("inner_norm", {"gamma": (4,), "beta": (4,)})
        | _within("convolution", {"kernel": (3, 4, 4), "bias": (4,)})
        | _within("output_norm", {"gamma": (4,), "beta": (4,)})
        | _within("output_projection", {"kernel": (4, 8), "bias": (8,)}),
    ),
    **{
        f"convolutional_gru_{reads_tape}": (
            convolution.ConvolutionalGru,
            (4, 3, 3, reads_tape),
            (normal(2, 5, 3, 4), np.ones((2, 5, 1, 1)))
            + (normal(2, 5, 2, 12),) * reads_tape,
            (2, 5, 3, 4),
            {
                "gates_kernel": (3, 3, 4, 8),
                "gates_bias": (8,),
                "candidate_kernel": (3, 3, 4, 4),
                "candidate_bias": (4,),
            }
            | ({"tape_kernel": (3, 2, 4, 12)} if reads_tape else {}),
        )
        for reads_tape in (False, True)
    },
    "dropout": (randomness.Dropout, (0.1,), (X,), X.shape, {}),
    "embedding": (
        embedding.Embedding,
        (11, 16),
        (IDS,),
        (2, 3, 16),
        {"weight": (11, 16)},
    ),
    "lookup_table": (
        embedding.LookupTable,
        (11, 4),
        (IDS,),
        (2, 3, 4),
        {"table": (11, 4)},
    ),
    **{
        layer_class.__name__: (
            layer_class,
            arguments,
            (X, POSITIONS),
            X.shape,
            {"table": (3, 8)} if arguments else {},
        )
        for layer_class, arguments in (
            (embedding.Sinusoids, ()),
            (embedding.SinesThenCosines, ()),
            (embedding.TimingSignal, ()),
            (embedding.LearnedPositions, (3,)),
            (embedding.NoPositions, ()),
        )
    },
    **{
        f"gated_convolution_{causal}": (
            convolution.GatedConvolution,
            (3, 4, 3, 0.1, causal),
            (normal(2, 5, 3), REAL),
            (2, 5, 4),
            _within("linear", _weight_norm(9, 8)),
        )
        for causal in (False, True)
    },
    "multi_step_attention": (
        _FlatMultiStep,
        (6, 4),
        (normal(2, 3, 6), normal(2, 3, 4), *[normal(2, 5, 4)] * 2, REAL),
        (2, 3, 6),
        _within("query", _weight_norm(6, 4))
        | _within("output_projection", _weight_norm(4, 6)),
    ),
    "weight_norm": (
        convolution.WeightNormDense,
        (4, 3, 2.0),
        (normal(2, 5, 4),),
        (2, 5, 3),
        _weight_norm(4, 3),
    ),
    "mixture_of_experts": (
        mixture_of_experts.MixtureOfExperts,
        (3, 2, 6),
        (X,),
        X.shape,
        EXPERTS | _within("gating", NOISY_GATES),
    ),
    "recurrent_layer": (
        recurrence.RecurrentLayer,
        ("lstm", 6, 0.1),
        (normal(2, 5, 4), REAL),
        (2, 5, 6),
        _lstm(4, 6),
    ),
    "bidirectional_layer": (
        recurrence.BidirectionalLayer,
        ("lstm", 6, 0.1),
        (normal(2, 5, 4), REAL),
        (2, 5, 12),
        _within("forward", _lstm(4, 6)) | _within("backward", _lstm(4, 6)),
    ),
    "gru": (
        recurrence.RecurrentLayer,
        ("gru", 6, 0.1),
        (normal(2, 5, 4), REAL),
        (2, 5, 6),
        {
            "cell/kernel": (4, 18),
            "cell/recurrent_kernel": (6, 18),
            "cell/bias": (18,),
            "cell/recurrent_bias": (6,),
        },
    ),
    "source_attention": (
        recurrence.SourceAttention,
        (7, "additive", 2),
        (normal(2, 4, 6), normal(2, 5, 6), REAL),
        (2, 4, 6),
        {
            "query/kernel": (6, 7),
            "key/kernel": (6, 7),
            "compatibility/weight": (1, 7),
        },
    ),
    "attentive_layer": (
        recurrence.AttentiveLayer,
        ("lstm", 6, 7, "additive", 2, 0.1),
        (normal(2, 4, 3), normal(2, 5, 6), REAL),
        (2, 4, 6),
        _lstm(3, 6)
        | {
            "context_projection/kernel": (6, 24),
            "attention/query/kernel": (6, 7),
            "attention/key/kernel": (6, 7),
            "attention/compatibility/weight": (1, 7),
        },
    ),
    "feed_forward": (sublayers.FeedForward, (8, 6, 0.1), (X,), X.shape)
    + (FEED_FORWARD,),
    **{
        f"residual_{before}_{after}": (
            _residual(sublayers.Residual, sublayers.FeedForward, 8, 6, 0.1),
            ((before, after),),
            (X,),
            X.shape,
            (_within("input_norm", NORM) if before == "n" else {})
            | _within("sublayer", FEED_FORWARD)
            | (_within("norm", NORM) if after == "dan" else {}),
        )
        for before in ("none", "n")
        for after in ("da", "dan")
    },
    "attention_residual": (
        _residual(
            sublayers.AttentionResidual,
            attention.MultiHeadAttention,
            *_attention("dot_product"),
        ),
        (),
        (X, (np.ones((1, 1, 1, 1), bool),)),
        X.shape,
        _within("input_norm", NORM) | _within("sublayer", PROJECTIONS),
    ),
}
FLOAT32_CASES = {
    "gating": (
        mixture_of_experts.NoisyTopKGating,
        (3, 2),
        (X,),
        (2, 3, 2),
        NOISY_GATES,
    ),
    "mixture_residual": (
        _residual(
            sublayers.MixtureResidual,
            mixture_of_experts.MixtureOfExperts,
            *(3, 2, 6),
        ),
        (),
        (X, REAL[:, :3]),
        X.shape,
        _within("input_norm", NORM)
        | _within("sublayer", EXPERTS | _within("gating", NOISY_GATES)),
    ),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in CASES
        for dtype in ("float32", "mixed_bfloat16", "mixed_float16")
    ]
    + [(name, "float32") for name in FLOAT32_CASES],
)
def test_layer_has_documented_outputs_and_weights(name, dtype):
    layer_class, arguments, inputs, shape, weights = (CASES | FLOAT32_CASES)[
        name
    ]
    layer = layer_class(*arguments, name="tested", dtype=dtype)
    outputs = layer(*(_cast(array, layer.compute_dtype) for array in inputs))
    assert layer.built
    first, *_ = tensors = keras.tree.flatten(outputs)
    assert tuple(first.shape) == shape
    assert keras.backend.standardize_dtype(first.dtype) == layer.compute_dtype
    for tensor in tensors:
        assert np.isfinite(
            ops.convert_to_numpy(ops.cast(tensor, "float32"))
        ).all()
    _check_names(layer)
    assert {w.path: tuple(w.shape) for w in layer.weights} == _within(
        "tested", weights
    )
    assert {weight.dtype for weight in layer.weights} <= {"float32"}


def _cast(array, dtype):
    if isinstance(array, tuple):
        return array
    tensor = ops.convert_to_tensor(array)
    return ops.cast(tensor, dtype) if array.dtype.kind == "f" else tensor


def _check_names(layer):
    """Check that sublayers have the names of their attributes."""
    for sublayer in layer._layers:
        assert getattr(layer, sublayer.name, None) is sublayer, sublayer.name
        _check_names(sublayer)
