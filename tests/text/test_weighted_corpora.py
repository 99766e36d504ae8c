"""Training text of several corpora, each with a weight."""

import gzip

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyarrow import parquet

from t2t_repro import errors
from t2t_repro.text import weighted_corpora

LANGUAGES = ("en", "de")


def read_corpora(text, folder):
    corpora = weighted_corpora.parse(text)
    held_out = ["validation", "test"]
    return list(weighted_corpora.read(corpora, folder, LANGUAGES, held_out))


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "a.en").write_text("1\n2\n3\n4\n")
    (tmp_path / "a.de").write_text("-1\n-2\n-3\n-4\n")
    crawl = tmp_path / "crawl"
    crawl.mkdir()
    (crawl / "b.en.gz").write_bytes(gzip.compress(b"b\n"))
    with pa.output_stream(crawl / "b.de.zst", compression="zstd") as file:
        file.write(b"-b\n")
    table = pa.table({"de": ["-c", None], "en": ["c\nc", "d"]})
    parquet.write_table(table, crawl / "c.parquet")
    return tmp_path


def test_files_of_a_pattern_are_read_in_the_order_of_names(raw):
    expected = [("b", "-b"), ("c c", "-c"), ("d", "")]
    assert read_corpora("crawl/*", raw) == expected
    assert read_corpora("crawl/c:crawl/b", raw) == [*expected[1:], expected[0]]
    (raw / "crawl" / "d.de").write_text("without its source\n")
    with pytest.raises(errors.UserError, match="neither d.en nor"):
        read_corpora("crawl/*", raw)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [("1", "1234"), ("2", "11223344"), ("0.5", "24"), ("1.5", "122344")]
    + [("0.3", "4"), ("1e-3", "")],
)
def test_weight_is_how_often_a_pair_is_taken(raw, weight, expected):
    pairs = read_corpora(f"a={weight}", raw)
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
        weighted_corpora.parse(text)


def test_pattern_of_a_held_out_split_is_user_error(raw):
    (raw / "test.en.gz").write_bytes(gzip.compress(b"t\n"))
    (raw / "crawl" / "test.en").write_text("t\n")
    (raw / "crawl" / "test.de").write_text("-t\n")
    message = "'\\*' of corpora matches test.en"
    with pytest.raises(errors.UserError, match=message):
        read_corpora("*", raw)
    assert ("t", "-t") in read_corpora("a:crawl/*", raw)


def test_pattern_that_cannot_be_one_is_user_error(raw):
    with pytest.raises(errors.UserError, match=r"crawl\*\*'"):
        weighted_corpora.paths("crawl**", raw, LANGUAGES)


@hypothesis.given(
    st.lists(st.integers(1, 50_000_000), min_size=1, max_size=8),
    st.integers(1, 12),
)
def test_mixed_counts_are_those_of_exact_arithmetic(sizes, temperature):
    """c = m (n/m)^(1/T), so c^T = n m^(T - 1) for the largest size m."""
    counts = weighted_corpora.mixed_counts(sizes, temperature)
    largest = max(sizes)
    for size, count in zip(sizes, counts, strict=True):
        power = size * largest ** (temperature - 1)
        # count is the nearest integer to the root.
        assert (2 * count - 1) ** temperature <= 2**temperature * power
        assert (2 * count + 1) ** temperature >= 2**temperature * power
        assert size <= count <= largest
