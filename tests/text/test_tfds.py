"""Pairs from datasets in TFDS's format, which TFDS itself writes here."""

import io
import shutil
import tarfile
import urllib.error
import urllib.request

import pytest
import tensorflow_datasets as tfds
from sacrebleu.dataset import DATASETS

from t2t_repro import errors, prepare
from t2t_repro.data import manifest
from t2t_repro.io import files
from t2t_repro.problem import build_problem
from t2t_repro.problems import wmt14
from t2t_repro.text import parallel_files
from t2t_repro.text.sentence_piece import Bpe

TRAIN = [(f"Satz {i} \u2028 ä", f"sentence {i} \u0085 'x'") for i in range(40)]
TEST = [("eins", "one"), ("", "nothing"), ("zwei\r", "two ")]


def write(dataset, data_dir):
    """Write an ordered dataset with the configuration de-en."""
    splits = {"train": TRAIN, "validation": TEST[:2], "test": TEST}
    tfds.dataset_builders.store_as_tfds_dataset(
        name=dataset,
        version="1.0.0",
        features=tfds.features.Translation(("de", "en")),
        split_datasets={
            split: enumerate({"de": pair[0], "en": pair[1]} for pair in pairs)
            for split, pairs in splits.items()
        },
        config="de-en",
        data_dir=data_dir,
        disable_shuffling=True,
    )


def read(data_dir, split="train", languages=("de", "en"), name="toy_translate"):
    return wmt14.read_tfds_pairs(f"{name}/de-en", split, languages, data_dir)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """TFDS's folder with two datasets, one named wmt14_translate."""
    folder = tmp_path_factory.mktemp("tfds")
    write("toy_translate", folder)
    write("wmt14_translate", folder)
    return folder


@pytest.mark.parametrize(
    "name",
    ["huggingface:opus", "kaggle:a/b", "kaggle:123", "a:1.0.0/data_dir=x", ""],
)
def test_dataset_with_code_of_others_is_refused(monkeypatch, tmp_path, name):
    monkeypatch.setattr(tfds, "builder", lambda *_, **__: pytest.fail(name))
    for call in (
        lambda: wmt14.tfds_languages(name),
        lambda: next(wmt14.read_tfds_pairs(name, "train", (), tmp_path)),
    ):
        with pytest.raises(errors.UserError, match="has a name, and perhaps"):
            call()


@pytest.mark.parametrize(
    ("split", "languages", "pairs"),
    [
        ("train", ("de", "en"), TRAIN),
        ("test", ("de", "en"), TEST),
        ("test", ("en", "de"), [pair[::-1] for pair in TEST]),
        ("train[3:5]", ("de", "en"), TRAIN[3:5]),
    ],
)
def test_pairs_are_read_in_order_unchanged(data_dir, split, languages, pairs):
    assert list(read(str(data_dir), split, languages)) == pairs


@pytest.fixture
def official(tmp_path, monkeypatch):
    """{split: [(English, German)]} of the test sets that sacreBLEU stores."""
    stored = {}
    for split, name in (("validation", "wmt13"), ("test", "wmt14/full")):
        folder = tmp_path / "sacrebleu" / name
        folder.mkdir(parents=True)
        monkeypatch.setattr(DATASETS[name], "_outdir", str(folder))
        stored[split] = [(f"{split} {i}", f"{i} davon") for i in range(3)]
        source, reference = (
            "".join(f"{line}\n" for line in side)
            for side in zip(*stored[split], strict=True)
        )
        for field in ("src", "ref", "docid", "genre", "origlang"):
            text = reference if field == "ref" else source
            path = folder / f"{name.replace('/', '_')}.en-de.{field}"
            path.write_text(text)
    return stored


def test_wmt14_trains_on_tfds_and_tests_on_sacrebleu(data_dir, official):
    """TFDS's newstest2014 is shuffled, so its lines are not those of others."""
    for name in ("wmt14_ende", "wmt14_ende_rev"):
        built = build_problem(name)
        train = [(english, german) for german, english in TRAIN]
        assert list(built.pairs("train", None, data_dir)) == train
        for split, pairs in official.items():
            assert list(built.pairs(split, None, data_dir)) == pairs
    assert built.sources("test") == [{"sacrebleu": "wmt14/full"}]


