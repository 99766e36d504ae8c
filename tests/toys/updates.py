"""Schedule and optimizers, which test their registries."""

import keras
from keras import ops

from t2t_repro.registry import optimizers, schedules


@schedules.register("trapezoid")
def trapezoid(done, hparams, cooldown=0.5):
    """Rise in the warm-up, stay, and fall to 0 in a share of the steps."""
    rise = done / hparams.learning_rate_warmup_steps
    fall = (hparams.train_steps - done) / (cooldown * hparams.train_steps)
    shape = ops.minimum(1.0, ops.minimum(rise, fall))
    return hparams.learning_rate_constant * shape


@schedules.register("halving")
class Halving(keras.optimizers.schedules.LearningRateSchedule):
    """Halve the rate every so many steps."""

    def __init__(self, initial_learning_rate: float, every: int):
        self.rate, self.every = initial_learning_rate, every

    def __call__(self, step):
        return self.rate * 0.5 ** ops.cast(step // self.every, "float32")


@optimizers.register("sign_sgd")
class SignSgd(keras.optimizers.Optimizer):
    """Move each weight by the rate, in the direction of its momentum."""

    def __init__(self, learning_rate, decay=0.9, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.decay = decay

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.momentums = [
            self.add_variable_from_reference(variable, "momentum")
            for variable in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        momentum = self.momentums[self._get_variable_index(variable)]
        mean = self.decay * momentum + (1 - self.decay) * gradient
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign(momentum, mean)
        self.assign_sub(variable, rate * ops.sign(mean))


@optimizers.register("heavy_ball")
def heavy_ball(learning_rate, momentum: float):
    """Stochastic gradient descent with momentum."""
    return keras.optimizers.SGD(learning_rate, momentum)


@optimizers.register("no_optimizer")
def no_optimizer(learning_rate):
    """Return no optimizer."""
    return learning_rate
