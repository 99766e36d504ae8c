"""Raw parallel text from TensorFlow Datasets."""

import re
from collections.abc import Iterator
from os import PathLike

from t2t_repro import errors
from t2t_repro.text.parallel_files import Pair

_READ_AT_ONCE = 4_096  # examples; reading one by one takes ten times as long
_NAME = re.compile(r"\w+(/[\w.+-]+)?(:[\d*]+(\.[\d*]+){2})?")


def languages(name: str) -> tuple[str, str]:
    """Return the languages of a TFDS dataset, source first, without download.

    Raises:
        UserError: TFDS does not know the dataset, or it is not parallel text.
    """
    import tensorflow_datasets as tfds

    _require_own(name)
    try:
        info = tfds.builder(name).info
    except Exception as error:  # TFDS raises any error of its import
        reason = str(error).partition("\n")[0]  # hundreds of names follow
        raise errors.UserError(
            f"TensorFlow Datasets does not know {name}: {reason} If it is on "
            "disk only, name its languages: --problem_args=languages=pt-en."
        ) from error
    texts = [
        key
        for key, feature in info.features.items()
        if isinstance(feature, tfds.features.Text)
    ]
    pair = info.supervised_keys or ()
    if len(pair) == 2 and set(pair) <= set(texts):
        return tuple(pair)
    if len(texts) != 2:
        raise errors.UserError(
            f"{name} is not a pair of sentences: its texts are "
            f"{', '.join(texts) or 'none'}. Name the two that are translations "
            "of each other: --problem_args=languages=pt-en."
        )
    return tuple(texts)


def read_pairs(
    name: str,
    split: str,
    languages: tuple[str, str],
    download_dir: str | PathLike,
) -> Iterator[Pair]:
    """Yield the sentence pairs of a TFDS dataset, in its stored order.

    Args:
        name: dataset and configuration, "wmt14_translate/de-en".
        split: TFDS's name of the split, "train" or "train[:1000]".
        languages: the features that are inputs and targets.
        download_dir: TFDS's data_dir, where TFDS downloads what is missing.

    Raises:
        UserError: the dataset cannot be prepared, or lacks the split or a
            language.
    """
    # Imported here: the import is slow, and few problems need it.
    import tensorflow_datasets as tfds

    _require_own(name)
    try:
        builder = tfds.builder(name, data_dir=str(download_dir))
        builder.download_and_prepare()
    except Exception as error:  # TFDS raises any error of its download
        reason = str(error).partition("\nAvailable datasets")[0]
        raise errors.UnavailableError(
            f"TensorFlow Datasets cannot prepare {name} in {download_dir}: "
            f"{reason.rstrip('.')}",
            "Without internet, put plain files into a folder and name it with "
            "--raw_dir.",
        ) from error
    absent = [key for key in languages if key not in builder.info.features]
    if absent:
        raise errors.UserError(
            f"{name} has no feature {', '.join(absent)}; it has "
            f"{', '.join(builder.info.features)}."
        )
    try:
        dataset = builder.as_dataset(
            split=split,
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
        )
    except ValueError as error:
        raise errors.UserError(
            f"{name} has no split {split!r}; it has "
            f"{', '.join(builder.info.splits)}. A slice is "
            "possible: train[:1000]."
        ) from error
    for examples in tfds.as_numpy(dataset.batch(_READ_AT_ONCE)):
        sides = (examples[language].tolist() for language in languages)
        for source, target in zip(*sides, strict=True):
            yield _line(source), _line(target)


def _require_own(name: str) -> None:
    """Refuse NAMESPACE:NAME, for which TFDS downloads code and runs it.

    NAME/data_dir=FOLDER is refused, too: files there name modules to import.

    Raises:
        UserError: the name is not that of a dataset of TFDS itself.
    """
    if not _NAME.fullmatch(name):
        raise errors.UserError(
            "A dataset of TensorFlow Datasets has a name, and perhaps a "
            "configuration and a version, as in wmt14_translate/de-en:1.0.0; "
            f"got {name!r:.200}. Namespaces and arguments are not used: their "
            "code is not TFDS's own."
        )


def _line(text: bytes) -> str:
    """Convert a sentence of TFDS, which may have several lines, to one line."""
    return text.decode("utf-8").replace("\n", " ")
