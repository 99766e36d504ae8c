"""Trains a model: generates data that is missing, goes on where it stopped.

python -m t2t_repro.trainer --problem=wmt14_ende --hparams_set=big
"""

import contextlib

from absl import flags

from t2t_repro import common_flags, locks, prepare, runs
from t2t_repro.data import manifest
from t2t_repro.data import plan as plans
from t2t_repro.training import hardware, loop, parts, workers

common_flags.define_datagen_flags()
_TRAIN_STEPS = flags.DEFINE_integer(
    "train_steps",
    None,
    "Steps to train; by default the hparams set's.",
    lower_bound=1,
)
_EVAL_EVERY = flags.DEFINE_integer(
    "eval_every",
    None,
    "Steps between validations; by default those between checkpoints.",
    lower_bound=1,
)
_EVAL_BLEU = flags.DEFINE_integer(
    "eval_bleu_sentences",
    200,
    "Validation sentences to translate for BLEU at each validation; 0: none.",
    lower_bound=0,
)
_SAVE_STEPS = flags.DEFINE_integer(
    "save_checkpoints_steps",
    None,
    "Steps between checkpoints; by default the hparams set's.",
    lower_bound=1,
)
_SAVE_SECS = flags.DEFINE_integer(
    "save_checkpoints_secs",
    None,
    "Seconds between checkpoints, instead of steps.",
    lower_bound=1,
)
_KEEP = flags.DEFINE_integer(
    "keep_checkpoint_max", 20, "Checkpoints to keep.", lower_bound=1
)
_SEED = flags.DEFINE_integer(
    "random_seed",
    1,
    "Of initial weights, batches and dropout.",
    lower_bound=0,
    upper_bound=2**31 - 1,
)
_DETERMINISTIC = flags.DEFINE_bool(
    "deterministic", False, "The same bits from the same machine, slower."
)
_XLA = flags.DEFINE_enum(
    "xla", "auto", ["auto", "on", "off"], "Compile with XLA; auto: on GPUs."
)
_MIXED_PRECISION = flags.DEFINE_enum(
    "mixed_precision",
    "auto",
    ["auto", "float32", "bfloat16", "float16"],
    "Type of arithmetic; auto: bfloat16 on GPUs that have it.",
)
_DISTRIBUTION = flags.DEFINE_enum(
    "distribution",
    "auto",
    ["auto", "one_device", "mirrored", "multi_worker"],
    "Replicas; auto: the machines of TF_CONFIG where it is set, else all "
    "visible GPUs, or one device.",
)
_LOGICAL_DEVICES = flags.DEFINE_integer(
    "logical_devices",
    None,
    "Split the CPU into so many devices, which stand in for a machine's GPUs.",
    lower_bound=1,
)
_MAX_TOKENS = flags.DEFINE_integer(
    "max_tokens_per_replica",
    None,
    "Target slots in a replica's memory at once; accumulation does the rest. "
    "Where it is left out, trials find it on GPUs, and CPUs take 8,192.",
    lower_bound=1,
)
_WARM_START = flags.DEFINE_string(
    "warm_start_from", None, "Checkpoint whose weights a new training takes."
)
_EARLY_STOPPING = flags.DEFINE_integer(
    "early_stopping_evals",
    None,
    "Stop when the validation loss has not improved for so many validations.",
    lower_bound=1,
)
_RECOMPUTE = flags.DEFINE_bool(
    "recompute_grad",
    False,
    "Compute activations again for gradients: less memory, a third slower.",
)
_PROFILE = flags.DEFINE_bool(
    "profile", False, "Trace steps 11 to 20 for TensorBoard's profiler."
)
flags.adopt_module_key_flags(common_flags)


def main():
    problem, hparams = common_flags.problem(), common_flags.hparams()
    if _LOGICAL_DEVICES.value:
        hardware.make_logical_devices(_LOGICAL_DEVICES.value)
    if _DETERMINISTIC.value:
        hardware.make_deterministic()
    options = _options(problem, hparams)
    team = workers.of(options.strategy)
    with team.watch():
        return _train(team, problem, hparams, options)


def _train(team, problem, hparams, options):
    workers.refuse_differences(team, _common(problem, hparams, options))
    folder = _data(team, problem)
    subwords = manifest.open_vocabulary(folder)
    corpora = {
        split: manifest.open_corpus(folder, split, problem.reverse)
        for split in ("train", "validation")
    }
    plan = plans.build(
        corpora["train"].lengths,
        hparams.batching,
        hparams.batch_tokens,
        hparams.max_length,
        _SEED.value,
        hparams.batch_unit,
    )
    output_dir = common_flags.output_dir()
    settings = runs.describe(
        problem,
        common_flags.hparams_set(),
        hparams,
        _SEED.value,
        folder,
        subwords,
        plan.rows_per_batch,
    )
    with contextlib.ExitStack() as stack:
        if team.is_chief:
            stack.enter_context(locks.locked(output_dir))
            runs.start(output_dir, settings, subwords, _hardware(options))
        chief_mark = team.gather(runs.mark(output_dir))[0]
        if not team.is_chief:
            runs.join(output_dir, settings, chief_mark)
        return loop.train(hparams, subwords, plan, corpora, output_dir, options)


def _common(problem, hparams, options):
    """What must be the same for all workers, by the names of flags."""
    common = {
        "problem": problem.requested_name,
        "problem_args": problem.arguments,
        **{f"hparams={key}": value for key, value in vars(hparams).items()},
        **vars(options),
    }
    del common["strategy"]  # of each worker its own
    return common


def _data(team, problem):
    """The folder of the data, which the chief makes where it is missing."""
    data_dir = common_flags.data_dir()
    if not team.is_chief:
        team.gather(0)  # the chief's, when it is done
        return prepare.wait_for(problem, data_dir)
    folder = prepare.prepare(
        problem,
        data_dir,
        common_flags.raw_dir(),
        common_flags.num_workers(),
        common_flags.verify(),
    )
    team.gather(0)
    return folder


def _hardware(options):
    """What this session computes on, and in what, for run.json."""
    return hardware.describe(
        options.strategy,
        hardware.dtype_policy(options.mixed_precision),
        hardware.use_xla(options.xla),
    )


def _options(problem, hparams):
    save_steps = _SAVE_STEPS.value or hparams.save_checkpoints_steps
    return parts.Options(
        train_steps=_TRAIN_STEPS.value or hparams.train_steps,
        eval_every=_EVAL_EVERY.value or save_steps,
        save_checkpoints_steps=save_steps,
        random_seed=_SEED.value,
        save_checkpoints_secs=_SAVE_SECS.value,
        keep_checkpoint_max=_KEEP.value,
        max_tokens_per_replica=_MAX_TOKENS.value,
        eval_bleu_sentences=_EVAL_BLEU.value,
        decode_hparams=problem.search,
        early_stopping_evals=_EARLY_STOPPING.value,
        warm_start_from=_WARM_START.value,
        # Workers must have found each other before any operation runs.
        strategy=hardware.strategy(_DISTRIBUTION.value),
        mixed_precision=_MIXED_PRECISION.value,
        xla=_XLA.value,
        recompute_grad=_RECOMPUTE.value,
        profile=_PROFILE.value,
    )


if __name__ == "__main__":
    common_flags.run(main)
