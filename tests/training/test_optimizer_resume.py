"""Resume with every optimizer of Keras: the same bits as without a stop."""

import dataclasses

import keras
import numpy as np
import numpy_layers
import pytest
import tensorflow as tf
from small_states import VOCABULARY

from t2t_repro import errors
from t2t_repro.io import arguments
from t2t_repro.runs import checkpoints
from t2t_repro.runs.checkpoints import CheckpointManager
from t2t_repro.training import optimizer

# All optimizers of the installed Keras except those that wrap others.
NAMES = sorted(
    arguments.subclasses(keras.optimizers, keras.optimizers.Optimizer).keys()
    - {"loss_scale_optimizer", "multi_optimizer"}
)
SGD = {"optimizer_arguments": "momentum=0.99:nesterov=true"}
RMSPROP = {"optimizer_arguments": "centered=true:momentum=0.5"}
COSINE = {
    "learning_rate_schedule": "cosine_decay",
    "learning_rate_schedule_arguments": "warmup_steps=3",
}


# Layers, their weights of one, two and three axes, and the shapes of these.
WEIGHTS = [
    ("embedding", "embeddings", (6, 4)),
    ("norm", "gamma", (4,)),
    ("norm", "beta", (4,)),
    ("heads", "kernel", (4, 2, 3)),
    ("dense", "kernel", (3, 5)),
    ("dense", "bias", (5,)),
]


class Training:
    """Weights whose gradients are random.

    To checkpoints, which read only its weights, it is also the model.
    """

    def __init__(self, hparams, policy="float32"):
        self.hparams, self.weights = hparams, []
        for layer, name, shape in WEIGHTS:
            with keras.name_scope("model"), keras.name_scope(layer):
                value = numpy_layers.normal(*shape)
                self.weights.append(keras.Variable(value, name=name))
        self.trainable_variables = self.weights
        self.optimizer = optimizer.build(hparams, self.weights, policy)
        self.variables = [*self.weights, *self.optimizer.variables]
        with keras.name_scope("unused"):  # changes Keras's numbers of names
            keras.Variable(0.0)

    def update(self, *numbers):
        """Apply gradients of seeds; with a loss scale, that of 3 overflows."""
        scale = float(self.optimizer.scale_loss(1.0))
        for number in numbers:
            numbers_of = np.random.default_rng(number)
            gradients = [
                tf.constant(
                    scale * numbers_of.normal(size=weight.shape), tf.float32
                )
                for weight in self.weights
            ]
            if scale > 1 and number == 3:
                gradients[0] = tf.fill(gradients[0].shape, np.inf)
            self.optimizer.apply(gradients, self.weights)

    def checkpoints(self, folder):
        return CheckpointManager(self, self.optimizer, folder, 20, VOCABULARY)

    def values(self):
        return [variable.numpy() for variable in self.variables]


@pytest.fixture(scope="module")
def training_of(toys, tiny_hparams):
    """Return a function of settings that returns a Training."""

    def make(policy="float32", **settings):
        if settings.get("optimizer") == "muon":
            pytest.importorskip("keras", "3.13")
        changes = {"learning_rate_schedule": "noam"} | settings
        hparams = dataclasses.replace(tiny_hparams, **changes)
        return Training(hparams, policy)

    return make


@pytest.mark.parametrize(
    ("name", "policy", "settings"),
    [
        *((name, "float32", {}) for name in NAMES),
        ("sgd", "float32", SGD),
        ("rmsprop", "float32", RMSPROP),
        ("adam", "float32", {"optimizer_arguments": "amsgrad=true"}),
        ("nadam", "float32", {"ema_decay": 0.5}),
        ("adafactor", "float32", {"ema_decay": 0.5}),
        ("adagrad", "mixed_float16", {}),
        ("nadam", "mixed_float16", {"ema_decay": 0.5}),
        ("lamb", "float32", COSINE),
        ("sign_sgd", "mixed_float16", {"ema_decay": 0.5}),
    ],
)
def test_resume_is_bit_identical(training_of, tmp_path, name, policy, settings):
    settings = {"optimizer": name, "clip_grad_norm": 0.1} | settings
    whole = training_of(policy, **settings)
    before = whole.values()
    whole.update(1, 2, 3)
    whole.checkpoints(tmp_path).save(3)
    whole.update(4, 5)
    resumed = training_of(policy, **settings)
    resumed.update(11)  # changes every variable
    resumed.checkpoints(tmp_path).restore_latest()
    resumed.update(4, 5)
    for variable, expected, actual in zip(
        whole.variables, whole.values(), resumed.values(), strict=True
    ):
        np.testing.assert_array_equal(actual, expected, err_msg=variable.path)
    for weight, first, last in zip(
        whole.weights, before, whole.values(), strict=False
    ):
        assert np.isfinite(last).all(), weight.path
        assert not np.array_equal(first, last), weight.path
    assert int(resumed.optimizer.iterations) == 5


