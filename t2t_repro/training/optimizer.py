"""Optimizers: the paper's Adam (section 5.3), Keras's, and registered ones."""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from t2t_repro import errors, hparam, registry
from t2t_repro.io import arguments
from t2t_repro.runs import checkpoints
from t2t_repro.runtime import graph, keras_compat
from t2t_repro.training import schedules

_ARGUMENTS = "hparam optimizer_arguments"
# Arguments of constructors that other settings determine.
_ELSEWHERE = {
    "name": "the class itself",
    "learning_rate": "learning_rate_constant",
    "weight_decay": "weight_decay",
    "clipnorm": "clip_grad_norm",
    "global_clipnorm": "clip_grad_norm",
    "clipvalue": "clip_grad_norm",
    "use_ema": "ema_decay",
    "ema_momentum": "ema_decay",
    "ema_overwrite_frequency": "ema_decay",
    "loss_scale_factor": "--mixed_precision=float16",
    "gradient_accumulation_steps": "--max_tokens_per_replica",
}
# Muon is for the matrices of linear maps. Keras calls these "kernel"; our
# embeddings, output layers and tables of positions have other names.
_NOT_A_KERNEL = r"^(?!.*/kernel$)"


class Adam(keras.optimizers.Adam):
    """Keras's Adam with one fused operation per weight.

    The arithmetic is the same. Keras uses a dozen operations, each of which
    reads and writes arrays as large as the weight. For base on a CPU that is
    three times as slow (scripts/benchmarks/bench_train.py).
    """

    # Whether XLA compiles the update of all weights as one program, which each
    # replica runs for itself. Otherwise a GPU waits for hundreds of operations
    # to start: a step of base takes 37.9 ms without norm and update, 43.8 with
    # them, and 38.0 with both compiled (H200, docs/performance.md).
    xla = False

    def _backend_update_step(
        self,
        grads: Sequence[tf.Tensor],
        trainable_variables: Sequence[keras.Variable],
        learning_rate: tf.Tensor,
    ) -> None:
        # Keras's own operations assign to a weight on all replicas at once.
        on_each_replica = self.xla and not self.amsgrad
        if not on_each_replica or tf.distribute.in_cross_replica_context():
            super()._backend_update_step(
                grads, trainable_variables, learning_rate
            )
            return
        pairs = self._all_reduce_sum_gradients(
            zip(grads, trainable_variables, strict=True)
        )
        gradients, variables = zip(*pairs, strict=True)
        order = tuple(map(self._get_variable_index, variables))
        if order not in self._compiled_updates:
            self._compiled_updates[order] = self._compile_update(variables)
        self._compiled_updates[order](
            gradients, tf.convert_to_tensor(learning_rate)
        )

    @functools.cached_property
    def _compiled_updates(self):
        """{indices of weights: their compiled update}, for all batch shapes."""
        return {}

    def _compile_update(self, variables):
        @graph.function(jit_compile=True)
        def update(gradients, learning_rate):
            for gradient, variable in zip(gradients, variables, strict=True):
                self.update_step(gradient, variable.value, learning_rate)

        return update

    def update_step(
        self,
        gradient: tf.Tensor,
        variable: keras.Variable,
        learning_rate: tf.Tensor,
    ) -> None:
        if self.amsgrad:  # the operation below has no such option
            super().update_step(gradient, variable, learning_rate)
            return
        momentum, velocity = keras_compat.adam_moments(self, variable)
        dtype = variable.dtype
        step = tf.cast(self.iterations.value + 1, dtype)
        beta1 = tf.constant(self.beta_1, dtype)
        beta2 = tf.constant(self.beta_2, dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.value.handle,
            v=velocity.value.handle,
            beta1_power=beta1**step,
            beta2_power=beta2**step,
            lr=tf.cast(learning_rate, dtype),
            beta1=beta1,
            beta2=beta2,
            epsilon=tf.constant(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )


# Early versions of Keras lack it; look_up() asks.
_SCHEDULE_FREE: Any = getattr(
    keras.optimizers, "ScheduleFreeAdamW", keras.optimizers.Adam
)


class ScheduleFreeAdamW(_SCHEDULE_FREE):
    """Keras's ScheduleFreeAdamW, with the update of its other backends.

    On TensorFlow, Keras's own derives the average x from z after its update
    instead of before, which cancels most of a step. At a constant rate and
    without decay it is that of Defazio et al. 2024 (arXiv 2405.15682). Keras's
    average has equal weights at other rates, and y decays in place of z.
    """

    def update_step(
        self,
        gradient: tf.Tensor,
        variable: keras.Variable,
        learning_rate: tf.Tensor,
    ) -> None:
        """Move z, the slot "momentum", and the weight, (1 - b) z + b x."""
        index, dtype = self._get_variable_index(variable), variable.dtype
        z, velocity = self._momentums[index], self._velocities[index]
        step = ops.cast(self.iterations + 1, dtype)
        rate = ops.cast(learning_rate, dtype)
        if self.warmup_steps:
            rate *= ops.minimum(step / self.warmup_steps, 1.0)
        gradient = ops.cast(gradient, dtype)
        square = ops.square(gradient) * (1 - self.beta_2)
        self.assign(velocity, velocity * self.beta_2 + square)
        root = ops.sqrt(velocity / (1 - ops.power(self.beta_2, step)))
        x = (variable - (1 - self.beta_1) * z) / self.beta_1
        new_z = z - rate * gradient / (root + self.epsilon)
        x += (new_z - x) / step
        self.assign(variable, (1 - self.beta_1) * new_z + self.beta_1 * x)
        self.assign(z, new_z)


def check(hparams: hparam.HParams, train_steps: int | None = None) -> None:
    """Refuse an optimizer, a schedule or arguments that Keras does not accept.

    Commands call it before any work. hparam.py cannot check this: it reads
    settings without importing Keras. One update of a small matrix reveals
    arguments that a constructor accepts and an update does not. `train_steps`
    is that of schedules.check().

    Raises:
        UserError: names the setting, what was given and what is known.
    """
    cls = look_up(hparams.optimizer)
    schedules.check(hparams, train_steps)
    with keras.name_scope("layer"):
        weight = keras.Variable(ops.eye(2), name="kernel")
    built = build(hparams, [weight])
    try:
        built.apply([ops.ones((2, 2))], [weight])
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise arguments.refusal(cls, _ARGUMENTS, error) from error
    if not ops.all(ops.isfinite(weight)):
        rate = float(schedules.learning_rate(hparams, 1))
        raise errors.UserError(
            f"The first update of {cls.__name__} is not finite, at a learning "
            f"rate of {rate:.3g} and {_ARGUMENTS}="
            f"{hparams.optimizer_arguments!r}. Ftrl divides by the rate: "
            "choose a learning_rate_schedule that begins above 0, such as noam."
        )


def look_up(name: str) -> Callable:
    """Return the class of an optimizer, or a registered function.

    Names are Keras's, such as "adam" and "rmsprop", and registered ones.

    Raises:
        UserError: unknown name, with near and known names, or Keras is too old.
    """
    # Its Muon asks variables of TensorFlow for a path, which they lack.
    if name == "muon" and keras.__version__.startswith("3.12."):
        raise errors.UserError(
            "hparam optimizer=muon needs Keras 3.13 or later, and so Python "
            f"3.11; this is Keras {keras.__version__}. Choose another "
            "optimizer, or a later Python."
        )
    library = keras.optimizers
    found = arguments.subclasses(library, library.Optimizer)
    # Classes without a rate wrap other optimizers.
    known: dict[str, Callable] = {
        key: cls
        for key, cls in found.items()
        if "learning_rate" in arguments.parameters(cls)
    }
    own: dict[str, Callable] = {"adam": Adam, "adamw": Adam}
    if "schedule_free_adamw" in known:
        own["schedule_free_adamw"] = ScheduleFreeAdamW
    registered = {entry.name: entry.value for entry in registry.optimizers}
    return arguments.look_up("hparam optimizer", name, known | own, registered)


def build(
    hparams: hparam.HParams,
    variables: Sequence[keras.Variable],
    policy: str = "float32",
    xla: bool = False,
) -> keras.optimizers.Optimizer:
    """Build the optimizer that `hparams` name, with its slots.

    With the policy "mixed_float16" the optimizer scales the loss. With `xla`
    the update is compiled, if it is Adam's. Slots are in the variables' order.

    Raises:
        UserError: unknown optimizer, or wrong arguments.
    """
    cls = look_up(hparams.optimizer)
    values = arguments.parse(
        cls, hparams.optimizer_arguments, _ARGUMENTS, _ELSEWHERE
    )
    optimizer = arguments.construct(
        cls, _with_defaults(cls, values, hparams), _ARGUMENTS
    )
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise errors.UserError(
            f"hparam optimizer={hparams.optimizer} must be a subclass of "
            "keras.optimizers.Optimizer, or a function that returns one; "
            f"{cls.__name__} returned {optimizer!r:.80}."
        )
    if isinstance(optimizer, Adam):
        optimizer.xla = xla
    # Only matrices decay: no biases, and no scales of layer normalisation.
    # Biases of experts are matrices, too: a row for each expert.
    vectors = [
        v for v in variables if len(v.shape) < 2 or v.name.endswith("bias")
    ]
    optimizer.exclude_from_weight_decay(var_list=vectors)
    try:
        optimizer.build(variables)
    except (TypeError, re.error) as error:  # exclude_layers is wrong
        raise arguments.refusal(cls, _ARGUMENTS, error) from error
    if policy == "mixed_float16":
        # Built first, because Keras's wrapper hides Nadam's u_product from
        # optimizer.variables if the wrapper builds the optimizer.
        optimizer = keras_compat.LossScaleOptimizer(optimizer)
        optimizer.build(variables)
    return optimizer


def _with_defaults(cls, values, hparams):
    """Add the arguments that hparams set, unless `values` has them."""
    decay = hparams.weight_decay or None
    defaults = {
        "learning_rate": schedules.build(hparams),
        "global_clipnorm": hparams.clip_grad_norm or None,
        "use_ema": hparams.ema_decay > 0,
        "ema_momentum": hparams.ema_decay,
        "weight_decay": decay,
    }
    adam_defaults = {
        "beta_1": hparams.optimizer_adam_beta1,
        "beta_2": hparams.optimizer_adam_beta2,
        "epsilon": hparams.optimizer_adam_epsilon,
        # For the Adam inside Muon.
        "adam_beta_1": hparams.optimizer_adam_beta1,
        "adam_beta_2": hparams.optimizer_adam_beta2,
        "adam_weight_decay": decay,
    }
    named = arguments.parameters(cls)
    # The epsilon of AdaGrad or RMSprop is another quantity: Keras's default.
    if "beta_1" in named or "adam_beta_1" in named:
        defaults |= {k: v for k, v in adam_defaults.items() if k in named}
    if "exclude_layers" in named:
        excluded = values.get("exclude_layers", ())
        values = values | {"exclude_layers": [_NOT_A_KERNEL, *excluded]}
    is_own = hparams.optimizer in registry.optimizers
    if not is_own or arguments.takes_others(cls):
        return defaults | values
    # A registered class or function need not take what is not set.
    for name, value in defaults.items():
        if value and name not in named:
            raise errors.UserError(
                f"{cls.__name__} has no argument {name}, which hparam "
                f"{_ELSEWHERE[name]} sets. Give it this argument, or **kwargs, "
                "and hand it to keras.optimizers.Optimizer."
            )
    return {name: defaults[name] for name in named if name in defaults} | values


def reset_weight_copies(
    optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]
) -> None:
    """Set slots that begin as copies of the weights to the present weights.

    Call it when weights are replaced after build(). Only ScheduleFreeAdamW has
    such slots.
    """
    inner = keras_compat.inner_optimizer(optimizer)
    if type(inner).__name__ == "ScheduleFreeAdamW":
        for index, slot in checkpoints.slots_of_kind(
            inner, weights, "momentum"
        ).items():
            slot.assign(weights[index])


@contextlib.contextmanager
def averaged_weights(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]
) -> Iterator[None]:
    """Replace the weights by their moving averages within the context.

    Without hparams.ema_decay nothing changes.
    """
    averages = checkpoints.slots_of_kind(optimizer, variables, "ema")
    trained = {index: variables[index].numpy() for index in averages}
    for index, average in averages.items():
        variables[index].assign(average)
    try:
        yield
    finally:
        for index, value in trained.items():
            variables[index].assign(value)
