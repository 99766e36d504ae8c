"""Command lines of tensor2tensor, and what to type instead.

Source: the flags of its last version, 1.15.7: bin/, utils/flags.py,
utils/learning_rate.py, serving/query.py and serving/export.py.
"""

import re
import shlex
from collections.abc import Collection, Iterator, Sequence

from t2t_repro import errors

_REASONS = {  # why flags are not needed here: their names
    "the hparams set names the model": "model",
    "trainer trains and validates, evaluate scores": "schedule",
    "all visible GPUs are used; CUDA_VISIBLE_DEVICES selects some": ""
    "gpu_order worker_gpu",
    "downloads are in --data_dir; --raw_dir names raw text of yours": "tmp_dir",
    "missing data is always generated": "generate_data",
    "--registry_help lists the problems": "exclude_problems only_list",
    "each split is generated as a whole": ""
    "max_cases num_shards task_id task_id_end task_id_start",
    "run and export are complete": "data_dir hparams_set problem t2t_usr_dir",
    "each validation reads the validation split": "eval_steps",
    "--eval_every gives the steps between validations": ""
    "eval_throttle_seconds eval_timeout_mins",
    "a validation translates --eval_bleu_sentences": "eval_run_autoregressive",
    "evaluate --split=test scores the test set": "eval_use_test_set",
    "see --early_stopping_evals, which counts validations": ""
    "eval_early_stopping_metric eval_early_stopping_metric_delta "
    "eval_early_stopping_metric_minimize eval_early_stopping_steps",
    "see --keep_best_checkpoints": "keep_checkpoint_every_n_hours",
    "exporter writes a SavedModel": ""
    "as_text export_as_tfhub export_saved_model "
    "export_saved_model_api_version",
    "--xla=on compiles, as is the default on GPUs": "xla_compile xla_jit_level",
    "see --mixed_precision": "gpu_automatic_mixed_precision",
    "see --distribution": "optionally_use_dist_strat",
    "--profile traces steps": "dbgprofile log_device_placement tfdbg",
    "this is no choice here": ""
    "disable_grappler_optimizations enable_graph_rewriter "
    "inter_op_parallelism_threads intra_op_parallelism_threads "
    "log_step_count_steps worker_gpu_memory_fraction",
    "TF_CONFIG describes several machines": ""
    "master ps_gpu ps_job ps_replicas std_server_protocol sync worker_id "
    "worker_job worker_replicas",
    "translations have the time at which they are made": "keep_timestamp",
    "--decode_to_dir divides a large text": "decode_in_memory decode_shards",
    "evaluate --references scores translations": "decode_reference",
    "evaluate prints cased and uncased scores": "bleu_variant",
    "see evaluate --all_checkpoints, which scores the checkpoints of a run": ""
    "decoder_command event_dir report_zero tag_suffix translations_dir",
    "commands do not wait for checkpoints": "min_steps wait_minutes",
    "TPUs are not supported": ""
    "cloud_tpu_name iterations_per_loop tpu_infeed_sleep_secs tpu_job_name "
    "tpu_num_shards use_guarantee_const_getter use_tpu use_tpu_estimator",
    "services of a cloud are not supported": ""
    "autotune_max_trials autotune_maximize autotune_objective "
    "autotune_parallel_trials cloud_mlengine cloud_mlengine_master_type "
    "cloud_mlengine_model_name cloud_mlengine_model_version hparams_range "
    "job-dir",
}
_OMITTED = {
    name: reason for reason, names in _REASONS.items() for name in names.split()
}
# Flags of its own commands that differ: the flag here, or a reason.
_OF_COMMAND = {
    "avg_all": {
        "model_dir": "--output_dir",
        "n": "--num_last_checkpoints",
        "output_dir": "the run stores its average",
    },
    "eval": {
        name: f"--{name}" for name in ("data_dir", "hparams_set", "problem")
    },
    "translate_all": {
        "alpha": "see --decode_hparams=alpha=0.6",
        "beam_size": "see --decode_hparams=beam_size=4",
        "model_dir": "--output_dir",
        "source": "see --split",
    },
}
_HPARAMS = {
    "learning_rate": "see learning_rate_constant; for noam it is 10 times "
    "tensor2tensor's learning_rate",
    "learning_rate_decay_scheme": "see learning_rate_schedule",
}


def explain(
    command: str, arguments: Sequence[str], known: Collection[str] = ()
) -> str | None:
    """Explain a command line of tensor2tensor, and write the one to type.

    Args:
        command: a name of errors.T2T_COMMANDS or of a command here.
        arguments: flags as they were typed.
        known: names of the flags of a command here.

    Returns:
        Several lines; None if no flag is tensor2tensor's.
    """
    given = list(_flags(arguments))
    # Every flag of a command of tensor2tensor is taken to be tensor2tensor's.
    foreign = [
        name
        for name, _ in given
        if command in errors.T2T_COMMANDS
        or not {name, name.removeprefix("no")} & {*known}
    ]
    table = _OMITTED | {
        name: f"--{to}" for name, to in errors.T2T_NAMES.items()
    }
    table |= _OF_COMMAND.get(command, {})
    if command not in errors.T2T_COMMANDS and not {*foreign} & {*table}:
        return None
    gpus = dict(given).get("worker_gpu") or "1"
    notes, line = [], [f"t2t {errors.T2T_COMMANDS.get(command, command)}"]
    for name, value in given:
        typed = _typed(name, value)
        if name in foreign and (note := table.get(name)):
            is_flag = bool(re.fullmatch(r"--\w+", note))
            notes.append(f"{typed}: {'here ' * is_flag}{note}")
            if is_flag:
                line.append(_typed(note[2:], value))
        elif name in foreign and command not in errors.T2T_COMMANDS:
            notes.append(f"{typed}: there is no such flag")
        else:
            value, more = _value(name, value, gpus)
            notes += more
            if value != "":
                line.append(_typed(name, value))
    lines = ["This is a command line of tensor2tensor.", *notes]
    separator = " " if len(" ".join(line)) < 76 else " \\\n      "
    return "\n  ".join([*lines, "Type instead:", f"  {separator.join(line)}"])


def _typed(name, value):
    """Return a flag for a shell; commands expand a leading ~ themselves."""
    if value is None:
        return f"--{name}"
    home, rest = re.match(r"((?:~/)?)(.*)", value, re.DOTALL).groups()
    return f"--{name}={home}{shlex.quote(rest) if rest else ''}"


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield names and values of --name=value, --name value, and --name."""
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        if equals:
            yield name, value
        elif rest and not rest[0].startswith("-"):
            yield name, rest.pop(0)
        else:
            yield name, None


def _value(name, value, gpus):
    """Return the value of a flag that exists here, too, and notes on it."""
    if name == "problem" and errors.T2T_WMT14.fullmatch(value or ""):
        (problem,) = errors.names_here(value)
        return problem, [f"--problem={value}: here {problem}, the paper's data"]
    if name != "hparams" or not value:
        return value, []
    items, notes = [], []
    for item in re.split(r",(?=\w+=)", value):
        hparam, _, number = item.partition("=")
        if hparam == "batch_size" and (number + gpus).isdigit():
            tokens = int(number) * int(gpus)
            items += [f"batch_tokens={tokens}", "batch_unit=slots"]
            notes.append(
                f"{item} of --hparams: batch_tokens counts the whole job, "
                f"{gpus} GPU{'s' * (gpus != '1')} here"
            )
        elif hparam in _HPARAMS:
            notes.append(f"{item} of --hparams: {_HPARAMS[hparam]}")
        else:
            items.append(item)
    return ",".join(items), notes
