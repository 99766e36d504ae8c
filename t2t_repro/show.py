"""Show an hparams set, its parents and its cost, or list runs.

t2t show --hparams_set=big
t2t show --runs_dir=~/t2t_train

The cost stands beside the paper's, where it has figures for the set.
"""

import collections
import dataclasses
import itertools
import json
import re

from t2t_repro import registry
from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import at_least, flag
from t2t_repro.io import progress


@common_flags.options
class Options:
    """Options of show, each a flag of the same name."""

    vocab_size: int = flag(
        37_000,
        "Subwords V of the vocabulary, for the parameter count; the "
        "paper's en-de has 37,000.",
        at_least(1),
    )
    yaml: bool = flag(False, "Print a configuration file for --config instead.")
    mean_length: int = flag(
        30, "Mean subwords of a sentence, for the FLOP count.", at_least(1)
    )
    shapes: bool = flag(
        False,
        "List the layers instead, with their outputs of B sentences of L and "
        "T subwords, and their parameters.",
    )
    runs_dir: str | None = flag(
        None,
        "List the runs below this folder instead, with problem, hparams set, "
        "last step, and the first score of each test set.",
    )


UPDATES = (1, 100, 4_000, 8_000, 100_000)


def main() -> None:
    options = common_flags.field_values(Options)
    of_set = "vocab_size", "mean_length"
    common_flags.refuse_ignored(
        {
            "runs_dir": ("hparams_set", "hparams", "yaml", "shapes", *of_set),
            "yaml": ("shapes", *of_set),
            "shapes": ("mean_length",),
        }
    )
    if options.runs_dir:
        from t2t_repro.runs import run

        print(_table(run.table_rows(options.runs_dir)))
        return
    name, hparams = common_flags.required("hparams_set"), common_flags.hparams()
    from t2t_repro.models import building
    from t2t_repro.training import losses, optimizer

    optimizer.check(hparams)
    losses.build(hparams.loss)
    if options.yaml:
        print(common_flags.configuration(), end="")
        return
    if options.shapes:
        print(_layers_table(hparams, options.vocab_size))
        return
    for line in (
        *_differences(name, hparams),
        json.dumps(dataclasses.asdict(hparams), indent=2),
        *_schedule(hparams),
        *_cost(name, hparams),
        *(f"note: {note}" for note in building.notes_of(hparams.model)),
    ):
        print(line)


def _layers_table(hparams, vocab_size):
    """Return a table with a row for each kind of layer, and their number.

    Layers of equal shapes are one row, such as those of encoder/layer_*.
    """
    from t2t_repro.models import building

    counts = collections.Counter(
        (
            re.sub(r"_\d+(?=/|$)", "_*", layer.path.partition("/")[2]),
            layer.kind,
            ", ".join(map(str, layer.shape)),
            layer.num_parameters,
        )
        for layer in building.layer_shapes(hparams, vocab_size)
    )
    rows = [("layer", "class", "output", "parameters", "number")]
    for (path, kind, shape, parameters), count in counts.items():
        name = path or "(the model)"
        rows.append((name, kind, f"[{shape}]", f"{parameters:,}", str(count)))
    return _table(rows)


def _table(rows):
    """Return rows of text in aligned columns, the first being the head."""
    return "\n".join(map(str.rstrip, progress.aligned(rows, str.ljust)))


def _differences(name, hparams):
    names = [entry.name for entry in registry.lineage(name)]
    chain = [(name, registry.build_hparams(name)) for name in names]
    if hparams != chain[0][1]:
        chain.insert(0, (f"{chain[0][0]} with --hparams", hparams))
    for (child, values), (parent, inherited) in itertools.pairwise(chain):
        if values == inherited:
            yield f"{child} is {parent}."
            continue
        yield f"{child} differs from {parent}:"
        before, after = vars(inherited), vars(values)
        for key in before | after:
            old, new = before.get(key, "none"), after.get(key, "none")
            if old != new:
                yield f"  {key}: {old} -> {new}"


def _schedule(hparams):
    """Yield the learning rate of some updates, from 1, and its peak."""
    from t2t_repro.training import schedules

    yield f"learning rate: {hparams.learning_rate_schedule}"
    for update in UPDATES:
        rate = float(schedules.learning_rate(hparams, update))
        yield f"  update {update:>7,} {rate:.3e}"
    yield f"  {'peak':14} {schedules.peak(hparams).rate:.3e}"


def _cost(name, hparams):
    """Yield parameters and FLOPs, ours and the paper's side by side."""
    from t2t_repro.evaluation import published
    from t2t_repro.models import building, seq2seq

    options = common_flags.field_values(Options)
    vocab_size, length = options.vocab_size, options.mean_length
    model = building.build_abstract(hparams, vocab_size)
    count = model.count_params()
    base = building.build_abstract(registry.build_hparams("base"), vocab_size)
    more = count - base.count_params()
    tokens = hparams.batch_tokens * hparams.train_steps
    flops = seq2seq.training_flops(model, tokens, length, length)
    stated = published.stated_parameters(name)
    difference = stated and stated - published.stated_parameters("base")
    yield f"{'':22} {'ours':>14} {'the paper':>14}"
    for label, form, ours, theirs, source in (
        (
            f"parameters, V={vocab_size:,}",
            ",.0f",
            count,
            stated,
            "Table 3: its counts fit V near 41,000, big's 36,000",
        ),
        ("  more than base", "+,.0f", more, difference, "Table 3"),
        (
            "training FLOPs",
            ".2g",
            flops,
            published.stated_training_flops(name),
            "Table 2: time x GPUs x 9.5 TFLOPS; ours are counted",
        ),
    ):
        line = f"{label:22} {format(ours, form):>14}"
        if theirs is not None:
            line += f" {format(theirs, form):>14}  {source}"
        yield line


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Required: --hparams_set or --runs_dir": (
                "hparams_set",
                "runs_dir",
            ),
            "Settings": ("hparams",),
        },
    )
