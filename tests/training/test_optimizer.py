"""Optimizers: the paper's Adam, those of Keras by name, and registered ones."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors, registry
from t2t_repro.runs import checkpoints
from t2t_repro.runtime import graph, keras_compat
from t2t_repro.training import optimizer, schedules

SHAPES = ((3, 4), (5,))
UPDATES = 4


def _start():
    random = np.random.default_rng(0)
    return [random.normal(size=shape) for shape in SHAPES]


def _gradients(updates=UPDATES):
    """Return gradients, an array for each weight, for each update."""
    random = np.random.default_rng(1)
    return [[random.normal(size=s) for s in SHAPES] for _ in range(updates)]


def _tensors(arrays):
    return [tf.constant(array, tf.float32) for array in arrays]


def _paper(step, hidden_size=512, warmup=4000):
    """Return the rate of equation 3."""
    return hidden_size**-0.5 * min(step**-0.5, step * warmup**-1.5)


def test_updates_equal_adam_in_numpy(base):
    """The oracle is Kingma and Ba's algorithm 1, with equation 3's rates."""
    hparams = dataclasses.replace(base, learning_rate_warmup_steps=3)
    weights = _start()
    variables = [keras.Variable(weight) for weight in weights]
    adam = optimizer.build(hparams, variables)
    first, second = ([np.zeros(shape) for shape in SHAPES] for _ in range(2))
    for step, gradients in enumerate(_gradients(7), 1):
        adam.apply(_tensors(gradients), variables)
        for i, gradient in enumerate(gradients):
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.98 * second[i] + 0.02 * gradient**2
            mean = first[i] / (1 - 0.9**step)
            square = second[i] / (1 - 0.98**step)
            rate = _paper(step, warmup=3)
            weights[i] -= rate * mean / (np.sqrt(square) + 1e-9)
            actual = variables[i].numpy()
            np.testing.assert_allclose(actual, weights[i], rtol=1e-5, atol=1e-6)
    assert int(adam.iterations) == 7


def test_schedule_free_updates_equal_their_formula(base):
    """The oracle is Defazio et al. 2024, with an average of equal weights."""
    if not hasattr(keras.optimizers, "ScheduleFreeAdamW"):
        pytest.skip("an early version of Keras")
    hparams = dataclasses.replace(
        base, optimizer="schedule_free_adamw", learning_rate_warmup_steps=3
    )
    y = z = x = _start()[0]
    weight, square = keras.Variable(y), np.zeros(SHAPES[0])
    built = optimizer.build(hparams, [weight])
    for step, (gradient, _) in enumerate(_gradients(7), 1):
        built.apply(_tensors([gradient]), [weight])
        square = 0.98 * square + 0.02 * gradient**2
        root = np.sqrt(square / (1 - 0.98**step)) + 1e-9
        z = z - _paper(step, warmup=3) * gradient / root
        x = x + (z - x) / step
        y = 0.1 * z + 0.9 * x
        np.testing.assert_allclose(weight, y, rtol=1e-5, atol=1e-6)


def test_epsilon_reduces_updates_of_tiny_gradients(base):
    """Keras adds epsilon to a second moment without bias correction."""
    variable = keras.Variable([0.0])
    adam = optimizer.build(base, [variable])
    adam.apply([keras.ops.convert_to_tensor([1e-8])], [variable])
    expected = -_paper(1) / (1 + 1e-9 / (0.02**0.5 * 1e-8))
    np.testing.assert_allclose(variable.numpy(), [expected], rtol=1e-4)


def test_amsgrad_equals_that_of_keras(base):
    """It has another slot, which the fused update would leave at 0."""
    hparams = dataclasses.replace(base, optimizer_arguments="amsgrad=true")
    start, _ = _start()
    actual, expected = keras.Variable(start), keras.Variable(start)
    ours = optimizer.build(hparams, [actual])
    keras_adam = keras.optimizers.Adam(
        schedules.build(base), 0.9, 0.98, 1e-9, amsgrad=True
    )
    for scale, (gradient, _) in zip((1, 100, 0.01), _gradients(3), strict=True):
        tensors = _tensors([scale * gradient])
        ours.apply(tensors, [actual])
        keras_adam.apply(tensors, [expected])
    np.testing.assert_array_equal(actual, expected)
    assert np.abs(actual.numpy() - start).max() > 1e-7


RATE = 0.25


@pytest.fixture
def hparams(tiny_hparams):
    """Return a constant rate, and the paper's betas."""
    return dataclasses.replace(
        tiny_hparams,
        learning_rate_schedule="constant",
        learning_rate_constant=RATE,
    )


