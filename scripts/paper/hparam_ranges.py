"""Ranges of hparams for a search, from the command line.

learning_rate_constant=0.05:1.0:log     a number, uniform in its logarithm
layer_prepostprocess_dropout=0.0:0.4    a number, uniform
num_heads=2|4|8                         one of these values
"""

from collections.abc import Sequence

from optuna import distributions

from t2t_repro import errors, fields


def parse(
    cls: type, texts: Sequence[str]
) -> dict[str, distributions.BaseDistribution]:
    """Return {hparam: distribution}.

    Args:
        cls: dataclass of the hparams.
        texts: ranges.

    Raises:
        UserError: an hparam is unknown or has two ranges, or a range is not
            of one of the three forms.
    """
    ranges = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise _error(text, "It has no values")
        if name in ranges:
            raise _error(text, f"{name} has two ranges")
        ranges[name] = _distribution(cls, text, name, values)
    return ranges


def _distribution(cls, text, name, values):
    if "|" in values:
        choices = [_value(cls, name, each) for each in values.split("|")]
        return distributions.CategoricalDistribution(choices)
    ends, log = values.removesuffix(":log"), values.endswith(":log")
    if ends.count(":") != 1:
        raise _error(text, "It has not two ends")
    low, high = (_value(cls, name, end) for end in ends.split(":"))
    kinds = {
        int: distributions.IntDistribution,
        float: distributions.FloatDistribution,
    }
    if type(low) not in kinds:
        raise _error(text, f"{name} is not a number")
    if not low < high or (log and low <= 0):
        raise _error(
            text, "Its ends are not in ascending order, or not above 0"
        )
    return kinds[type(low)](low, high, log=log)


def _value(cls, name, text):
    return fields.parse(cls, f"{name}={text}")[name]


def _error(text, reason):
    return errors.UserError(
        f"--range takes NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=A|B|C. "
        f"{reason}; got --range={text}."
    )
