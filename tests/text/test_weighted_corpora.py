"""Corpora: which files a pattern names, and how often pairs are taken."""

import gzip

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyarrow import parquet

from t2t_repro import errors
from t2t_repro.text import pair_files

LANGUAGES = ("en", "de")


def read(text, folder):
    corpora = pair_files.parse_corpora(text)
    held_out = ["validation", "test"]
    return list(pair_files.read_corpora(corpora, folder, LANGUAGES, held_out))


def write_parquet(path, **columns):
    parquet.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def raw(tmp_path):
    """A folder with corpora of each kind of file."""
    (tmp_path / "a.en").write_text("1\n2\n3\n4\n")
    (tmp_path / "a.de").write_text("-1\n-2\n-3\n-4\n")
    crawl = tmp_path / "crawl"
    crawl.mkdir()
    (crawl / "b.en.gz").write_bytes(gzip.compress(b"b\n"))
    with pa.output_stream(crawl / "b.de.zst", compression="zstd") as file:
        file.write(b"-b\n")
    write_parquet(crawl / "c.parquet", de=["-c", None], en=["c\nc", "d"])
    return tmp_path


def test_files_of_a_pattern_are_read_in_the_order_of_names(raw):
    expected = [("b", "-b"), ("c c", "-c"), ("d", "")]
    assert read("crawl/*", raw) == expected
    assert read("crawl/c:crawl/b", raw) == [*expected[1:], expected[0]]


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("1", "1234"),
        ("2", "11223344"),
        ("0.5", "24"),
        ("1.5", "122344"),
        ("0.3", "4"),
        ("1e-3", ""),
    ],
)
def test_weight_is_how_often_a_pair_is_taken(raw, weight, expected):
    pairs = read(f"a={weight}", raw)
    assert "".join(inputs for inputs, _ in pairs) == expected
    assert all(targets == f"-{inputs}" for inputs, targets in pairs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a::a", "relative to --raw_dir.*got ''"),
        ("=2", "relative to --raw_dir.*got ''"),
        ("/a", "relative to --raw_dir.*got '/a'"),
        ("a=0", "above 0 and at most 1000; got '0' in 'a=0'"),
        ("a=-1", "above 0"),
        ("a=nan", "above 0"),
        ("a=", "above 0.*got ''"),
        ("a=1e999999999", "above 0"),
        ("a=two", "above 0"),
    ],
)
def test_wrong_corpora_are_user_errors(text, message):
    with pytest.raises(errors.UserError, match=message):
        pair_files.parse_corpora(text)


def test_pattern_of_a_held_out_split_is_user_error(raw):
    (raw / "test.en.gz").write_bytes(gzip.compress(b"t\n"))
    (raw / "crawl" / "test.en").write_text("t\n")
    (raw / "crawl" / "test.de").write_text("-t\n")
    with pytest.raises(
        errors.UserError, match="'\\*' of corpora matches test.en"
    ):
        read("*", raw)
    assert ("t", "-t") in read("a:crawl/*", raw)


def test_pattern_that_cannot_be_one_is_user_error(raw):
    with pytest.raises(errors.UserError, match=r"crawl\*\*'"):
        read("crawl**", raw)
    with pytest.raises(errors.UserError, match=r"crawl\*\*'"):
        pair_files.corpus_paths("crawl**", raw, LANGUAGES)


@pytest.mark.parametrize(
    "columns",
    [
        {
            "en": pa.array(["a", "b"]).dictionary_encode(),
            "de": pa.array(["-a", "-b"], pa.string_view()),
        },
        {
            "id": [1, 2],
            "translation": [{"de": "-a", "en": "a"}, {"de": "-b", "en": "b"}],
        },
    ],
)
def test_text_of_parquet_may_have_other_types(tmp_path, columns):
    path = write_parquet(tmp_path / "a.parquet", **columns)
    pairs = list(pair_files.read_parquet(path, LANGUAGES))
    assert pairs == [("a", "-a"), ("b", "-b")]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"en": ["a"]}, r"en \(string\)"),
        ({"en": [1], "de": [2]}, r"en \(int64\), de \(int64\)"),
        ({"both": [{"en": "a"}]}, r"both \(struct<en: string>\)"),
    ],
)
def test_parquet_without_columns_of_text_is_user_error(
    tmp_path, columns, found
):
    path = write_parquet(tmp_path / "a.parquet", **columns)
    message = f"text named en and de, or a column .*; got {found}"
    with pytest.raises(errors.UserError, match=message):
        list(pair_files.read_parquet(path, LANGUAGES))


@hypothesis.given(
    st.lists(st.integers(1, 50_000_000), min_size=1, max_size=8),
    st.integers(1, 12),
)
def test_mixed_counts_are_those_of_exact_arithmetic(sizes, temperature):
    """c = m (n/m)^(1/T), so c^T = n m^(T - 1) for the largest size m."""
    counts = pair_files.mixed_counts(sizes, temperature)
    largest = max(sizes)
    for size, count in zip(sizes, counts, strict=True):
        power = size * largest ** (temperature - 1)
        # count is the nearest integer to the root.
        assert (2 * count - 1) ** temperature <= 2**temperature * power
        assert (2 * count + 1) ** temperature >= 2**temperature * power
        assert size <= count <= largest
