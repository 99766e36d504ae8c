"""Settings of models that are refused; tests/test_hparam.py has the others."""

import dataclasses

import pytest

from t2t_repro import errors

REFUSED = {  # set: (changes, pattern of the message)
    "tiny": [
        (
            {"attention_type": "additive", "max_relative_position": 4},
            "must be 0 where attention_ty",
        ),
        (
            {"pos": "rotary", "attention_key_channels": 12},
            "attention_key_channels must be even for each head where pos",
        ),
        (
            {"pos": "rotary", "attention_type": "additive"},
            "attention_type must be a dot product where pos is rotary",
        ),
        (
            {"pos": "rotary", "max_relative_position": 4},
            "max_relative_position must be 0 where pos is rotary",
        ),
        ({"pos": "rotary", "first_position": 2}, "it has no formula"),
        (
            {"pos": "buckets", "position_buckets": 7},
            "position_buckets must be even where pos is buckets",
        ),
        (
            {"pos": "buckets", "max_bucket_distance": 16},
            r"must be above half of position_buckets \(16\) where pos is b",
        ),
        ({"num_key_value_heads": 3}, r"0 or a divisor of num_heads \(4\)"),
        ({"norm": "rsm"}, "Unknown norm 'rsm'.*rms"),
    ],
    "bytenet_tiny": [
        ({"hidden_size": 7}, "hidden_size.*even"),
        ({"kernel_width": 2}, "kernel_width.*odd"),
        ({"max_dilation": 6}, "max_dilation.*a power of two"),
        ({"target_ratio": 1.2345}, "target_ratio.*a multiple of 0.001"),
        ({"target_ratio": 0.0}, "target_ratio.*above 0"),
    ],
    "neural_gpu_tiny": [
        (
            {"image_width": 2, "kernel_width": 5},
            "kernel_width.*at most 2 . image_width - 1 .3",
        ),
        ({"kernel_length": 2}, "kernel_length.*odd"),
        ({"target_ratio": 0.0}, "target_ratio.*above 0"),
    ],
    "gnmt_tiny": [
        (
            {"num_bidirectional_layers": 3},
            "num_bidirectional_layers must be at most num_encoder_layers",
        ),
        (
            {"num_bidirectional_layers": 2, "attention_hops": 2},
            "attention_hops must be 1 where all layers of the encoder are",
        ),
    ],
    "moe_tiny": [
        ({"num_decoder_layers": 1}, "num_decoder_layers must be at least 2"),
        ({"num_bidirectional_layers": 2}, r"below num_encoder_layers \(2\)"),
    ],
    "transformer_moe_tiny": [
        ({"num_experts": 4, "experts_per_token": 5}, r"most num_experts \(4\)"),
        ({"experts_per_token": 1}, "at least 2"),
        ({"mixture_period": 3}, r"at most the number of layers \(2\)"),
        ({"ffn_activation": "gelu"}, "relu: experts have no other"),
        ({"relu_dropout": 0.1}, "relu_dropout must be 0: experts have no"),
    ],
}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [(name, *each) for name, cases in REFUSED.items() for each in cases],
)
def test_settings_that_do_not_fit_are_refused(build, name, changes, message):
    with pytest.raises(errors.UserError, match=message):
        dataclasses.replace(build(name), **changes)