BY_BETAS = ("adam", "adamax", "adamw", "lamb", "nadam")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        *((name, "", (0.7, 0.75, 1e-9)) for name in BY_BETAS),
        ("lion", "", (0.7, 0.75, None)),
        # Their epsilon is of another kind: Keras's default.
        ("adadelta", "", (None, None, 1e-7)),
        ("adagrad", "", (None, None, 1e-7)),
        ("rmsprop", "", (None, None, 1e-7)),
        ("nadam", "beta_1=0.6", (0.6, 0.75, 1e-9)),
    ],
)
def test_betas_and_epsilon_are_those_of_the_hparams(
    tiny_hparams, name, arguments, expected
):
    hparams = dataclasses.replace(
        tiny_hparams,
        optimizer=name,
        optimizer_arguments=arguments,
        optimizer_adam_beta1=0.7,
        optimizer_adam_beta2=0.75,
    )
    config = optimizer.build(hparams, []).get_config()
    for key, value in zip(
        ("beta_1", "beta_2", "epsilon"), expected, strict=True
    ):
        assert config.get(key) == value


def test_muon_of_old_keras_is_refused(monkeypatch):
    monkeypatch.setattr(keras, "__version__", "3.12.4")
    with pytest.raises(errors.UserError, match="needs Keras 3.13.*is Keras 3"):
        optimizer.look_up("muon")


def test_muon_updates_kernels_and_adam_the_rest(tiny_hparams):
    pytest.importorskip("keras", "3.13")
    hparams = dataclasses.replace(
        tiny_hparams,
        optimizer="muon",
        optimizer_arguments="exclude_layers=query",
        weight_decay=0.5,
    )
    weights = []
    for path in ("ffn/kernel", "query/kernel", "embedding/weight", "ffn/bias"):
        layer, name = path.split("/")
        with keras.name_scope(layer):
            shape = (2,) if name == "bias" else (2, 2)
            weights.append(keras.Variable(np.ones(shape), name=name))
    muon = optimizer.build(hparams, weights)
    for kind, indices in (("momentum", [0, 1, 2, 3]), ("velocity", [1, 2, 3])):
        slots = checkpoints.slots_of_kind(muon, weights, kind)
        assert list(slots) == indices
    assert (
        muon.get_config().items()
        >= {
            "adam_beta_1": 0.9,
            "adam_beta_2": 0.98,
            "epsilon": 1e-9,
            "adam_weight_decay": 0.5,
        }.items()
    )


@pytest.mark.parametrize(
    "name", ["adafactor", "adamw", "lion", "sgd", "rmsprop", "muon"]
)
def test_weight_decay_applies_to_matrices_only(hparams, name):
    """With gradients of 0, only decay changes the weights."""
    if name == "muon":
        pytest.importorskip("keras", "3.13")
    hparams = dataclasses.replace(hparams, optimizer=name, weight_decay=0.5)
    with keras.name_scope("layer"):
        matrix = keras.Variable([[4.0, 4.0]] * 2, name="kernel")
        vector = keras.Variable([4.0, 4.0], name="bias")
        biases = keras.Variable([[4.0, 4.0]] * 2, name="output_bias")
    variables = [matrix, vector, biases]
    built = optimizer.build(hparams, variables)
    built.apply([keras.ops.zeros(v.shape) for v in variables], variables)
    expected = 4 * (1 - RATE * 0.5)
    np.testing.assert_allclose(matrix, np.full((2, 2), expected), rtol=1e-6)
    np.testing.assert_allclose(vector, [4, 4], rtol=1e-6)
    np.testing.assert_allclose(biases, [[4, 4]] * 2, rtol=1e-6)


def _train(hparams, strategy, gradients, policy="float32", xla=False):
    """Return weights and optimizer after updates as in step.py."""
    with strategy.scope():
        variables = [keras.Variable(start) for start in _start()]
        built = optimizer.build(hparams, variables, policy, xla)
    keras_compat.disable_gradient_all_reduce(built)

    @graph.function
    def update(tensors):
        strategy.run(lambda: built.apply(tensors, variables))

    for arrays in gradients:
        update(_tensors(arrays))
    assert int(built.iterations.numpy()) == len(gradients)
    return variables, built


def _copies(variable):
    values = getattr(variable.value, "values", [variable.value])
    return [value.numpy() for value in values]


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        ("mixed_float16", {}),
        ("float32", {"ema_decay": 0.9, "clip_grad_norm": 0.1}),
        ("float32", {"optimizer": "adamw", "weight_decay": 0.1}),
    ],
)
def test_compiled_updates_equal_others(hparams, strategy_of, policy, changes):
    """In float16 the second overflows."""
    hparams = dataclasses.replace(hparams, **changes)
    gradients = _gradients()
    if policy == "mixed_float16":
        gradients[1][0][:] = np.nan
    results = []
    for xla in (False, True):
        weights, built = _train(hparams, strategy_of(2), gradients, policy, xla)
        for weight in weights:
            np.testing.assert_array_equal(*_copies(weight))
        results.append([v.numpy() for v in [*weights, *built.variables]])
    for expected, actual in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("limit", [0.5, 50.0])
