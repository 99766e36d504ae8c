"""Learning-rate schedules: of section 5.3, tensor2tensor, Keras and users."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from t2t_repro import errors, hparam, registry
from t2t_repro.io import arguments
from t2t_repro.runtime.keras_compat import Tensor

_ARGUMENTS = "hparam learning_rate_schedule_arguments"
_ELSEWHERE = {
    "initial_learning_rate": "learning_rate_constant",
    "name": "the class itself",
}
# The first search for a peak evaluates at most this many steps.
_MAX_STEPS = 1 << 20


@keras.saving.register_keras_serializable("t2t_repro")
@dataclasses.dataclass(eq=False)
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning-rate schedule of the paper or of tensor2tensor.

    "noam" is `constant` times equation 3 of the paper, with steps counted
    from 1:

        D^-0.5 * min(step^-0.5, step * warmup^-1.5)

    Any other schedule is a product of tensor2tensor's factors. It counts
    updates s = step - 1 from 0, so that a warm-up begins at a rate of 0:

        constant                constant
        linear_warmup           min(1, s / warmup)
        rsqrt_decay             max(s, warmup)^-0.5
        rsqrt_normalized_decay  (max(s, warmup) / warmup)^-0.5
        cosdecay                (1 + cos(pi s / decay)) / 2; 1 if s <= warmup
        rsqrt_hidden_size       D^-0.5

    Source: section 5.3; T2T learning_rate.py.
    """

    # The hparams learning_rate_* and hidden_size, D.
    schedule: str
    constant: float
    warmup_steps: int
    hidden_size: int
    decay_steps: int = 5_000

    def __call__(self, iterations: Tensor) -> Tensor:
        """Return [] float32 for Keras's iterations, 0 at the first update."""
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
            "rsqrt_normalized_decay": lambda: ops.rsqrt(
                ops.maximum(done, warmup) / warmup
            ),
            "cosdecay": lambda: ops.where(
                done <= warmup,
                1.0,
                0.5 * (1 + ops.cos(math.pi * done / self.decay_steps)),
            ),
            "rsqrt_hidden_size": lambda: width,
        }
        rate = ops.ones((), "float32")
        for name in hparam.factors(self.schedule):
            rate = rate * factors[name]()
        return rate

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclasses.dataclass(eq=False)
class FunctionSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Schedule of a registered function (updates done, hparams)."""

    function: functools.partial  # with its other arguments
    hparams: hparam.HParams

    def __call__(self, iterations: Tensor) -> Tensor:
        """Return [] float32 for Keras's iterations, 0 at the first update."""
        done = ops.cast(iterations, "float32")
        return ops.cast(self.function(done, self.hparams), "float32")

    def get_config(self) -> dict[str, Any]:
        return dict(vars(self))


class Extreme(NamedTuple):
    """Highest or lowest learning rate of a training run."""

    rate: float
    step: int  # first update with this rate, counted from 1


