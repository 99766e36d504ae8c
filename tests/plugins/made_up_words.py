"""A problem of made-up words, for commands."""

import raw_text

LETTERS = "abcdefghijkl"


def _sentences(count, first):
    """Yield made-up words, with the same in capitals, reversed."""
    for number in range(first, first + count):
        letters = [
            LETTERS[number // 12**place % 12] for place in range(1, 5)
        ] + [LETTERS[number * 7 % 12]]
        yield " ".join(letters), " ".join(reversed(letters)).upper()


def write_raw(folder, train=2_000, validation=50, test=50):
    """Write the files of a parallel_text problem from "xx" to "yy"."""
    splits = {
        "train": _sentences(train, 0),
        "validation": _sentences(validation, train),
        "test": _sentences(test, train + validation),
    }
    return raw_text.write(folder, splits, ("xx", "yy"))


def problem_flags(folder):
    """Return flags that name the problem of write_raw(folder / "raw")."""
    return (
        "--problem=parallel_text",
        "--problem_args=name=made_up,languages=xx-yy,vocab_size=280,"
        "separate_vocabularies=true,source_vocab_size=276",
        f"--raw_dir={folder / 'raw'}",
        f"--data_dir={folder / 'data'}",
    )
