"""Division of a text into splits that share no sentence."""

import random

import pytest

from t2t_repro import errors
from t2t_repro.text import pair_files, parallel_files

# Sentence i // 2 translates to i // 3: each has several translations.
PAIRS = sorted({(f"source {i // 2}", f"target {i // 3}") for i in range(120)})
LANGUAGES = ("en", "de")


def divide(folder, pairs, held_out=0):
    """Return {split: pairs}, and the counts."""
    folder.mkdir()
    file = pair_files.PairFile(pair_files.STDIN, LANGUAGES)
    counts = pair_files.Division(file, held_out).divide(pairs, folder)
    assert len(list(folder.iterdir())) == 6
    splits = {}
    for split in ("train", "validation", "test"):
        paths = (folder / f"{split}.{name}.zst" for name in LANGUAGES)
        splits[split] = list(parallel_files.read_pairs(*paths))
        assert counts[split] == len(splits[split])
    return splits, counts


def test_splits_share_no_sentence_and_each_pair_is_counted(tmp_path):
    variants = [(f"  {s.upper()}", t) for s, t in PAIRS[::2]]
    dirty = [*PAIRS, *PAIRS[:9], *variants, ("a", " "), ("", "b")]
    splits, counts = divide(tmp_path / "a", dirty, held_out=7)
    assert len(splits["validation"]) == len(splits["test"]) == 7
    for side in range(2):
        sentences = [
            {p[side].strip().lower() for p in split}
            for split in splits.values()
        ]
        assert len(set.union(*sentences)) == sum(map(len, sentences))
    assert (counts["empty_side"], counts["repeated"]) == (2, 9)
    assert counts["read"] == len(dirty) == sum(counts.values()) - counts["read"]
    again, _ = divide(
        tmp_path / "b", random.Random(1).sample(dirty, len(dirty)), 7
    )
    assert {key: set(part) for key, part in again.items()} == {
        key: set(part) for key, part in splits.items()
    }


def test_every_pair_without_a_held_out_sentence_is_kept(tmp_path):
    pairs = [(f"source {i}", f"target {i}") for i in range(60)]
    splits, _ = divide(tmp_path / "a", pairs)
    assert [len(split) for split in splits.values()] == [54, 3, 3]
    assert splits["train"] == [p for p in pairs if p in splits["train"]]
    assert sorted(sum(splits.values(), [])) == sorted(pairs)


@pytest.mark.parametrize(
    ("pairs", "held_out", "message"),
    [
        (PAIRS, 60, "80 different pairs.*too few to hold out 60"),
        (PAIRS[:9], 0, "9 different pairs.*too few to hold out 1 "),
        ([("a", str(i)) for i in range(50)], 1, "too few to hold out 1 "),
    ],
)
def test_text_that_is_too_small_is_refused(tmp_path, pairs, held_out, message):
    with pytest.raises(errors.UserError, match=message):
        divide(tmp_path / "a", pairs, held_out)


def test_text_is_divided_again_if_its_file_changes(tmp_path):
    path, text = (
        tmp_path / "pairs.tsv",
        "".join(f"{i}\t{i}\n" for i in range(40)),
    )
    file = pair_files.PairFile(str(path), LANGUAGES)

    def count(held_out=0):
        folder = pair_files.Division(file, held_out).folder(
            tmp_path / "a" / "b"
        )
        return len(list(parallel_files.read_lines(folder / "train.de.zst")))

    path.write_text(text)
    assert count() == count() == 36
    path.write_text(f"{text}new\tnew\n")
    assert count() == 37
    path.unlink()  # as standard input, which is read once
    assert count() == 37
    with pytest.raises(errors.UserError, match="pairs.tsv: it does not exist"):
        count(held_out=3)


def test_empty_sources_are_kept_where_the_problem_allows_them(tmp_path):
    pairs = [("", str(i)) for i in range(40)]
    file = pair_files.PairFile(pair_files.STDIN, LANGUAGES)
    counts = pair_files.Division(file, 2, True).divide(pairs, tmp_path)
    assert (counts["train"], counts["test"], counts["shared"]) == (36, 2, 0)
