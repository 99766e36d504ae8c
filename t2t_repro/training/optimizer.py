"""Keras's optimizers with the paper's learning-rate schedule (section 5.3)."""

import contextlib

import keras
import tensorflow as tf
from keras import ops


@keras.saving.register_keras_serializable("t2t_repro")
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of an update.

    "noam" is the paper's equation 3 of the step, counted from 1, times
    `constant`:

        D^-0.5 * min(step^-0.5, step * warmup^-1.5)

    Any other schedule is a product of factors as tensor2tensor has them. It
    counts updates s = step - 1 from 0, so a warm-up begins at a rate of 0:

        constant           constant
        linear_warmup      min(1, s / warmup)
        rsqrt_decay        max(s, warmup)^-0.5
        rsqrt_hidden_size  D^-0.5

    Source: section 5.3; T2T learning_rate.py.
    """

    def __init__(self, schedule, constant, warmup_steps, hidden_size):
        """Takes the hparams learning_rate_* and hidden_size, D."""
        self.schedule = schedule
        self.constant = constant
        self.warmup_steps = warmup_steps
        self.hidden_size = hidden_size

    def __call__(self, iterations):
        """Keras's iterations, 0 at the first update -> [] float32."""
        done = ops.cast(iterations, "float32")
        warmup, width = float(self.warmup_steps), self.hidden_size**-0.5
        if self.schedule == "noam":
            step = done + 1
            shape = ops.minimum(ops.rsqrt(step), step * warmup**-1.5)
            return self.constant * width * shape
        factors = {
            "constant": lambda: self.constant,
            "linear_warmup": lambda: ops.minimum(1.0, done / warmup),
            "rsqrt_decay": lambda: ops.rsqrt(ops.maximum(done, warmup)),
            "rsqrt_hidden_size": lambda: width,
        }
        rate = ops.ones((), "float32")
        for name in self.schedule.split("*"):
            rate = rate * factors[name]()
        return rate

    def get_config(self):
        return {
            "schedule": self.schedule,
            "constant": self.constant,
            "warmup_steps": self.warmup_steps,
            "hidden_size": self.hidden_size,
        }


def schedule(hparams) -> Schedule:
    """The schedule that `hparams` name."""
    return Schedule(
        hparams.learning_rate_schedule,
        hparams.learning_rate_constant,
        hparams.learning_rate_warmup_steps,
        hparams.hidden_size,
    )


def learning_rate(hparams, step):
    """The learning rate of update `step`, counted from 1; [] float32."""
    return schedule(hparams)(step - 1)


def peak_learning_rate(hparams) -> float:
    """The highest learning rate: at the end of the warm-up."""
    return max(
        float(learning_rate(hparams, hparams.learning_rate_warmup_steps + s))
        for s in (0, 1)  # counted from 1, and from 0
    )


