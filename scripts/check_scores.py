"""Runs the command that a score sheet names for each score, and compares.

    python scripts/check_scores.py --moses=…/mosesdecoder/scripts \\
        --language=de OUT REF [REF …]

Needs perl and the scripts of github.com/moses-smt/mosesdecoder. Prints a line
a score; exits with 1 if one is off by more than 0.01.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from t2t_repro.reports import bleu
from t2t_repro.text import test_sets
from t2t_repro.text.corpora import read_lines

TOLERANCE = 0.01  # multi-bleu.perl prints two decimals
SACREBLEU = {
    "bleu": "-m bleu",
    "bleu_lc": "-m bleu -lc",
    "bleu_intl": "-m bleu -tok intl",
    "bleu_intl_lc": "-m bleu -tok intl -lc",
    "chrf": "-m chrf",
    "ter": "-m ter",
}
SPLIT_HYPHENS = ["perl", "-pe", r"s/(\S)-(\S)/$1 ##AT##-##AT## $2/g"]


def pipe(data, *commands):
    """What comes out of commands that read one another's output."""
    for command in commands:
        data = subprocess.run(
            command, input=data, capture_output=True, check=True
        ).stdout
    return data


def multi_bleu(moses, steps, out, references):
    """multi-bleu.perl of texts that went through `steps`, each a command."""
    with tempfile.TemporaryDirectory() as folder:
        stem = pathlib.Path(folder, "ref")
        for i, reference in enumerate(references):
            text = pipe(reference.read_bytes(), *steps)
            pathlib.Path(f"{stem}{i}").write_bytes(text)
        text = pipe(
            out.read_bytes(),
            *steps,
            ["perl", str(moses / "generic/multi-bleu.perl"), str(stem)],
        )
    return float(re.match(rb"BLEU = ([0-9.]+)", text)[1])


def by_commands(arguments):
    """{key: the score that others' programs give}."""
    out, references = arguments.out, arguments.references
    found = {}
    for key, flags in SACREBLEU.items():
        names = [*map(str, references), "-i", str(out)]
        command = [sys.executable, "-m", "sacrebleu", *names, *flags.split()]
        text = pipe(b"", [*command, "-w", "4", "-f", "json"])
        found[key] = json.loads(text)["score"]
    tokenizer = arguments.moses / "tokenizer"
    tokenize = ["perl", str(tokenizer / "tokenizer.perl"), "-q"]
    tokenize += ["-l", arguments.language]
    plain = ["perl", str(tokenizer / "replace-unicode-punctuation.perl")]
    for key, steps in {
        "bleu_tok": [tokenize],
        "bleu_compound_split": [plain, tokenize, SPLIT_HYPHENS],
    }.items():
        found[key] = multi_bleu(arguments.moses, steps, out, references)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--moses", type=pathlib.Path, required=True)
    parser.add_argument("--language", required=True)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("references", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    ours = bleu.score_sheet(
        list(read_lines(arguments.out)),
        test_sets.from_files(arguments.references).references,
        arguments.language,
    )
    off = []
    for key, theirs in by_commands(arguments).items():
        print(f"{key:20} {ours[key]:9.4f} {theirs:9.4f}")
        if abs(ours[key] - theirs) > TOLERANCE:
            off.append(key)
    if off:
        sys.exit(f"Off by more than {TOLERANCE}: {', '.join(off)}.")


if __name__ == "__main__":
    main()
