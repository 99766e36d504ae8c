"""Rows of table2_rivals: systems that train with the same number of FLOPs."""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from absl import flags

from scripts.paper import table_rows
from t2t_repro import fields, registry
from t2t_repro.data import batch_plan, manifest
from t2t_repro.models import building, seq2seq

# Checkpoints of a training, of which the last num_averaged_checkpoints are
# averaged: as often as in `small`.
_CHECKPOINTS = 30


class System(NamedTuple):
    """A system of Table 2, in small."""

    hparams_set: str
    published: str  # its row of Table 2
    sequential: str  # operations of a layer that run one after another


TRANSFORMER = "transformer"
SYSTEMS = {
    TRANSFORMER: System("small", "Transformer (base model)", "1"),
    "gnmt": System("gnmt_small", "GNMT + RL", "n"),
    "deep_att": System("deep_att_small", "Deep-Att + PosUnk", "n"),
    "convs2s": System("convs2s_small", "ConvS2S", "1"),
    "bytenet": System("bytenet_small", "ByteNet", "1"),
    "moe": System("moe_small", "MoE", "n"),
}


class Rivals(NamedTuple):
    """Rows of the table, with their lengths and learning rates.

    table_runs takes it like table_rows.Table.
    """

    steps: Mapping[str, int]  # of each system, for equal FLOPs
    constants: Mapping[str, float]  # learning_rate_constant of each system
    names: Mapping[str, System] = SYSTEMS
    base_row: str = TRANSFORMER

    def row(self, name: str, seed: int) -> table_rows.Row:
        """Return a row; of a system that is not selected, as its set is."""
        changes = overrides(name)
        if name in self.steps:
            changes |= lengths(self.steps[name])
        if name in self.constants:
            changes["learning_rate_constant"] = self.constants[name]
        return table_rows.Row(
            name,
            SYSTEMS[name].hparams_set,
            changes,
            seed,
            flags.FLAGS.mixed_precision,
        )

    def selected_rows(self) -> list[table_rows.Row]:
        """Return the rows and seeds that the flags name.

        Seed by seed: a queue that is interrupted has all systems.
        """
        names = table_rows.select(SYSTEMS, flags.FLAGS.rows)
        return [
            self.row(name, seed) for seed in flags.FLAGS.seed for name in names
        ]


def overrides(name: str) -> dict:
    """Return the changes of --hparams for a system."""
    hparams = registry.build_hparams(SYSTEMS[name].hparams_set)
    return dict(fields.parse(type(hparams), flags.FLAGS.hparams))


def lengths(steps: int) -> dict[str, int]:
    """Return the hparams of the length of a training."""
    return {
        "train_steps": steps,
        "save_checkpoints_steps": max(steps // _CHECKPOINTS, 1),
    }


def equal_steps(names, transformer_steps: int, job) -> dict[str, int]:
    """Return {system: steps that take the FLOPs of the Transformer's}.

    Args:
        names: systems.
        transformer_steps: steps of the Transformer.
        job: settings of all rows; its data exist.
    """
    flops = {
        name: step_flops(name, job)
        for name in dict.fromkeys((TRANSFORMER, *names))
    }
    budget = transformer_steps * flops[TRANSFORMER]
    return {name: max(round(budget / flops[name]), 1) for name in names}


def step_flops(name: str, job) -> float:
    """Return the FLOPs of a training step, forward and backward."""
    hparams = dataclasses.replace(
        registry.build_hparams(SYSTEMS[name].hparams_set), **overrides(name)
    )
    pair_lengths, sizes = _lengths_and_sizes(job.data, job.problem.reverse)
    model = building.build_abstract(hparams, **sizes)
    means = batch_plan.mean_lengths(pair_lengths, hparams.max_length)
    return seq2seq.training_flops(model, hparams.batch_tokens, *means)


@functools.cache
def _lengths_and_sizes(data: pathlib.Path, reverse: bool) -> tuple:
    """Return lengths of the training pairs, and sizes of the vocabularies.

    Every file is compared with its checksum: once for all systems.
    """
    corpus = manifest.open_corpus(data, "train", reverse)
    vocabularies = manifest.open_vocabularies(data, reverse)
    return corpus.lengths, vocabularies.sizes
