"""Unusual text through the trainer and the decoder, line by line.

Fuzz tests score any text; those of reports escape it.
"""

import pytest
from forked import ok

HOSTILE = [
    "a b c d",
    "a\0b \0",
    "\x01\x08\x1b[31mred\x7f \x0b\x0c\x1c\x1d\x1e",
    "\u200fעברית \u202eabc\u202c \u00ad\u200b",
    "e\u0301 é ﬁ ½ … Å \u212b ＡＢ",
    "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈",
    "",
    "   ",
    "a\u2028b\u2029c\x85d",
    "\u2581",
    "\u2581 \u2581a",
    "@-@",
    "a ##AT##-##AT## b",
    "&apos; &amp; &lt;b&gt;",
    "a\tb\tc",
    "<pad>",
    "</s>",
    "<unk> <s> <0x0A>",
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(2)>",
    "{{ 7 * 7 }} {% raw %} $x^2$ \\begin{x}",
    "\ufeffa mark",
    "a\rb",
    "x" * 400,
    "word, " * 40,
]
WITH_TEXT = [line for line in HOSTILE if line.strip()]
SEARCH = "beam_size=2,extra_length=3,max_input_length=40"


def lines_of(text):
    """Return the lines of a text; U+0085 and the like end no line."""
    assert text.endswith("\n")
    return text[:-1].split("\n")


def write(path, lines):
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


@pytest.mark.slow
def test_each_line_has_a_translation_of_one_line(
    run, raw_writer, flags_of, tmp_path
):
    """The model has learned a few steps on all of this."""
    raw = raw_writer(tmp_path / "raw", train=200)
    for language in ("xx", "yy"):
        with open(raw / f"train.{language}", "ab") as file:
            for line in [*HOSTILE * 3, "y" * 1_000_000, "z z " * 250_000]:
                file.write(f"{line}\n".encode())
        for split in ("validation", "test"):
            write(raw / f"{split}.{language}", WITH_TEXT)
    ok(
        run(
            "trainer",
            *(f for f in flags_of(tmp_path) if "problem_args" not in f),
            "--problem_args=name=made_up,languages=xx-yy,vocab_size=400",
            "--hparams_set=tiny",
            "--hparams=hidden_size=16,filter_size=16,num_heads=1,"
            "num_hidden_layers=1,batch_tokens=256,max_length=64",
            f"--output_dir={tmp_path / 'run'}",
            "--train_steps=4",
            "--save_checkpoints_steps=2",
            "--eval_bleu_sentences=5",
        )
    )
    flags = (
        f"--output_dir={tmp_path / 'run'}",
        f"--decode_from_file={write(tmp_path / 'hostile.txt', HOSTILE)}",
    )
    path = tmp_path / "out.txt"
    search = f"--decode_hparams={SEARCH}"
    ok(run("decoder", *flags, search, f"--decode_to_file={path}"))
    translated = lines_of(path.read_bytes().decode())
    assert len(translated) == len(HOSTILE)
    assert translated[6] == translated[7] == ""
    assert not any(set(line) & set("\t\r\n") for line in translated)
    beams = ok(run("decoder", *flags, f"{search},return_beams=true"))
    for both, best in zip(lines_of(beams), translated, strict=True):
        assert both.split("\t")[0] == best
        assert both == "" or both.count("\t") == 1
