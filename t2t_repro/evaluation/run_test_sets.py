"""Test sets by name or from text, as a run or a problem reads them."""

import sys
from typing import TYPE_CHECKING

from t2t_repro import errors, prepare
from t2t_repro.data import manifest
from t2t_repro.problem import Path, Problem
from t2t_repro.runs import run_json
from t2t_repro.text import test_sets
from t2t_repro.text.test_sets import TestSet

if TYPE_CHECKING:  # it imports TensorFlow
    from t2t_repro.runs.run import Run


def open_test_set(
    run: "Run | None",
    problem: Problem,
    test_set: str | TestSet,
    data_dir: Path | None,
) -> TestSet:
    """Return a test set, normalized, with the directions of the problem.

    Args:
        run: the run that translates it, if any.
        problem: its problem, or that of existing translations.
        test_set: "validation", "test", sacreBLEU's name of a test set, or text.
        data_dir: folder of generated data; None: the run's.

    Raises:
        UserError: there is no such text, or it needs a direction.
    """
    if isinstance(test_set, str):
        return _open_by_name(run, problem, test_set, data_dir)
    if problem.target_languages and not problem.target_language:
        raise errors.UserError(
            f"{problem.requested_name} has several directions, and text has "
            "one. Choose it, for example English to German by "
            "problem.toward('de', 'en')."
        )
    return _of_direction(test_set, problem)


def _of_direction(test_set: TestSet, problem: Problem) -> TestSet:
    """Normalize text; note the direction, if the problem has several."""
    test_set = test_set.normalized(*problem.normalizers)
    if not problem.target_languages:
        return test_set
    languages = problem.source_language, problem.target_language
    return test_set._replace(
        name=test_set.name
        and f"{test_set.name}.{'-'.join(filter(None, languages))}",
        directions={"-".join(languages): len(test_set.references[0])},
    )


def _open_by_name(
    run: "Run | None",
    problem: Problem,
    name: str,
    data_dir: Path | None,
) -> TestSet:
    """Return a split of a problem, or a test set of sacreBLEU."""
    if problem.registered_name and (
        name in problem.splits or not test_sets.is_known(name)
    ):
        if data_dir is None:
            if run is None:
                raise errors.UserError(
                    f"The {name} split of {problem.requested_name} is in a "
                    "folder of generated data; got no data_dir. Give it."
                )
            data_dir = run_json.data_dir(run.settings)
            if data_dir is None:
                raise errors.UserError(
                    f"The {name} split belongs to the data of a run, and "
                    f"{run.output_dir} has none: it is an imported model. Give "
                    "text (--sources and --references), a test set of "
                    "sacreBLEU (--split=wmt14/full), or --data_dir."
                )
        folder = prepare.data_folder(data_dir, problem, name)
        corpus = manifest.open_corpus(folder, name, problem.reverse)
        if run and run_json.data_dir(run.settings):
            _warn_of_other_data(run, folder, name)
        # The stored text is normalized.
        split = TestSet(
            corpus.text("inputs"),
            [corpus.text("targets")],
            name,
            manifest.directions(folder, name),
        )
        if not split.directions:
            return split
        return split.toward(problem.target_language, problem.source_language)
    languages = problem.source_language, problem.target_language
    return _of_direction(test_sets.from_sacrebleu(name, languages), problem)


def _warn_of_other_data(run, folder, split):
    """Warn if a split has changed since the run."""
    if not run_json.is_data_of(run.settings, folder, split):
        print(
            f"The {split} split in {folder} is not that of the data which this "
            "run was trained on: the scores are of the present text.",
            file=sys.stderr,
        )
