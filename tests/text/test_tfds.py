"""Pairs from datasets in TFDS's own format, written here by its writer."""

import pytest
import tensorflow_datasets as tfds

from t2t_repro import errors, problem, registry
from t2t_repro.text import tfds as tfds_text

TRAIN = [(f"Satz {i} \u2028 ä", f"sentence {i} \u0085 'x'") for i in range(40)]
TEST = [("eins", "one"), ("", "nothing"), ("zwei\r", "two ")]


def write(dataset, data_dir, ordered, shards=1):
    """Makes a translation dataset, configuration de-en, on disk only."""

    class Toy(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        name = dataset
        VERSION = tfds.core.Version("1.0.0")
        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="de-en")]

        def _info(self):
            return self.dataset_info_from_configs(
                features=tfds.features.Translation(("de", "en")),
                disable_shuffling=ordered,
            )

        def _split_generators(self, manager):
            return {
                "train": self._generate_examples(TRAIN),
                "validation": self._generate_examples(TEST[:2]),
                "test": self._generate_examples(TEST),
            }

        def _generate_examples(self, pairs):
            for key, (german, english) in enumerate(pairs):
                yield key, {"de": german, "en": english}

    builder = Toy(data_dir=data_dir, config="de-en")
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=shards)
    )
    return builder


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """TFDS's folder with an ordered dataset and one as wmt14_translate is."""
    folder = tmp_path_factory.mktemp("tfds")
    write("toy_translate", folder, ordered=True)
    write("wmt14_translate", folder, ordered=True)
    return folder


def test_pairs_come_in_order_with_their_text_untouched(data_dir):
    read = tfds_text.read_pairs(
        "toy_translate/de-en", "train", ("de", "en"), data_dir
    )
    assert list(read) == TRAIN
    read = tfds_text.read_pairs(
        "toy_translate/de-en", "test", ("de", "en"), str(data_dir)
    )
    assert list(read) == TEST


def test_the_languages_say_which_side_is_which(data_dir):
    read = tfds_text.read_pairs(
        "toy_translate/de-en", "test", ("en", "de"), data_dir
    )
    assert list(read) == [(english, german) for german, english in TEST]


def test_shards_are_read_one_after_the_other(tmp_path):
    """As they are stored, not a few pairs of each in turn."""
    builder = write("toy_translate", tmp_path, ordered=False, shards=2)
    files = sorted(builder.data_path.glob("*train*tfrecord*"))
    assert len(files) == 2
    stored = []
    for shard in ("train[:1shard]", "train[1shard:]"):
        for example in tfds.as_numpy(builder.as_dataset(split=shard)):
            stored.append((example["de"].decode(), example["en"].decode()))
    assert sorted(stored) == sorted(TRAIN)
    read = tfds_text.read_pairs(
        "toy_translate/de-en", "train", ("de", "en"), tmp_path
    )
    assert list(read) == stored


def test_wmt14_is_read_through_tfds(data_dir):
    registry.load_definitions()
    pairs = [(english, german) for german, english in TEST]
    for name in ("wmt14_ende", "wmt14_ende_rev"):
        built = problem.build(name)
        assert list(built.pairs("test", None, data_dir)) == pairs
    validation = problem.build("wmt14_ende").pairs("validation", None, data_dir)
    assert list(validation) == pairs[:2]


def test_what_cannot_be_prepared_points_to_raw_dir(tmp_path):
    read = tfds_text.read_pairs(
        "no_such_dataset_here/de-en", "train", ("de", "en"), tmp_path
    )
    with pytest.raises(errors.UserError) as raised:
        next(read)
    message = str(raised.value)
    assert "cannot prepare no_such_dataset_here/de-en" in message
    assert str(tmp_path) in message
    assert "--raw_dir" in message


def test_a_download_that_fails_points_to_raw_dir(tmp_path, monkeypatch):
    """TFDS itself goes as far as it can without a network."""

    def refuse(self, url):
        raise ConnectionError("no route to statmt.org")

    for name in ("download", "download_and_extract"):
        monkeypatch.setattr(tfds.download.DownloadManager, name, refuse)
    read = tfds_text.read_pairs(
        "wmt14_translate/de-en", "train", ("de", "en"), tmp_path
    )
    with pytest.raises(errors.UserError, match="no route.*--raw_dir"):
        next(read)
