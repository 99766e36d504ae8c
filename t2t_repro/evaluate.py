"""Score a model on a test set, or a file of translations.

t2t evaluate --output_dir=… --split=test
t2t evaluate --output_dir=… --all_checkpoints
t2t evaluate --translations=out --references=ref --language=de
"""

import json

from absl import flags

from t2t_repro import evaluate_flags
from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import files, json_files

common_flags.define_decoding_flags()
flags.adopt_module_key_flags(evaluate_flags)
_SAMPLES = flags.DEFINE_integer(
    "bootstrap_samples",
    1_000,
    "Bootstrap samples for 95% intervals and the paired test; 1: neither.",
    1,
)
_ALL = flags.DEFINE_bool(
    "all_checkpoints",
    False,
    "Score each checkpoint of the run that has not been scored yet, and print "
    "a table. The scores are stored in RUN/checkpoint_scores/.",
)
_FILE = flags.DEFINE_string(
    "scores_file", None, "JSON file for all scores and settings."
)
flags.DEFINE_alias("sheet_file", "scores_file")


def main(texts: evaluate_flags.Texts) -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.evaluation import evaluation

    run = None
    if evaluate_flags.has_run():
        from t2t_repro.runs.run import open_run

        run = open_run(common_flags.output_dir())
        run = run._replace(problem=texts.problem)
    if _ALL.value:
        _evaluate_checkpoints(run, texts.test_set)
        return
    translates = run if texts.translations is None else None
    result = evaluation.evaluate(
        run or texts.problem,
        *texts[1:],
        data_dir=common_flags.given_data_dir()
        if run
        else common_flags.data_dir(),
        checkpoint_path=translates and common_flags.checkpoint_paths(run),
        decode_hparams=common_flags.decode_hparams(texts.problem),
        samples=_SAMPLES.value,
    )
    print(result.text)
    if _FILE.value:
        json_files.write(
            files.expand_path(_FILE.value), result.scores | result.details
        )
    print(json.dumps(result.scores))


def _evaluate_checkpoints(run, test_set):
    """Score each checkpoint; print a table, and the headlines as JSON."""
    from t2t_repro.evaluation import evaluation

    stored = evaluation.evaluate_checkpoints(
        run,
        test_set,
        data_dir=common_flags.given_data_dir(),
        decode_hparams=common_flags.decode_hparams(run.problem),
        samples=_SAMPLES.value,
    )
    print(f"{stored.table(run.problem.suite)}\n")
    if _FILE.value:
        json_files.write(files.expand_path(_FILE.value), stored.entries)
    print(json.dumps(dict(stored.curve(run.problem.suite.headline))))


def _read_texts():
    if _FILE.value:
        files.require_replaceable(files.expand_path(_FILE.value))
    if _ALL.value:
        evaluate_flags.require_only_the_run()
    return evaluate_flags.read()


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Required: a run, or --translations": (
                "output_dir",
                "problem",
                "hparams_set",
                "translations",
            ),
            "References": ("references", "split", "sources"),
            "Settings and folders": ("problem_args", "hparams", "data_dir"),
        },
        _read_texts,
    )
