"""What decoder writes: a line for each input, beams, scores, attention."""

import json
import re

import pytest
from file_strategies import UNUSUAL
from forked import ROOT, ok
from stored_run import RUN

from scripts.release import cold_start

NUMBERS = f"--output_dir={RUN}"
FAULTS = ROOT / "tests" / "faults" / "usr"


def test_alignments_are_written_beside_translations_and_scores(run, tmp_path):
    lines = "two hundred\n\nforty-one thousand\n"
    path = tmp_path / "alignments"
    flags = f"--alignments={path}", "--alignment_layer=2"
    texts = ok(run("decoder", NUMBERS, *flags, stdin=lines)).split("\n")[:-1]
    aligned = path.read_text().split("\n")[:-1]
    assert texts[1] == aligned[1] == "" and len(texts) == len(aligned) == 3
    assert all(re.fullmatch(r"\d+-\d+( \d+-\d+)*", x) for x in aligned[::2])
    traces = ok(run("decoder", NUMBERS, "--decode_attention", stdin=lines))
    assert [
        json.loads(trace)["outputs"] for trace in traces.splitlines()[::2]
    ] == texts[::2]
    rows = zip(lines.split("\n")[:-1], texts, strict=True)
    (tmp_path / "pairs").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    again = f"--score_file={tmp_path / 'pairs'}", *flags
    assert len(ok(run("decoder", NUMBERS, *again)).split("\n")) == 4
    assert path.read_text().split("\n")[:-1] == aligned


def test_decoder_shows_beams_and_scores(trained, run, tmp_path):
    out = f"--output_dir={trained / 'run'}"
    beams = "--decode_hparams=beam_size=3,return_beams=true"
    text = ok(run("decoder", out, beams, stdin="a b c d e\n"))
    assert text.count("\t") == 2
    # Neither bytes that are not UTF-8 nor a long line end the conversation.
    typed = "a b c\n\udcff\na b c d e f g h\nd e\n"
    few = "--decode_hparams=long_inputs=refuse,max_input_length=8"
    talk = ok(run("decoder", out, "--decode_interactive", few, stdin=typed))
    assert len(talk.splitlines()) == 4
    assert talk.splitlines()[2].endswith(" subwords are more than 8.")
    score, translation = talk.splitlines()[0].strip().split("  ", 1)
    assert float(score) < 0
    (tmp_path / "pairs.txt").write_text(f"a b c\t{translation}\n")
    pairs = f"--score_file={tmp_path / 'pairs.txt'}"
    total, length = ok(run("decoder", out, pairs)).split("\t")
    assert float(total) < float(score)  # a sum, against a mean of sorts
    again, same, subwords = ok(
        run("decoder", out, pairs, "--score_subwords")
    ).split("\t")
    assert int(same) == int(length)
    subwords = subwords.split()
    assert len(subwords) == 2 * int(length) and subwords[-2] == "</s>"
    for value in (float(again), sum(map(float, subwords[1::2]))):
        assert value == pytest.approx(float(total), abs=1e-4)


def test_decoder_continues_prefixes(trained, run, tmp_path):
    for name, text in (("in", "a b c\nd e\n"), ("begin", "b a\n\n")):
        (tmp_path / name).write_text(text)
    flags = [
        f"--output_dir={trained / 'run'}",
        f"--decode_from_file={tmp_path / 'in'}",
        f"--decode_prefix_file={tmp_path / 'begin'}",
    ]
    assert ok(run("decoder", *flags)).startswith("b a")


@pytest.mark.slow
def test_decoder_reads_side_inputs(run, tmp_path):
    """The documented rule, and a number of subwords for each line."""
    page = (ROOT / "docs" / "searching.md").read_text("utf-8")
    cold_start.write_files(page, tmp_path)
    (tmp_path / "in").write_text("two\ntwo\n")
    (tmp_path / "numbers").write_text("\n9\n")
    flags = [
        f"--usr_dir={tmp_path / 'definitions'}",
        f"--decode_from_file={tmp_path / 'in'}",
        f"--decode_side_file={tmp_path / 'numbers'}",
    ]
    reading = "--decode_hparams=beam_size=1,rules=at_least"
    free, longer = ok(run("decoder", NUMBERS, *flags, reading)).splitlines()
    assert free == "zwei" and len(longer) > len(free)


def test_stopped_translation_keeps_finished_lines(run, tmp_path):
    lines = ["two", "two hundred", "", "two hundred thousand and one"]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "out").write_text("older\n")
    flags = [
        NUMBERS,
        f"--decode_from_file={tmp_path / 'in'}",
        f"--decode_to_file={tmp_path / 'out'}",
        f"--alignments={tmp_path / 'links'}",
        "--decode_hparams=beam_size=1,batch_tokens=1",  # a line is a batch
    ]
    whole = ok(run("decoder", *flags[:2], *flags[4:])).split("\n")
    for name, code, partial in (
        ("SIGTERM", 143, "out.partial"),
        ("SIGHUP", 129, "out.partial2"),
    ):
        env = {"FAULT": f"{name} batch 3", "DISK": str(tmp_path)}
        stopped = run("decoder", f"--usr_dir={FAULTS}", *flags, env=env)
        assert stopped.returncode == code, stopped.stderr
        assert "Interrupted: 3 of 4 lines are translated." in stopped.stderr
        path = tmp_path / partial
        assert f"What is finished is in {path}; " in stopped.stderr
        # The shortest line is the last one.
        assert path.read_text().split("\n") == ["", *whole[1:]]
    assert (tmp_path / "out").read_text() == "older\n"
    aligned = (tmp_path / "links.partial").read_text().split("\n")
    assert [bool(line) for line in aligned] == [False, True, False, True, False]
    assert not list(tmp_path.glob("*.tmp"))


def test_each_line_of_unusual_text_has_a_translation_of_one_line(run, tmp_path):
    """Fuzz tests score any text; those of reports escape it."""
    lines = ["", "a b c d", "@-@", "&apos; <pad> </s> <0x0A>", "x" * 400]
    lines += ["word, " * 40, UNUSUAL, *UNUSUAL]
    (tmp_path / "in").write_bytes("".join(f"{x}\n" for x in lines).encode())
    search = "beam_size=2,extra_length=3,max_input_length=40,return_beams=true"
    flags = [
        NUMBERS,
        f"--decode_from_file={tmp_path / 'in'}",
        f"--decode_to_file={tmp_path / 'out'}",
        f"--decode_hparams={search}",
    ]
    ok(run("decoder", *flags))
    # U+0085 and the like end no line.
    *beams, end = (tmp_path / "out").read_bytes().decode().split("\n")
    assert len(beams) == len(lines) and end == ""
    assert beams[0] == "\t"
    for line in beams:
        assert line.count("\t") == 1 and "\r" not in line
