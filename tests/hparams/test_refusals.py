"""Settings that do not fit a model, an optimizer, a schedule or a loss.

tests/test_hparam.py has the rules of single settings.
"""

import dataclasses

import pytest
from cases import read_cases

from t2t_repro import errors, registry
from t2t_repro.training import losses, optimizer

# Each set with its changes, and what the message must contain.
CASES = read_cases("""
tiny attention_type=additive,max_relative_position=4
    max_relative_position must be 0 where attention_ty
tiny pos=rotary,attention_key_channels=12
    attention_key_channels must be even for each head where pos
tiny pos=rotary,attention_type=additive
    attention_type must be a dot product where pos is rotary
tiny pos=rotary,max_relative_position=4
    max_relative_position must be 0 where pos is rotary
tiny pos=rotary,first_position=2
    it has no formula
tiny pos=buckets,position_buckets=7
    position_buckets must be even where pos is buckets
tiny pos=buckets,max_bucket_distance=16
    must be above half of position_buckets (16) where pos is b
tiny num_key_value_heads=3
    0 or a divisor of num_heads (4)
tiny norm=rsm
    Unknown norm 'rsm'. Did you mean 'rms'
bytenet_tiny hidden_size=7
    hidden_size must be even
bytenet_tiny kernel_width=2
    kernel_width must be odd
bytenet_tiny max_dilation=6
    max_dilation must be a power of two
bytenet_tiny target_ratio=1.2345
    target_ratio must be a multiple of 0.001
bytenet_tiny target_ratio=0
    target_ratio must be above 0
neural_gpu_tiny image_width=2,kernel_width=5
    kernel_width must be at most 2 * image_width - 1 (3)
neural_gpu_tiny kernel_length=2
    kernel_length must be odd
gnmt_tiny num_bidirectional_layers=3
    num_bidirectional_layers must be at most num_encoder_layers
gnmt_tiny num_bidirectional_layers=2,attention_hops=2
    attention_hops must be 1 where all layers of the encoder are
moe_tiny num_decoder_layers=1
    num_decoder_layers must be at least 2
moe_tiny num_bidirectional_layers=2
    below num_encoder_layers (2)
transformer_moe_tiny num_experts=4,experts_per_token=5
    most num_experts (4)
transformer_moe_tiny experts_per_token=1
    at least 2
transformer_moe_tiny mixture_period=3
    at most the number of layers (2)
transformer_moe_tiny ffn_activation=gelu
    relu: experts have no other
transformer_moe_tiny relu_dropout=0.1
    relu_dropout must be 0: experts have no
tiny optimizer=nadem
    hparam optimizer has no 'nadem'. Did you mean nadam
tiny optimizer=sign_sdg
    hparam optimizer has no 'sign_sdg'. Did you mean sign_sgd
tiny optimizer=loss_scale_optimizer
    hparam optimizer has no 'loss_scale_optimizer'. Did you mean no_optimizer?
    Known: adadelta,
tiny optimizer_arguments=learning_rate=1
    must not set learning_rate: learning_rate_constant does
tiny optimizer=muon,optimizer_arguments=ns_steps=2.5
    Muon refuses its arguments: 'float' object cannot be interpreted
tiny optimizer=muon,optimizer_arguments=exclude_layers=(
    Muon refuses its arguments: missing ), unterminated subpattern
tiny optimizer=ftrl
    The first update of Ftrl is not finite, at a learning rate of 0
tiny optimizer=heavy_ball
    needs momentum. Add momentum=VALUE to hparam optimizer_arguments.
tiny optimizer=heavy_ball,optimizer_arguments=momentum=0.5,clip_grad_norm=1.0
    has no argument global_clipnorm, which hparam clip_grad_norm sets.
tiny optimizer=no_optimizer
    must be a subclass of keras.optimizers.Optimizer, or a function that
tiny learning_rate_schedule=cosine_dekay
    hparam learning_rate_schedule has no 'cosine_dekay'. Did you mean cosine_d
tiny learning_rate_schedule=trapezoids
    learning_rate_schedule has no 'trapezoids'. Did you mean trapezoid
tiny learning_rate_schedule=exponential_decay,\
learning_rate_schedule_arguments=decay_rate=-1.5
    must be finite and above 0; the highest is nan.
tiny learning_rate_schedule=cosine_decay,\
learning_rate_schedule_arguments=warmup_target=high
    CosineDecay refuses its arguments:
tiny learning_rate_schedule=cosine_decay,\
learning_rate_schedule_arguments=initial_learning_rate=1
    must not set initial_learning_rate: learning_rate_constant does.
tiny learning_rate_schedule=halving
    Halving needs every. Add every=VALUE
tiny loss=fokal
    Unknown loss function 'fokal'. Did you mean 'focal'
tiny loss=crossentropy
    Unknown loss function 'crossentropy'. Did you mean 'cross_e
tiny loss=noisy
    Noisy needs weight. Add weight=VALUE to hparam loss=noisy
tiny loss=cross_entropy:x=1
    takes no arguments; got
tiny loss=no_call
    instances of NoCall cannot be called
""")


WRONG_CONVOLUTIONS = (  # fairseq's lists have commas
    "512 512x3,512x3 512x3+ 0x3 512x0 512x3*0 512x3*-1 512x3*2001 "
    "512x3*1000+512x3*1001 131073x3 512x1025 99999999999999999999x3 ٥x3"
).split()


@pytest.mark.parametrize("text", ["", *WRONG_CONVOLUTIONS])
def test_wrong_convolutions_are_refused_by_name(text):
    for name in ("encoder_convolutions", "decoder_convolutions"):
        with pytest.raises(errors.UserError) as raised:
            convs2s = registry.build_hparams("convs2s_tiny")
            dataclasses.replace(convs2s, **{name: text})
        message = str(raised.value)
        assert message.startswith(f"hparam {name} must be CHANNELSxWIDTH*")
        assert message.endswith(f"; got {text!r}.")


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("case", CASES)
def test_settings_that_do_not_fit_are_refused(case):
    name, changes = case.split()
    if "muon" in changes:
        pytest.importorskip("keras", "3.13")
    with pytest.raises(errors.UserError) as raised:
        hparams = registry.build_hparams(name).override(changes)
        optimizer.check(hparams)
        losses.build(hparams.loss)
    assert CASES[case] in str(raised.value)