def build(
    hparams: hparam.HParams,
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Build the schedule that hparams.learning_rate_schedule names.

    Raises:
        UserError: unknown schedule, or wrong arguments of one that is not ours.
    """
    cls, text = _look_up(hparams), hparams.learning_rate_schedule_arguments
    if cls is Schedule:
        return Schedule(
            hparams.learning_rate_schedule,
            hparams.learning_rate_constant,
            hparams.learning_rate_warmup_steps,
            hparams.hidden_size,
            hparams.learning_rate_decay_steps,
        )
    if not isinstance(cls, type):
        function = arguments.bind(cls, text, _ARGUMENTS, num_given=2)
        return FunctionSchedule(function, hparams)
    values = arguments.parse(cls, text, _ARGUMENTS, _ELSEWHERE)
    # Arguments that hparams set, unless the text does.
    constant = hparams.learning_rate_constant
    warmup_steps = values.get("warmup_steps", 0)
    defaults = {
        "initial_learning_rate": constant,
        # The decay ends with the last step.
        "decay_steps": hparams.train_steps - warmup_steps,
    }
    if warmup_steps and "warmup_target" not in values:
        # Keras would silently skip the warm-up.
        defaults |= {"initial_learning_rate": 0.0, "warmup_target": constant}
    named = arguments.parameters(cls)
    values = {k: v for k, v in defaults.items() if k in named} | values
    if values.get("decay_steps") == defaults["decay_steps"] <= 0:
        raise errors.UserError(
            f"{_ARGUMENTS}: warmup_steps={warmup_steps} leaves no step to the "
            f"decay, which ends with train_steps={hparams.train_steps}. Lower "
            "warmup_steps, raise train_steps, or set decay_steps."
        )
    return arguments.construct(cls, values, _ARGUMENTS)


def _look_up(hparams):
    """Return the class of a schedule, or a registered function."""
    name = hparams.learning_rate_schedule
    if hparam.is_own_schedule(name) and name not in registry.schedules:
        return Schedule
    library = keras.optimizers.schedules
    known = arguments.subclasses(library, library.LearningRateSchedule)
    known |= dict.fromkeys(("noam", *hparam.SCHEDULE_FACTORS), Schedule)
    own = {entry.name: entry.value for entry in registry.schedules}
    return arguments.look_up("hparam learning_rate_schedule", name, known, own)


def has_end(hparams: hparam.HParams) -> bool:
    """Return whether a schedule may depend on hparams.train_steps."""
    cls, text = _look_up(hparams), hparams.learning_rate_schedule_arguments
    if cls is Schedule:
        return False
    if not isinstance(cls, type):
        return True  # a function of hparams
    given = arguments.parse(cls, text, _ARGUMENTS, _ELSEWHERE)
    return "decay_steps" in arguments.parameters(cls).keys() - given


def check(hparams: hparam.HParams, train_steps: int | None = None) -> None:
    """Refuse a schedule that cannot be computed, or has wrong rates.

    The highest must be above 0, and none below in a training of `train_steps`;
    None: as many as hparams say.

    Raises:
        UserError: names the setting, what was given and what is known.
    """
    cls = _look_up(hparams)
    try:
        rate = learning_rate(hparams, 1)  # errors are shorter than in peak()
        if rate.shape != ():
            raise ValueError(f"a rate is one number, not of {rate.shape}")
        highest = peak(hparams).rate
        lowest = Extreme(0.0, 1)  # a bound of our schedules
        if cls is not Schedule:
            lowest = _extreme(hparams, train_steps, np.argmin)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise arguments.refusal(cls, _ARGUMENTS, error) from error
    if not (math.isfinite(highest) and highest > 0):
        raise errors.UserError(
            f"Learning rates of {cls.__name__} must be finite and above 0; the "
            f"highest is {highest}. Correct {_ARGUMENTS}="
            f"{hparams.learning_rate_schedule_arguments}."
        )
    if lowest.rate < 0:
        raise errors.UserError(
            f"Learning rates of {cls.__name__} must not be below 0; that of "
            f"step {lowest.step:,} is {lowest.rate:.3g}. Correct the schedule "
            "or its arguments, or train fewer steps."
        )


def learning_rate(hparams: hparam.HParams, step: int) -> Tensor:
    """Return the learning rate of update `step`, counted from 1; [] float32."""
    return ops.cast(build(hparams)(step - 1), "float32")


def peak(hparams: hparam.HParams, train_steps: int | None = None) -> Extreme:
    """Return the highest learning rate of a training run of `train_steps`.

    None: as many as the warm-up needs, or hparams.train_steps for a schedule of
    Keras.
    """
    if hparam.is_own_schedule(hparams.learning_rate_schedule):
        # Rates never fall before the end of the warm-up, which is counted from
        # 1 or from 0, and are never above that of its end later.
        warmup = hparams.learning_rate_warmup_steps
        last = train_steps or warmup + 1
        steps = sorted({min(step, last) for step in (1, warmup, warmup + 1)})
        rates = [float(learning_rate(hparams, step)) for step in steps]
        return Extreme(max(rates), steps[rates.index(max(rates))])
    return _extreme(hparams, train_steps, np.argmax)


def _extreme(hparams, train_steps, choose):
    """Return the first of the rates that np.argmax or np.argmin chooses."""
    schedule, last = build(hparams), train_steps or hparams.train_steps
    stride = -(-last // _MAX_STEPS)
    best, _ = _chosen(schedule, np.arange(0, last, stride), choose)
    nearby = np.arange(max(best - stride, 0), min(best + stride + 1, last))
    best, rate = _chosen(schedule, nearby, choose)
    return Extreme(rate, best + 1)


def _chosen(schedule, iterations, choose):
    """Return the iteration whose rate is chosen, and that rate."""
    rates = ops.convert_to_numpy(
        ops.vectorized_map(
            lambda iteration: ops.cast(schedule(iteration), "float32"),
            ops.convert_to_tensor(iterations),
        )
    )
    return int(iterations[choose(rates)]), float(rates[choose(rates)])