def test_precision_may_change_between_sessions(training_of, tmp_path):
    """A checkpoint without a loss scale starts a new one; float32 drops it."""
    whole = training_of("float32")
    whole.update(1, 2)
    whole.checkpoints(tmp_path).save(2)
    half = training_of("mixed_float16")
    initial = float(half.optimizer.dynamic_scale)
    half.checkpoints(tmp_path).restore_latest()
    assert float(half.optimizer.dynamic_scale) == initial
    half.update(3)
    half.checkpoints(tmp_path).save(3)
    resumed = training_of("float32")
    resumed.checkpoints(tmp_path).restore_latest()
    for expected, actual in zip(whole.weights, resumed.weights, strict=True):
        np.testing.assert_array_equal(actual, expected)  # 3 was left out
    assert int(resumed.optimizer.iterations) == 3


@pytest.mark.parametrize(
    ("name", "slots", "others"),
    [
        ("adafactor", "ema row_velocity column_velocity", ""),
        ("lion", "ema momentum", ""),
        ("adadelta", "ema accumulated_delta_var accumulated_grad", ""),
        ("adamax", "ema momentum norm", ""),
        ("ftrl", "ema accumulator linear", ""),
        ("muon", "ema momentum", ""),
        ("nadam", "ema momentum velocity", "optimizer/u_product"),
    ],
)
def test_slots_are_named_by_kind_and_path(training_of, name, slots, others):
    training = training_of(optimizer=name, ema_decay=0.5)
    state = checkpoints.training_state(training, training.optimizer)
    assert {name for name in state if "dense/kernel" in name} == {
        f"{kind}/dense/kernel" for kind in ("weights", *slots.split())
    }
    layers = ("dense/", "embedding/", "heads/", "norm/")
    global_names = {n for n in state if not any(name in n for name in layers)}
    assert global_names == {"step", *others.split()}


def test_checkpoint_of_another_optimizer_is_refused(training_of, tmp_path):
    """It is not renamed as a damaged one."""
    training = training_of(optimizer="nadam")
    path = training.checkpoints(tmp_path).save(0)
    other = training_of(optimizer="adagrad")
    before = other.values()
    for restore in (
        lambda manager: manager.restore_latest(),
        lambda manager: manager.restore(0),
    ):
        with pytest.raises(errors.UserError) as raised:
            restore(other.checkpoints(tmp_path))
        message = str(raised.value)
        assert f"{path} is of another model or optimizer" in message
        assert "accumulator/dense/bias is missing there and (5,) he" in message
        assert "; and 16 more. " in message
        assert "--warm_start_from" in message
    for expected, actual in zip(before, other.values(), strict=True):
        np.testing.assert_array_equal(actual, expected)
    message = r"momentum/.* there and unknown here"
    with pytest.raises(errors.UserError, match=message):
        training_of(optimizer="sgd").checkpoints(tmp_path).restore_latest()
    assert path.with_suffix(".index").exists()


def test_variables_without_a_name_of_their_own_are_refused(training_of):
    """An optimizer could have two slots of one kind."""
    training = training_of(optimizer="sgd")
    weight, built = training.weights[0], training.optimizer
    built.slots = [built.add_variable_from_reference(weight, "twin")]
    built.others = [built.add_variable_from_reference(weight, "twin")]
    first, second = (slot.path for slot in built.variables[-2:])
    path = weight.path.partition("/")[2]
    message = (
        f"SGD cannot be used: {first} and {second} would both be twin/{path}"
    )
    with pytest.raises(errors.UserError, match=message):
        training.checkpoints("nowhere")
    training = training_of(optimizer="sgd")
    lost = training.optimizer.add_variable((), name="variable_7")
    message = f"SGD cannot be used: its variable {lost.path}"
    with pytest.raises(errors.UserError, match=message):
        training.checkpoints("nowhere")


@pytest.mark.parametrize("name", NAMES)
def test_slots_that_copy_weights_follow_a_warm_start(training_of, name):
    """The updates are those of a run that began with the new weights."""
    fresh, warm = training_of(optimizer=name), training_of(optimizer=name)
    for training in (fresh, warm):
        for weight in training.weights:
            weight.assign(weight + 1.0)
    fresh.optimizer = optimizer.build(fresh.hparams, fresh.weights)
    optimizer.reset_weight_copies(warm.optimizer, warm.weights)
    for training in (fresh, warm):
        training.update(1)
    for expected, actual in zip(fresh.weights, warm.weights, strict=True):
        np.testing.assert_array_equal(actual, expected)
