"""Word alignments in generated data: links of subwords, checks, batches."""

import dataclasses

import numpy as np
import plans
import pytest
from small_corpora import draw_pairs, generate_corpus

from t2t_repro import errors, prepare
from t2t_repro.data import batches, corpus, manifest
from t2t_repro.problem import build_problem
from t2t_repro.text import parallel_files, word_alignment

PAIRS = [(*pair, "") for pair in draw_pairs(40)]
ALIGNED = ("an bed  can", "dan ebb", "0-1 2-0 2-1")


def test_subwords_of_linked_words_are_linked_in_both_directions(tmp_path):
    # U+200B is a space only to the vocabulary, and U+A0 to no fast_align.
    unclear = [("a\u200bb", "x", "1-0"), ("a \xa0 c", "x", "2-0")]
    train = [*PAIRS, ALIGNED, *unclear, ("bed", "x", " 0-0")]
    contents = generate_corpus(tmp_path, train, [("bed", "x", "")])
    counts = contents["splits"]
    assert (counts["train"]["aligned"], counts["test"]["aligned"]) == (2, 0)
    vocabularies = manifest.open_vocabularies(tmp_path)
    words = [
        word_alignment.words(vocabulary, vocabulary.encode([line])[0])
        for vocabulary, line in zip(vocabularies, ALIGNED, strict=False)
    ]
    expected = [
        (i, j)
        for j, target in enumerate(words[1])
        for i, source in enumerate(words[0])
        if (source, target) in {(0, 1), (2, 0), (2, 1)}
    ]
    index = np.array([7, 40, 41, 42])
    for reverse in (False, True):
        pairs = manifest.open_corpus(tmp_path, "train", reverse)
        of_pair, *sides = pairs.links(index)
        assert set(of_pair) == {1}
        source, target = sides[::-1] if reverse else sides
        assert list(zip(source, target, strict=True)) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0-0 3-1", "An alignment has 3-1, .*3 and 2: "),
        ("0:0", "Pharaoh.* alignment of "),
    ],
)
def test_alignment_of_other_words_is_refused(tmp_path, line, message):
    with pytest.raises(errors.UserError, match=message):
        generate_corpus(tmp_path, [*PAIRS, (*ALIGNED[:2], line)])


def test_other_number_of_alignments_is_refused():
    lines = parallel_files.with_alignments([("a", "b")] * 2, [""])
    message = "The text has 2 lines and the file of word alignments has 1:"
    with pytest.raises(errors.UserError, match=message):
        list(lines)


@pytest.mark.parametrize("batching", ["packed", "bucketed"])
def test_rows_have_the_links_of_their_pairs(tmp_path, batching):
    random = np.random.default_rng(0)
    ids = {side: [] for side in (*corpus.SIDES, corpus.ALIGNMENTS)}
    for _ in range(60):
        sizes = random.integers(1, 20, 2)
        for side, size in zip(corpus.SIDES, sizes, strict=True):
            ids[side].append([*random.integers(2, 99, size).tolist(), 1])
        links = random.integers(0, sizes, (random.integers(9), 2))
        ids[corpus.ALIGNMENTS].append(np.unique(links, axis=0).ravel().tolist())
    corpus.write_shard(tmp_path / "a.arrow", ids, {}, 100)
    pairs = corpus.Corpus([tmp_path / "a.arrow"])
    batch = plans.build(pairs.lengths, batching, 100, 24).batch(0)
    arrays = batches.assemble(pairs, batch)
    expected = np.zeros_like(arrays[corpus.ALIGNMENTS])
    used = np.zeros((batch.num_rows, 2), int)
    for pair, row in zip(batch.pairs, batch.rows, strict=True):
        flat = ids[corpus.ALIGNMENTS][pair]
        for i, j in zip(flat[::2], flat[1::2], strict=True):
            expected[row, used[row, 1] + j, used[row, 0] + i] = 1
        used[row] += [len(ids[side][pair]) for side in corpus.SIDES]
    np.testing.assert_array_equal(arrays[corpus.ALIGNMENTS], expected)
    split = batches.split_rows(arrays, 2, batches.Microbatches(48))
    rows = split[corpus.ALIGNMENTS].reshape(-1, *expected.shape[1:])
    np.testing.assert_array_equal(rows[: len(expected)], expected)
    assert not rows[len(expected) :].any() and expected.any()


def test_problem_reads_alignments_beside_its_text(tmp_path):
    for split, pairs in (
        ("train", [*PAIRS, ALIGNED]),
        ("validation", [ALIGNED]),
        ("test", [ALIGNED[:2]]),
    ):
        columns = zip(*pairs, strict=True)
        for name, lines in zip(("xx", "yy", "align"), columns, strict=False):
            text = "".join(f"{line}\n" for line in lines)
            (tmp_path / f"{split}.{name}").write_text(text)
    arguments = "name=toy,languages=xx-yy,vocab_size=300"
    problem = build_problem("parallel_text", f"{arguments},alignments=align")
    folder = prepare.prepare(problem, tmp_path / "data", tmp_path)
    splits = manifest.require(folder)["splits"]
    aligned = {name: entry.get("aligned") for name, entry in splits.items()}
    assert aligned == {"train": 1, "validation": 1, "test": None}
    (tmp_path / "train.align").write_text("\n" * 40 + "0-0\n")
    message = "is not that of the data.*train"
    with pytest.raises(errors.UserError, match=message):
        prepare.prepare(problem, tmp_path / "data", tmp_path)
    with pytest.raises(errors.UserError, match="instead of corpora"):
        dataclasses.replace(problem, corpora="a")
