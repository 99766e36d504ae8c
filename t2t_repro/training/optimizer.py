"""Adam with the paper's learning-rate schedule (section 5.3)."""

import keras
from keras import ops


def learning_rate(hparams, step):
    """The learning rate of update `step`, counted from 1; [] float32.

    "noam" is the paper's equation 3, times learning_rate_constant:

        D^-0.5 * min(step^-0.5, step * warmup^-1.5)

    Any other schedule is a product of factors as tensor2tensor has them. It
    counts updates s = step - 1 from 0, so a warm-up begins at a rate of 0:

        constant           learning_rate_constant
        linear_warmup      min(1, s / warmup)
        rsqrt_decay        max(s, warmup)^-0.5
        rsqrt_hidden_size  D^-0.5

    Source: section 5.3; T2T learning_rate.py.
    """
    step = ops.cast(step, "float32")
    warmup = float(hparams.learning_rate_warmup_steps)
    constant, width = hparams.learning_rate_constant, hparams.hidden_size**-0.5
    if hparams.learning_rate_schedule == "noam":
        shape = ops.minimum(ops.rsqrt(step), step * warmup**-1.5)
        return constant * width * shape
    factors = {
        "constant": lambda: constant,
        "linear_warmup": lambda: ops.minimum(1.0, (step - 1) / warmup),
        "rsqrt_decay": lambda: ops.rsqrt(ops.maximum(step - 1, warmup)),
        "rsqrt_hidden_size": lambda: width,
    }
    rate = ops.ones((), "float32")
    for name in hparams.learning_rate_schedule.split("*"):
        rate = rate * factors[name]()
    return rate


def peak_learning_rate(hparams) -> float:
    """The highest learning rate: at the end of the warm-up."""
    return max(
        float(learning_rate(hparams, hparams.learning_rate_warmup_steps + s))
        for s in (0, 1)  # counted from 1, and from 0
    )


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """learning_rate() of Keras's iterations: 0 at the first update."""

    def __init__(self, hparams):
        self._hparams = hparams

    def __call__(self, iterations):
        return learning_rate(self._hparams, ops.cast(iterations, "float32") + 1)

    def get_config(self):
        return {"hparams": self._hparams}


def build(hparams, variables):
    """Keras's Adam for `variables`, with its slots made."""
    optimizer = keras.optimizers.Adam(
        learning_rate=Schedule(hparams),
        beta_1=hparams.optimizer_adam_beta1,
        beta_2=hparams.optimizer_adam_beta2,
        epsilon=hparams.optimizer_adam_epsilon,
    )
    optimizer.build(variables)
    return optimizer
