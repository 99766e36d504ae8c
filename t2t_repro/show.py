"""Shows an hparams set: as a diff from its parents, as JSON, and its cost.

python -m t2t_repro.show --hparams_set=big
"""

import dataclasses

from absl import flags

from t2t_repro import common_flags, hparam, registry
from t2t_repro.reports import cost

_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size", 37_000, "V, for the parameter count: en-de has 37,000."
)
_MEAN_LENGTH = flags.DEFINE_integer(
    "mean_length", 30, "Subwords of a sentence, for the FLOP count."
)
flags.adopt_module_key_flags(common_flags)


def main():
    name, hparams = common_flags.hparams_set(), common_flags.hparams()
    for line in _differences(name, hparams):
        print(line)
    print(hparam.to_json(hparams))
    parameters = cost.parameters(hparams, _VOCAB_SIZE.value)
    flops = cost.training_flops(hparams, _VOCAB_SIZE.value, _MEAN_LENGTH.value)
    print(
        f"parameters of the Transformer, {_VOCAB_SIZE.value:,} subwords: "
        f"{parameters:,}\n"
        f"training FLOPs, counted: {flops:.2e}"
    )
    if name in cost.PUBLISHED:
        published = cost.PUBLISHED[name]
        print(
            f"the paper: {published.parameters:,.0f} parameters (Table 3), "
            f"{published.flops:.1e} FLOPs (Table 2: time x GPUs x 9.5 TFLOPS)"
        )


def _differences(name, hparams):
    """A line for each value that a set, or --hparams, changes."""
    chain = [(f"{name} with --hparams", hparams)]
    while name:
        chain.append((name, registry.build_hparams(name)))
        name = registry.hparams_sets[name].parent
    for (child, values), (parent, inherited) in zip(
        chain, chain[1:], strict=False
    ):
        if values != inherited:
            yield f"{child} differs from {parent}:"
        for field in dataclasses.fields(values):
            before = getattr(inherited, field.name)
            after = getattr(values, field.name)
            if before != after:
                yield f"  {field.name}: {before} -> {after}"


if __name__ == "__main__":
    common_flags.run(main)