@pytest.mark.parametrize(
    ("name", "arguments", "wanted", "command"),
    [
        (
            "wmt14_enfr_rev",
            "vocab_size=300",
            "train of wmt14_translate/fr-en in TensorFlow Datasets",
            "--problem=wmt14_enfr_rev --problem_args=vocab_size=300 "
            "--archive_file=wmt14_enfr.zip",
        ),
        (
            "wmt14_ende_fairseq",
            "",
            "files of archives of statmt.org",
            "--problem=wmt14_ende_fairseq "
            "--archive_file=wmt14_ende_fairseq.zip",
        ),
    ],
)
def test_problem_without_internet_names_its_text_and_how_to_get_it(
    tmp_path, monkeypatch, name, arguments, wanted, command
):
    """SacreBLEU has stored nothing here, either."""

    def refuse(*args, **kwargs):
        raise urllib.error.URLError("no route to statmt.org")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    for test_set in ("wmt13", "wmt14/full"):
        for place in ("_outdir", "_rawdir"):
            folder = str(tmp_path / "empty" / test_set)
            monkeypatch.setattr(DATASETS[test_set], place, folder)
    with pytest.raises(errors.UserError) as raised:
        prepare.prepare(build_problem(name, arguments), tmp_path)
    message = str(raised.value)
    assert "no route to statmt.org" in message
    assert "evaluate" not in message and "--references" not in message
    to = name.split("_")[1][2:]
    assert f"train.en and train.{to}: {wanted}" in message
    assert f"validation.en and validation.{to}: newstest2013" in message
    assert f"test.en and test.{to}: newstest2014" in message
    assert f"  t2t datagen {command}\n" in message
    assert f"--raw_dir={command.rpartition('=')[2]}" in message
    assert raised.value.see == "no-download"


def checksums(folder):
    contents = manifest.read(folder)
    names = "vocab.model", *(path.name for path in folder.glob("*.arrow"))
    return (
        {key: part["text_sha256"] for key, part in contents["splits"].items()},
        {name: files.sha256(folder / name) for name in names},
    )


def test_archive_gives_the_same_data_on_a_machine_without_internet(
    data_dir, official, tmp_path, monkeypatch, capsys
):
    built = build_problem("wmt14_ende", "vocab_size=290")
    shutil.copytree(data_dir, tmp_path / "here" / "downloads")
    made = prepare.prepare(built, tmp_path / "here")
    path = tmp_path / "kit.zip"
    prepare.archive(built, tmp_path / "here", None, path)
    monkeypatch.setattr(Bpe, "learn", None)  # the archive has the vocabulary
    for name in ("wmt14_ende", "wmt14_ende_rev"):  # X_rev has the same data
        again = build_problem(name, "vocab_size=290")
        there = prepare.prepare(again, tmp_path / "there", path)
        assert checksums(there) == checksums(made)
    assert "The data is there" in capsys.readouterr().out
    monkeypatch.undo()
    other = build_problem("wmt14_ende", "vocab_size=289")
    prepare.prepare(other, tmp_path / "other", path)
    assert "Learning 289 subwords" in capsys.readouterr().out


def test_archive_of_text_that_is_not_in_two_files_is_refused(tmp_path):
    (tmp_path / "raw").mkdir()
    for split in ("news", "validation", "test"):
        for side in ("en", "de"):
            text = f"some {split} in {side}\n" * 9
            (tmp_path / "raw" / f"{split}.{side}").write_text(text)
    arguments = "name=a,languages=en-de,corpora=news=2,vocab_size=290"
    built = build_problem("parallel_text", arguments)
    source = built, tmp_path / "data", tmp_path / "raw"
    prepare.prepare(*source)
    with pytest.raises(errors.UserError, match="Copy .*/raw instead"):
        prepare.archive(*source, tmp_path / "kit.zip")
    assert {path.name for path in tmp_path.iterdir()} == {"data", "raw"}


@pytest.fixture
def statmt(tmp_path, monkeypatch):
    """Archives of three corpora, at URLs of files; their English lines."""
    archives, lines = {}, []
    for number, member in enumerate(wmt14._ARCHIVES):
        path = tmp_path / f"{number}.tgz"
        english = [f"{number} ,, {i}\u200b’ ( x )" for i in range(60)]
        with tarfile.open(path, "w:gz") as tar:
            for side in ("en", "de"):
                text = "".join(f"{line} {side}\n" for line in english).encode()
                entry = tarfile.TarInfo(f"{member}.{side}")
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text))
        lines += english
        archives[member] = path.as_uri(), files.sha256(path)
    monkeypatch.setattr(wmt14, "_ARCHIVES", archives)
    return lines


