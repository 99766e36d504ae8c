"""Raw parallel text from TensorFlow Datasets."""

from collections.abc import Iterator

from t2t_repro import errors
from t2t_repro.text.corpora import Pair


def read_pairs(
    name: str, split: str, languages: tuple[str, str], download_dir
) -> Iterator[Pair]:
    """Sentence pairs of a TFDS translation dataset, in its stored order.

    Args:
        name: dataset and configuration, "wmt14_translate/de-en".
        split: "train", "validation" or "test".
        languages: the features that are inputs and targets.
        download_dir: TFDS's data_dir; downloads and prepares where needed.

    Raises:
        UserError: the dataset cannot be had.
    """
    # Here, not above: importing TFDS is slow, and few problems need it.
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=str(download_dir))
        builder.download_and_prepare()
    except Exception as error:  # TFDS raises whatever its download raised
        raise errors.UserError(
            f"TensorFlow Datasets cannot prepare {name} in {download_dir}: "
            f"{error}. Without internet, put plain files into a folder and "
            "name it with --raw_dir."
        ) from error
    dataset = builder.as_dataset(
        split=split,
        shuffle_files=False,
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    )
    source, target = languages
    for example in tfds.as_numpy(dataset):
        yield example[source].decode("utf-8"), example[target].decode("utf-8")
