"""Unusual text through the decoder, line by line.

Fuzz tests score any text; those of reports escape it.
"""

from file_strategies import UNUSUAL
from forked import ok
from stored_run import RUN

LINES = ["", "a b c d", "@-@", "&apos; <pad> </s> <0x0A>", "x" * 400]
LINES += ["word, " * 40, UNUSUAL, *UNUSUAL]
SEARCH = "beam_size=2,extra_length=3,max_input_length=40,return_beams=true"


def test_each_line_has_a_translation_of_one_line(run, tmp_path):
    (tmp_path / "in").write_bytes("".join(f"{x}\n" for x in LINES).encode())
    flags = [
        f"--output_dir={RUN}",
        f"--decode_from_file={tmp_path / 'in'}",
        f"--decode_to_file={tmp_path / 'out'}",
        f"--decode_hparams={SEARCH}",
    ]
    ok(run("decoder", *flags))
    # U+0085 and the like end no line.
    *beams, end = (tmp_path / "out").read_bytes().decode().split("\n")
    assert len(beams) == len(LINES) and end == ""
    assert beams[0] == "\t"
    for line in beams:
        assert line.count("\t") == 1 and "\r" not in line
