"""The parsing problems, on trees that are not from the treebank."""

import gzip

import pytest

from t2t_repro import errors, hparam
from t2t_repro.problem import build_problem

CAT = "( (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)) )\n"
DOG = """
( (S
    (NP-SBJ-1 (NNP Rex))
    (VP (VBZ wants)
      (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB play)))))
    (. .)))
"""
PAIRS = {
    CAT: ("The cat sleeps .", "(S (NP XX XX )NP (VP XX )VP . )S"),
    DOG: ("Rex wants to play .",)
    + ("(S (NP XX )NP (VP XX (S (VP XX (VP XX )VP )VP )S )VP . )S",),
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def pairs(split, raw_dir, name="wsj_parsing"):
    return list(build_problem(name).pairs(split, raw_dir, "unused"))


@pytest.fixture
def plain(tmp_path):
    """Files with one tree a line, the treebank's layout, and compression."""
    write(tmp_path / "train.mrg", CAT + CAT)
    write(tmp_path / "validation.mrg", DOG)
    write(tmp_path / "test.mrg.gz", DOG + CAT)
    return tmp_path


def test_files_of_splits_are_read(plain):
    assert pairs("train", plain) == [PAIRS[CAT]] * 2
    assert pairs("validation", str(plain)) == [PAIRS[DOG]]
    assert pairs("test", plain) == [PAIRS[DOG], PAIRS[CAT]]


@pytest.mark.parametrize("folder_name", ["", "wsj", "parsed/mrg/wsj"])
def test_splits_are_read_from_their_sections(tmp_path, folder_name):
    folder = tmp_path / folder_name
    for section in range(25):
        write(folder / f"{section:02}" / f"wsj_{section:02}01.mrg", DOG)
    write(folder / "02" / "wsj_0200.mrg", CAT)
    write(folder / "02" / "readme", "no tree")
    write(folder / "23" / "wsj_2302.mrg.gz", CAT)
    assert pairs("train", tmp_path) == [PAIRS[CAT], *[PAIRS[DOG]] * 20]
    assert pairs("validation", tmp_path) == [PAIRS[DOG]]
    assert pairs("test", tmp_path) == [PAIRS[DOG], PAIRS[CAT]]


def test_missing_section_is_user_error(tmp_path):
    write(tmp_path / "02" / "wsj_0201.mrg", CAT)
    with pytest.raises(errors.UserError, match=f"file in {tmp_path}/03"):
        pairs("train", tmp_path)


def test_extra_trees_are_read_for_training_only(plain):
    write(plain / "extra" / "b.mrg.gz", f"(S1 {CAT.strip()})\n")
    write(plain / "extra" / "a.mrg", DOG)
    write(plain / "extra" / "a.mrg.gz", DOG)  # as `gunzip -k` leaves them
    result = pairs("train", plain, "wsj_parsing_semi")
    assert result == [PAIRS[CAT], PAIRS[CAT], PAIRS[DOG], PAIRS[CAT]]
    for split in ("validation", "test"):
        assert pairs(split, plain, "wsj_parsing_semi") == pairs(split, plain)


def test_missing_treebank_is_user_error_that_suggests_raw_dir(tmp_path):
    with pytest.raises(errors.UserError, match="train.mrg .*--raw_dir"):
        pairs("train", None)
    with pytest.raises(errors.UserError, match="neither train.mrg nor"):
        pairs("train", tmp_path)


@pytest.mark.parametrize(
    ("name", "vocab_size"),
    [("wsj_parsing", 16_000), ("wsj_parsing_semi", 32_000)],
)
def test_settings_are_those_of_section_6_3(name, vocab_size):
    built = build_problem(name)
    assert (built.vocab_size, built.max_length) == (vocab_size, 512)
    search = hparam.DecodeHParams().override(built.decode_hparams)
    found = search.beam_size, search.alpha, search.extra_length
    assert found == (21, 0.3, 300) and search.long_inputs == "refuse"
