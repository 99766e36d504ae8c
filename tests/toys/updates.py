"""A schedule and optimizers beside those of docs/hparams.md."""

import keras
from keras import ops

from t2t_repro.registry import optimizers, schedules


@schedules.register("halving")
class Halving(keras.optimizers.schedules.LearningRateSchedule):
    """Halve the rate every so many steps."""

    def __init__(self, initial_learning_rate: float, every: int):
        self.rate, self.every = initial_learning_rate, every

    def __call__(self, step):
        return self.rate * 0.5 ** ops.cast(step // self.every, "float32")


@optimizers.register("heavy_ball")
def heavy_ball(learning_rate, momentum: float):
    """Stochastic gradient descent with momentum."""
    return keras.optimizers.SGD(learning_rate, momentum)


@optimizers.register("no_optimizer")
def no_optimizer(learning_rate):
    """Return no optimizer."""
    return learning_rate