def test_cleaned_wmt14_has_the_pairs_of_fairseq(tmp_path, official, statmt):
    built = build_problem("wmt14_ende_fairseq")
    pairs = list(built.pairs("train", None, tmp_path))
    kept = [line for i, line in enumerate(statmt, 1) if i % 100]
    assert len(pairs) == len(kept) == 179
    for (source, target), line in zip(pairs, kept, strict=True):
        number, _, index = line.split()[:3]
        assert source == f'{number} ,, {index[:-2]} " (x) en'
        assert target == f'{number} ,, {index[:-2]} " (x) de'
    assert list(built.pairs("test", None, tmp_path)) == official["test"]
    assert (built.max_length, built.max_length_ratio) == (251, 1.5)
    assert {s["url"] for s in built.sources("train")} == {
        url for url, _ in wmt14._ARCHIVES.values()
    }


@pytest.mark.parametrize("member", ["absent.en", "folder"])
def test_archive_without_a_member_is_user_error(tmp_path, statmt, member):
    url, sha256 = next(iter(wmt14._ARCHIVES.values()))
    file = parallel_files.RawFile("train.en", url, sha256, member)
    with pytest.raises(errors.UserError, match=f"0.tgz is damaged.*{member}"):
        parallel_files.download(file, tmp_path)
    assert not (tmp_path / "train.en").exists()


def test_failed_download_is_user_error_that_suggests_raw_dir(
    tmp_path, monkeypatch
):
    def refuse(self, url):
        raise ConnectionError("no route to statmt.org")

    for name in ("download", "download_and_extract"):
        monkeypatch.setattr(tfds.download.DownloadManager, name, refuse)
    with pytest.raises(errors.UserError, match="no route.*--raw_dir"):
        next(read(tmp_path, name="wmt14_translate"))


@pytest.mark.parametrize(
    ("split", "languages", "message"),
    [
        ("dev", ("de", "en"), "no split 'dev'; it has .*train.*A slice"),
        ("train", ("de", "fr"), "no feature fr; it has de, en"),
    ],
)
def test_absent_split_or_language_is_error(data_dir, split, languages, message):
    with pytest.raises(errors.UserError, match=message):
        next(read(data_dir, split, languages))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnist", "mnist is not a pair of sentences: its texts are none"),
        ("no_such_data", "does not know no_such_data.*languages=pt-en"),
    ],
)
def test_languages_of_other_datasets_are_user_error(name, message):
    with pytest.raises(errors.UserError, match=message) as raised:
        wmt14.tfds_languages(name)
    assert "\n" not in str(raised.value)


def test_tfds_translate_reads_slices_of_a_local_dataset(data_dir):
    arguments = (
        "name=toy_translate/de-en,languages=de-en,vocab_size=300,"
        "train=train[4:],validation=train[:4]"
    )
    built = build_problem("tfds_translate", arguments)
    assert built.data_name == "tfds_translate_toy_translate_de-en"
    assert list(built.pairs("train", None, data_dir)) == TRAIN[4:]
    assert list(built.pairs("validation", None, data_dir)) == TRAIN[:4]
    assert list(built.pairs("test", None, data_dir)) == TEST
    assert built.sources("train") == [
        {"tfds": "toy_translate/de-en", "split": "train[4:]"}
    ]


def test_stored_arguments_of_tfds_translate_need_no_tfds(monkeypatch):
    name = "ted_hrlr_translate/pt_to_en"
    built = build_problem("tfds_translate_rev", f"name={name}")
    assert (built.source_language, built.target_language) == ("en", "pt")

    def refuse(name):
        raise AssertionError("TFDS was asked again")

    monkeypatch.setattr(wmt14, "tfds_languages", refuse)
    again = build_problem("tfds_translate_rev", built.arguments)
    assert again == built


@pytest.mark.parametrize("languages", ["pten", "pt-en-de", "pt-", "a:b:c"])
def test_tfds_translate_without_two_languages_is_user_error(languages):
    message = f"as in pt-en or en:zh-cn; got '{languages}'"
    with pytest.raises(errors.UserError, match=message):
        build_problem("tfds_translate", f"name=a/b,languages={languages}")
