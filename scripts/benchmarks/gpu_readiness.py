"""Compilation of the JAX training step for a GPU that need not be there.

    python -m scripts.benchmarks.gpu_readiness --targets=cpu,h100

It compiles bench_gpu's whole step for abstract arrays, and computes nothing.
The target h100 needs a Python with jax[cuda12], keras, pyarrow and absl-py, but
no GPU: XLA compiles for a description of an H100. A compiled program states the
bytes that its operations access, and its memory. A roofline of FLOPs and bytes
predicts the speed; nothing is measured. On the CPU, XLA computes bfloat16 in
float32 and fuses less: its bytes are an upper bound of those of a GPU. The last
line is a JSON list of {name, value, unit, peer, ratio}.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"
# Autotuning would measure on the GPU.
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"
)

import jax
from absl import app, flags
from jax.experimental import topologies
from jaxlib import _jax

from scripts.benchmarks import flash_attention, harness, jax_step
from t2t_repro import errors
from t2t_repro.models import building, seq2seq

_SIZES = flags.DEFINE_list("sizes", ["base", "big"], "Hparams sets.")
_DTYPE = flags.DEFINE_enum(
    "dtype", "bfloat16", list(harness.POLICIES), "Type to compute in."
)
_TARGETS = flags.DEFINE_list(
    "targets", ["cpu"], "Devices to compile for: cpu, h100."
)
_TOKENS = flags.DEFINE_integer(
    "tokens", 25_000, "Tokens of each side in a step."
)
_LENGTH = flags.DEFINE_integer("length", 64, "Tokens of a row.")
_VOCAB = flags.DEFINE_integer("vocab_size", 37_000, "Subwords.")

# NVIDIA's data sheet of the H100 SXM: dense bfloat16, and HBM3.
PEAK_FLOPS = 989.4e12
PEAK_BYTES = 3.35e12  # per second
# Properties as in XLA's xla/tools/hlo_opt/gpu_specs/h100_sxm.txtpb.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 84929347584
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
runtime_version { major: 12 minor: 8 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def described_h100():
    """Return the device of XLA's description of an H100.

    Raises:
        UserError: JAX has no plugin that compiles for CUDA.
    """
    try:
        topology = topologies.get_topology_desc(
            platform="cuda", target_config=H100, topology="1x1x1"
        )
    except NotImplementedError as error:
        raise errors.UserError(
            "The target h100 needs JAX's compiler for CUDA; got none. Install "
            f"it in this Python: pip install 'jax[cuda12]=={jax.__version__}'."
        ) from error
    return topology.devices[0]


def compile_step(step, device):
    """Compile a step for arrays without values.

    Args:
        step: jax_step.Step.
        device: where it is to run; None: this CPU.
    """
    sharding = device and jax.sharding.SingleDeviceSharding(device)

    def abstract(array):
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    rows = harness.full_rows(
        {
            "tokens": _TOKENS.value,
            "length": _LENGTH.value,
            "vocab_size": _VOCAB.value,
        }
    )
    arguments = jax.tree.map(abstract, (step.variables, rows))
    return jax.jit(step, donate_argnums=(0,)).lower(*arguments, 1).compile()


def operations(compiled):
    """Return FLOPs and bytes of a compiled program without custom calls."""
    # A program for another device than this process has does not say them.
    (module,) = compiled.runtime_executable().hlo_modules()
    counted = _jax.hlo_module_cost_analysis(
        jax.devices("cpu")[0].client, module
    )
    return counted["flops"], counted["bytes accessed"]


def flash_attention_bytes(hparams, tokens):
    """Return the bytes that cuDNN's kernels access in a step.

    The forward pass reads Q, K and V and writes O. The backward pass reads
    these and the gradient of O, and writes three gradients: 12 arrays
    [tokens, D] of 16 bits for each attention.
    """
    attentions = hparams.encoder_layers + 2 * hparams.decoder_layers
    return attentions * 12 * tokens * hparams.hidden_size * 2


def predict(name, hparams, device, flash):
    """Compile the step of a model, and print what the program tells.

    Args:
        name: name of the printed results.
        hparams: settings of the model.
        device: as in compile_step().
        flash: whether attention is cuDNN's.
    """
    model = building.build(
        hparams, _VOCAB.value, harness.POLICIES[_DTYPE.value]
    )
    if flash:
        flash_attention.install(model, "cudnn")
    compiled = compile_step(jax_step.Step(model), device)
    flops, accessed = operations(compiled)
    pairs = _TOKENS.value // _LENGTH.value * _LENGTH.value
    counted = seq2seq.training_flops(model, pairs, _LENGTH.value, _LENGTH.value)
    if flash:  # XLA counts neither FLOPs nor bytes of cuDNN's kernels.
        accessed += flash_attention_bytes(hparams, pairs)
    else:
        harness.report_beside(
            f"{name}: FLOPs", counted, "", "XLA's count", flops
        )
    harness.report(f"{name}: bytes accessed", accessed / 1e9, "GB")
    memory = jax_step.memory_bytes(compiled)
    harness.report(f"{name}: memory", memory / 1e9, "GB")
    arithmetic, transfer = counted / PEAK_FLOPS, accessed / PEAK_BYTES
    for how, seconds in (
        ("overlapping", max(arithmetic, transfer)),
        ("one after the other", arithmetic + transfer),
    ):
        harness.report(
            f"{name}: predicted, arithmetic and memory {how}",
            2 * pairs / seconds,
            "tokens/s",
            "an H100's peak",
            arithmetic / seconds,
        )


def main(_):
    harness.print_machine()
    print(f"JAX {jax.__version__}")
    variants = []
    if "cpu" in _TARGETS.value:
        variants.append(("HLO of this CPU", None, False))
    if "h100" in _TARGETS.value:
        device = described_h100()
        variants.append(("HLO of an H100", device, False))
        variants.append(("HLO of an H100, flash attention", device, True))
    for size in _SIZES.value:
        hparams = harness.build_hparams(
            {"hparams_set": size}, max_length=_LENGTH.value
        )
        for target, device, flash in variants:
            name = f"{size}, {_DTYPE.value}, {target}"
            predict(name, hparams, device, flash)
    harness.print_json()


if __name__ == "__main__":
    app.run(main)
