"""Tests of the settings of ConvS2S and its sets."""

import dataclasses

import pytest

from t2t_repro import errors
from t2t_repro.registry import build_hparams as build
from t2t_repro.training import schedules

WRONG = (  # fairseq's lists have commas
    "512 512x3,512x3 512x3+ 0x3 512x0 512x3*0 512x3*-1 512x3*2001 "
    "512x3*1000+512x3*1001 131073x3 512x1025 99999999999999999999x3 ٥x3"
).split()


@pytest.mark.parametrize("text", ["", *WRONG])
def test_wrong_convolutions_are_refused_by_name(text):
    for name in ("encoder_convolutions", "decoder_convolutions"):
        with pytest.raises(errors.UserError) as raised:
            dataclasses.replace(build("convs2s_tiny"), **{name: text})
        message = str(raised.value)
        assert message.startswith(f"hparam {name} must be CHANNELSxWIDTH*")
        assert message.endswith(f"; got {text!r}.")


@pytest.mark.parametrize("name", ["convs2s", "convs2s_iwslt"])
def test_rate_is_a_quarter_then_a_tenth_of_it_each_epoch(name):
    hparams = build(name)
    epochs = {"convs2s": (50, 93_750), "convs2s_iwslt": (200, 1_250)}
    constant, epoch = epochs[name]
    for number, rate in enumerate((0.25, 0.025, 0.0025, 0.00025)):
        first = (constant + number - 1) * epoch + 2 if number else 1
        last = (constant + number) * epoch + 1
        for step in (first, last):
            found = float(schedules.learning_rate(hparams, step))
            assert found == pytest.approx(rate)
    assert hparams.train_steps == (constant + 3) * epoch
