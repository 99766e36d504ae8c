"""Unusual text through every command, line by line."""

import json

import pytest
from forked import ok

from t2t_repro.text import parallel_files

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


@pytest.fixture(scope="module")
def learned(run, raw_writer, flags_of, tmp_path_factory):
    """Return a folder with data/ and run/: a few steps on all of this."""
    folder = tmp_path_factory.mktemp("hostile")
    raw = raw_writer(folder / "raw", train=200)
    for language in ("xx", "yy"):
        with open(raw / f"train.{language}", "ab") as file:
            for line in [*HOSTILE * 3, "y" * 1_000_000, "z z " * 250_000]:
                file.write(f"{line}\n".encode())
        for split in ("validation", "test"):
            write(raw / f"{split}.{language}", WITH_TEXT)
    ok(
        run(
            "trainer",
            *(f for f in flags_of(folder) if "problem_args" not in f),
            "--problem_args=name=made_up,languages=xx-yy,vocab_size=400",
            "--hparams_set=tiny",
            "--hparams=hidden_size=16,filter_size=16,num_heads=1,"
            "num_hidden_layers=1,batch_tokens=256,max_length=64",
            f"--output_dir={folder / 'run'}",
            "--train_steps=4",
            "--save_checkpoints_steps=2",
            "--eval_bleu_sentences=5",
        )
    )
    write(folder / "hostile.txt", HOSTILE)
    return folder


@pytest.fixture(scope="module")
def translated(learned, run):
    """Return the translation of each line."""
    ok(
        run(
            "decoder",
            f"--output_dir={learned / 'run'}",
            f"--decode_hparams={SEARCH}",
            f"--decode_from_file={learned / 'hostile.txt'}",
            f"--decode_to_file={learned / 'out.txt'}",
        )
    )
    return lines_of((learned / "out.txt").read_bytes().decode())


@pytest.mark.slow
def test_each_line_has_a_translation_of_one_line(learned, run, translated):
    assert len(translated) == len(HOSTILE)
    assert translated[6] == translated[7] == ""
    assert not any(set(line) & set("\t\r\n") for line in translated)
    beams = ok(
        run(
            "decoder",
            f"--output_dir={learned / 'run'}",
            f"--decode_hparams={SEARCH},return_beams=true",
            f"--decode_from_file={learned / 'hostile.txt'}",
        )
    )
    for both, best in zip(lines_of(beams), translated, strict=True):
        assert both.split("\t")[0] == best
        assert both == "" or both.count("\t") == 1


@pytest.mark.slow
def test_evaluate_and_report_escape_unusual_text(learned, run):
    out = f"--output_dir={learned / 'run'}"
    text = ok(run("evaluate", out, f"--decode_hparams={SEARCH}"))
    scores = json.loads(lines_of(text)[-1])
    stored = learned / "run" / "translations" / "test.txt"
    assert len(list(parallel_files.read_lines(stored))) == len(WITH_TEXT)
    again = ok(
        run(
            "evaluate",
            f"--translations={stored}",
            f"--references={learned / 'raw' / 'test.yy'}",
            "--language=yy",
            f"--sources={learned / 'raw' / 'test.xx'}",
            f"--scores_file={learned / 'scores.json'}",
        )
    )
    assert json.loads(lines_of(again)[-1]) == pytest.approx(scores)
    assert json.loads((learned / "scores.json").read_text())["chrf"] >= 0
    sentences = ["<script>alert(3)</script>", "a\x01b ]]> &amp;", "$x^$ \u202e"]
    ok(run("report", out, *(f"--sentence={one}" for one in sentences)))
    page = (learned / "run" / "report" / "index.html").read_bytes().decode()
    assert "&lt;script&gt;alert(3)&lt;/script&gt;" in page
    assert "<script" not in page and "<img src=x" not in page