def test_clipping_is_by_the_norm_of_the_whole_gradient(
    hparams, strategy_of, limit, replicas
):
    hparams = dataclasses.replace(hparams, clip_grad_norm=limit)
    gradients = _gradients()[:1]
    norm = np.sqrt(sum((array**2).sum() for array in gradients[0]))
    assert 0.5 < norm < 50
    _, adam = _train(hparams, strategy_of(replicas), gradients)
    for momentum, array in zip(adam._momentums, gradients[0], strict=True):
        expected = 0.1 * array * min(1, limit / norm)
        np.testing.assert_allclose(momentum, expected, rtol=1e-5)


@pytest.mark.parametrize("replicas", [1, 2])
def test_moving_average_begins_at_first_update(hparams, strategy_of, replicas):
    gradients, weights = _gradients(), []
    for number in range(1, UPDATES + 1):
        variables, _ = _train(hparams, strategy_of(1), gradients[:number])
        weights.append([variable.numpy() for variable in variables])
    hparams = dataclasses.replace(hparams, ema_decay=0.75)
    variables, built = _train(hparams, strategy_of(replicas), gradients)
    averages = checkpoints.slots_of_kind(built, variables, "ema")
    for i, average in averages.items():
        expected = weights[0][i]
        for later in weights[1:]:
            expected = 0.75 * expected + 0.25 * later[i]
        for copy in _copies(average):
            np.testing.assert_allclose(copy, expected, rtol=1e-5, atol=1e-6)
    with optimizer.averaged_weights(built, variables):
        for i, variable in enumerate(variables):
            np.testing.assert_array_equal(variable, averages[i])
            assert np.abs(variable - weights[-1][i]).max() > 1e-3
    # The weights themselves are trained as without it.
    for variable, trained in zip(variables, weights[-1], strict=True):
        np.testing.assert_allclose(variable, trained, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("replicas", [1, 2])
def test_moving_average_counts_skipped_updates(hparams, strategy_of, replicas):
    """Updates that overflow in float16 are skipped, the first included."""
    overflow = [np.full(shape, np.inf) for shape in SHAPES]
    gradients = [overflow, _gradients()[0], overflow]
    hparams = dataclasses.replace(hparams, ema_decay=0.75)
    variables, built = _train(
        hparams, strategy_of(replicas), gradients, "mixed_float16"
    )
    averages = checkpoints.slots_of_kind(built, variables, "ema")
    for i, start in enumerate(_start()):
        after = np.asarray(variables[i])
        assert np.abs(after - start).max() > 0.1
        expected = 0.75 * (0.75 * start + 0.25 * after) + 0.25 * after
        for copy in _copies(averages[i]):
            np.testing.assert_allclose(copy, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Momenta 0.1 * 3 and 0.9 * 0.3 - 0.1.
        ("optimizer=sign_sgd", 0.0),
        # Momenta 0.8 * 3 and 0.2 * 2.4 - 0.8.
        ("optimizer=sign_sgd,optimizer_arguments=decay=0.2", 1.0),
        # Gradients 1 and -1, of the norm 2; momenta 0.1 and 0.9 * 0.1 - 0.1.
        ("optimizer=sign_sgd,clip_grad_norm=2.0", 1.0),
        # Before each update the weight loses a twentieth.
        ("optimizer=sign_sgd,weight_decay=0.1", -0.0725),
        # Velocities -0.5 * 3 and 0.5 * -1.5 + 0.5.
        ("optimizer=heavy_ball,optimizer_arguments=momentum=0.5", -0.75),
    ],
)
def test_registered_optimizer_updates(hparams, changes, expected):
    """The rate is 0.5; the gradients of a weight of 1 are 3 and -1."""
    hparams = hparams.override(f"learning_rate_constant=0.5,{changes}")
    weight = keras.Variable(np.ones((2, 2), np.float32), name="kernel")
    built = optimizer.build(hparams, [weight])
    for gradient in (3.0, -1.0):
        built.apply([tf.fill((2, 2), gradient)], [weight])
    np.testing.assert_allclose(weight.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "setting", "name"),
    [
        ("optimizers", "optimizer", "adam"),
        ("schedules", "learning_rate_schedule", "cosine_decay"),
        ("schedules", "learning_rate_schedule", "noam"),
    ],
)
def test_names_of_a_library_are_refused(
    monkeypatch, tiny_hparams, kind, setting, name
):
    known = getattr(registry, kind)
    monkeypatch.setattr(known, "_entries", {})
    known.register(name)(_train)
    with pytest.raises(errors.UserError, match=f"={name} is the name of .*_t"):
        optimizer.check(dataclasses.replace(tiny_hparams, **{setting: name}))
