"""Edited files of pairs to score and of prefixes, as the decoder reads them."""

import types

import pytest
from file_strategies import LINES, edited_bytes, read_or_refuse
from hypothesis import given
from hypothesis import strategies as st

from t2t_repro import errors
from t2t_repro.cli import decoder_flags

PAIRS = "a b\tc d\n\te\r\né \u2028\t\u0085\n".encode()
# A byte order mark that begins a file is not part of its text.
FIELDS = LINES.map(
    lambda line: line.replace("\t", " ").rstrip("\r").lstrip("\ufeff")
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("files") / "pairs.txt"


def read_pairs(path):
    """Return the pairs of a file, as the flag --score_file names it."""
    return decoder_flags.Options(score_file=str(path)).read_pairs()


@given(edited_bytes(PAIRS))
def test_edited_file_of_pairs_is_read_or_named_by_line(path, content):
    path.write_bytes(content)
    pairs = []
    try:
        for pair in read_pairs(path):
            assert len(pair) == 2 and not set("".join(pair)) & set("\t\n")
            pairs.append(pair)
    except errors.UserError as error:
        assert f"{path}, line {len(pairs) + 1}" in str(error)
    else:
        assert len(pairs) == len(content.removesuffix(b"\n").split(b"\n")) or (
            not content and not pairs
        )


@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=5))
def test_pairs_are_read_as_written(path, pairs):
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in pairs).encode())
    assert list(read_pairs(path)) == pairs


@given(edited_bytes(PAIRS), st.integers(0, 4))
def test_prefix_file_has_a_line_for_each_input_or_is_refused(
    path, content, total
):
    sources = path.with_name("in")
    sources.write_text("a b\n" * total)
    options = decoder_flags.Options(
        decode_from_file=str(sources), decode_prefix_file=str(path)
    )

    def read(_):
        options.count_lines(types.SimpleNamespace(target_languages=()))
        return list(options.read_beside("decode_prefix_file"))

    found = read_or_refuse(read, path, content)
    assert found is None or len(found) == total
    assert decoder_flags.Options().read_beside("decode_prefix_file") is None


@pytest.mark.parametrize("error", [BrokenPipeError, MemoryError, SystemExit])
def test_finished_lines_are_kept_after_any_error(tmp_path, error):
    options = decoder_flags.Options(decode_to_file=str(tmp_path / "out"))
    with pytest.raises(error), options.open_output() as write:
        write("finished")
        raise error
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]
    assert (tmp_path / "out.partial").read_text() == "finished\n"
