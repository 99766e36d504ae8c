"""Summary of a training run, which is printed before the first step."""

import math
import shutil

import tensorflow as tf

from t2t_repro.io import files, progress
from t2t_repro.runtime import hardware
from t2t_repro.training import schedules
from t2t_repro.training.train_session import Session


def summary(session: Session) -> dict[str, str]:
    """Return a human-readable summary, {label: text}."""
    task, options = session.task, session.options
    hparams, plan = task.hparams, task.plan
    replicas = session.strategy.num_replicas_in_sync
    max_tokens, parallel = session.microbatches
    epochs = options.train_steps / plan.steps_per_epoch
    peak = schedules.peak(hparams, options.train_steps)
    found = session.found_microbatch
    pairs, used = len(task.corpora["train"]), plan.num_pairs
    return {
        "parameters": f"{session.state.model.count_params():,}",
        "vocabulary": " and ".join(
            f"{vocabulary.size:,} subwords"
            for vocabulary in task.vocabularies.files.values()
        ),
        "hardware": hardware.summary(
            session.strategy, session.policy, session.xla
        ),
        "batch": f"{plan.summary()} (batch_tokens={hparams.batch_tokens:,}, "
        f"in {hparams.batch_unit.replace('_', ' ')}{_rounding(hparams, plan)})",
        "per replica": f"1/{replicas} of it, at most "
        f"{max_tokens:,} slots at once"
        + (f", in {parallel} microbatches" if parallel > 1 else "")
        + (f", {found.summary()}" if found else ""),
        "pairs": f"{used:,}; {pairs - used:,} longer than max_length="
        f"{hparams.max_length} are dropped",
        "validation": _validation(session),
        "steps": f"{options.train_steps:,} = {epochs:,.1f} epochs; "
        f"{session.state.step:,} done",
        **_forecast(session),
        "learning rate": f"{hparams.learning_rate_schedule}, peak "
        f"{peak.rate:.3g} at step {peak.step:,}",
        "checkpoints": _checkpoint_space(session),
        "output": str(session.output_dir),
    }


def _rounding(hparams, plan):
    """Return by how much a batch misses batch_tokens, if it is noticeable."""
    mean = plan.tokens["targets"] / plan.steps_per_epoch
    share = mean / hparams.batch_tokens - 1
    if hparams.batch_unit != "real_tokens" or abs(share) < 0.01:
        return ""
    return (
        f"; {abs(share):.0%} {'more' if share > 0 else 'fewer'} target tokens, "
        "because rows are a multiple of 8"
    )


def _validation(session):
    """Return when validations come, and what they measure."""
    options = session.options
    if not options.eval_every:
        return "none, by --eval_every=0"
    used = len(session.validation_pairs)
    translated = min(options.eval_bleu_sentences, used)
    return (
        f"after every {options.eval_every:,} steps and the last one, "
        f"{options.validations_after(session.state.step):,} to come; of "
        f"{len(session.task.corpora['validation']):,} pairs {used:,} are used, "
        f"{translated:,} are translated"
    )


def _checkpoint_space(session):
    """Return the number and size of the checkpoints, and the free space."""
    options = session.options
    # One is written before another is removed.
    count = options.keep_checkpoint_max + options.keep_best_checkpoints + 1
    size = sum(
        math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
        for variable in session.state.variables
    )
    folder = files.nearest_existing(session.output_dir)
    free = shutil.disk_usage(folder).free
    text = (
        f"at most {count}, of {size / 1e6:,.1f} MB each; the disk has "
        f"{free / 1e9:,.1f} GB free"
    )
    if count * size > free:
        text += ", too few: make room, or lower --keep_checkpoint_max"
    return text


def _forecast(session):
    """Return {label: text} of the time that the steps take on a CPU.

    Otherwise nothing is known of it until the first steps are done, each of
    which takes a minute for base.
    """
    steps = session.options.train_steps - session.state.step
    product = hardware.cpu_product_flops(session.policy)
    if product is None or steps <= 0:
        return {}
    product *= session.microbatches.parallel * session.worker.count
    plan = session.task.plan
    tokens = plan.tokens["targets"] / plan.steps_per_epoch
    step = tokens * session.flops_per_token
    seconds = (steps + session.validation_steps) * step / product
    validations = session.options.validations_after(session.state.step)
    return {
        "time": f"a step needs {step / 1e12:.3g} TFLOP, and products of "
        f"matrices reach {product / 1e9:,.0f} GFLOP/s, so that {steps:,} steps "
        f"and {validations:,} validations take about "
        f"{progress.duration(max(1.0, seconds))} or more"
    }