class Adam(keras.optimizers.Adam):
    """Keras's Adam, its update one operation for each weight.

    The same arithmetic: Keras writes it in a dozen operations, and each reads
    and writes arrays as large as the weight. For base on a CPU that is three
    times as slow (scripts/bench_train.py).
    """

    def update_step(self, gradient, variable, learning_rate):
        index, dtype = self._get_variable_index(variable), variable.dtype
        step = tf.cast(self.iterations.value + 1, dtype)
        beta1 = tf.constant(self.beta_1, dtype)
        beta2 = tf.constant(self.beta_2, dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta1**step,
            beta2_power=beta2**step,
            lr=tf.cast(learning_rate, dtype),
            beta1=beta1,
            beta2=beta2,
            epsilon=tf.constant(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )


class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """Keras's dynamic loss scale for float16, which counts every step.

    A gradient below 6e-8 is 0 in float16. So the loss is multiplied by a scale,
    and gradients divided by it in float32. Where they overflow, the update is
    left out and the scale halved; after 2,000 steps that went well it doubles
    (Micikevicius et al. 2017, arXiv 1710.03740, section 3.2). A step that is
    left out is a step all the same, since batches and rates follow the count.
    """

    def _stateful_handle_non_finite_grads(self):
        super()._stateful_handle_non_finite_grads()
        # The average, too: it begins with the weights of the first step.
        inner = self.inner_optimizer
        inner._update_model_variables_moving_average(inner._trainable_variables)
        self.iterations.assign_add(1)


def build(hparams, variables, policy="float32"):
    """The optimizer that `hparams` name, for `variables`, with its slots made.

    Under the policy "mixed_float16" it scales the loss.

    Adafactor has no hparams of its own: Keras's values are those of Shazeer and
    Stern (arXiv 1804.04235, algorithm 4), as T2T's are.
    """
    betas = {
        "beta_1": hparams.optimizer_adam_beta1,
        "beta_2": hparams.optimizer_adam_beta2,
    }
    epsilon = {"epsilon": hparams.optimizer_adam_epsilon}
    decay = {"weight_decay": hparams.weight_decay}
    optimizers = keras.optimizers
    make, settings = {
        "adam": (Adam, betas | epsilon),
        "adafactor": (optimizers.Adafactor, {}),
        "adamw": (Adam, betas | epsilon | decay),
        "lion": (optimizers.Lion, betas | decay),
    }[hparams.optimizer]
    optimizer = make(
        learning_rate=schedule(hparams),
        global_clipnorm=hparams.clip_grad_norm or None,
        use_ema=hparams.ema_decay > 0,
        ema_momentum=hparams.ema_decay,
        **settings,
    )
    # Only matrices decay: not biases, nor what layer normalisation scales by.
    vectors = [v for v in variables if len(v.shape) < 2]
    optimizer.exclude_from_weight_decay(var_list=vectors)
    if policy == "mixed_float16":
        optimizer = LossScaleOptimizer(optimizer)
    optimizer.build(variables)
    return optimizer


def loss_scale(optimizer) -> dict[str, keras.Variable]:
    """{name: variable} of the dynamic loss scale, where there is one."""
    if not isinstance(optimizer, LossScaleOptimizer):
        return {}
    return {
        "loss_scale/scale": optimizer.dynamic_scale,
        "loss_scale/finite_steps": optimizer.step_counter,
    }


def _unscaled(optimizer):
    """The optimizer itself, without the loss scale around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def take_gradients_as_they_are(optimizer):
    """Lets `optimizer.apply` sum no gradients over replicas.

    They are summed before, since their norm is wanted and clipping needs the
    whole of them: Keras clips each replica's own. It has no argument for that,
    as its predecessor had; in Keras 3 every update asks this method.
    """
    _unscaled(optimizer)._all_reduce_sum_gradients = list


@contextlib.contextmanager
def averaged_weights(optimizer, variables):
    """Within it, weights are their moving average, if hparams.ema_decay."""
    optimizer = _unscaled(optimizer)
    if not optimizer.use_ema:
        yield
        return
    own = [variable.numpy() for variable in variables]
    averages = slots(optimizer)["ema"]
    for index, variable in enumerate(variables):
        variable.assign(averages[index])
    try:
        yield
    finally:
        for variable, value in zip(variables, own, strict=True):
            variable.assign(value)


def slots(optimizer) -> dict[str, dict[int, keras.Variable]]:
    """{kind: {index of a weight: what the optimizer remembers of it}}."""
    optimizer, kinds = _unscaled(optimizer), {}
    if isinstance(optimizer, keras.optimizers.Adam | keras.optimizers.Lion):
        kinds["momentum"] = dict(enumerate(optimizer._momentums))
    if isinstance(optimizer, keras.optimizers.Adam):
        kinds["velocity"] = dict(enumerate(optimizer._velocities))
    if isinstance(optimizer, keras.optimizers.Adafactor):
        # Of a matrix, the means over its rows and columns; its own velocity is
        # made of these at each update.
        ranks = [len(velocity.shape) for velocity in optimizer._v]
        kinds = {
            kind: {i: slots[i] for i, rank in enumerate(ranks) if holds(rank)}
            for kind, slots, holds in (
                ("row_velocity", optimizer._r, lambda rank: rank >= 2),
                ("column_velocity", optimizer._c, lambda rank: rank >= 2),
                ("velocity", optimizer._v, lambda rank: rank < 2),
            )
        }
    if optimizer.use_ema:
        averages = optimizer._model_variables_moving_average
        kinds["ema"] = dict(enumerate(averages))
    return kinds
