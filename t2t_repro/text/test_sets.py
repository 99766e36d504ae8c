"""Test sets of the WMT and others, out of sacreBLEU's store."""

import sacrebleu
from sacrebleu.dataset import DATASETS

from t2t_repro import errors
from t2t_repro.text.corpora import read_lines


def known(name: str) -> bool:
    """Whether sacreBLEU has a test set of this name: "wmt14/full"."""
    return name in DATASETS


def load(
    name: str, source_language: str, target_language: str
) -> tuple[list[str], list[list[str]]]:
    """Sources and references of a test set, downloaded on first use.

    They are kept in ~/.sacrebleu, or in the folder that $SACREBLEU names.

    Returns:
        [lines], and one or more [lines] of references.

    Raises:
        UserError: no such language pair, or it cannot be downloaded.
    """
    dataset = DATASETS[name]
    pair = f"{source_language}-{target_language}"
    if pair not in dataset.langpairs:
        raise errors.UserError(
            f"sacreBLEU's test set {name} has no {pair}; it has "
            f"{', '.join(dataset.langpairs)}."
        )
    try:
        source = dataset.get_source_file(pair)
        references = dataset.get_reference_files(pair)
    except (OSError, SystemExit) as error:  # it exits where a sum is wrong
        folder = sacrebleu.utils.SACREBLEU_DIR
        raise errors.UserError(
            f"sacreBLEU cannot fetch {name} {pair} into {folder}: {error}. "
            "Without internet, copy that folder from a machine that has run "
            f"sacrebleu -t {name} -l {pair} --echo ref; or name plain files "
            "with --sources and --references."
        ) from error
    return list(read_lines(source)), [list(read_lines(p)) for p in references]
