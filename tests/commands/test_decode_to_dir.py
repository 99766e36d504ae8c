"""decoder --decode_to_dir: the same bytes from any workers, also killed."""

import gzip
import json
import random

import pytest
import stored_run
from forked import ROOT, ok
from processes import run_python

RUN = f"--output_dir={stored_run.RUN}"
WORDS = "one two three ten eleven twelve hundred thousand twenty-one".split()
# With scores, which show differences that texts hide.
JSONL = ("--shard_lines=20", "--output_format=jsonl")


def contents(folder):
    """Return {name: bytes} of the translations."""
    return {path.name: path.read_bytes() for path in folder.glob("*.en")}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Return a pattern of files, of 300 and 150 lines, and of none."""
    folder = tmp_path_factory.mktemp("texts")
    draw = random.Random(0)

    def lines(count):
        sizes = [*(draw.randint(0, 6) for _ in range(count - 1)), 1]
        return "\n".join(" ".join(draw.choices(WORDS, k=k)) for k in sizes)

    (folder / "a.en").write_text(lines(300))
    with gzip.open(folder / "b.en.gz", "wt") as file:
        file.write(lines(150))
    (folder / "c.en").touch()
    return folder / "*.en*"


@pytest.fixture(scope="module")
def expected(forked, texts, tmp_path_factory):
    """Return what one process writes."""
    folder = tmp_path_factory.mktemp("expected")
    flags = f"--decode_from_file={texts}", f"--decode_to_dir={folder}"
    printed = ok(forked("decoder", RUN, *flags, *JSONL, "--num_workers=1"))
    assert "All 450 lines of 3 files are there." in printed
    return contents(folder)


def test_translations_are_those_of_a_single_file(forked, expected, texts):
    lines = [json.loads(line) for line in expected["a.en"].splitlines()]
    assert [line["sentence"] for line in lines] == list(range(1, 301))
    path = texts.parent / "a.en"
    single = ok(forked("decoder", RUN, f"--decode_from_file={path}"))
    # Scores may differ in the last digits, since batches do.
    outputs = [line["translations"][0]["text"] for line in lines]
    assert outputs == single.split("\n")[:-1]
    assert len(expected["b.en"].splitlines()) == 150
    assert expected["c.en"] == b""


@pytest.mark.slow
def test_killed_job_continues_in_4_processes(forked, texts, expected, tmp_path):
    flags = f"--decode_from_file={texts}", f"--decode_to_dir={tmp_path}"
    to = RUN, *flags, *JSONL
    usr = f"--usr_dir={ROOT / 'tests' / 'faults' / 'usr'}"
    fault = {"FAULT": "SIGKILL change 60", "DISK": str(tmp_path)}
    killed = forked("decoder", *to, usr, "--num_workers=1", env=fault)
    assert killed.returncode == -9, killed.stderr
    kept = len([*tmp_path.glob("shards/*/" + "[0-9]" * 8)])
    assert 0 < kept < 15 and not contents(tmp_path).get("a.en")
    # A fork of a test may not start processes.
    decoder = "-m", "t2t_repro.decoder", *to
    resumed = ok(run_python(*decoder, "--num_workers=4"))
    assert f"Translated {450 - 20 * kept} lines" in resumed
    assert contents(tmp_path) == expected
