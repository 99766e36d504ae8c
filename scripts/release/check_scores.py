"""Check of every score against the command that evaluate names for it.

    python -m scripts.release.check_scores --moses=…/mosesdecoder/scripts \\
        --language=de [--tokenized] OUT REF [REF …]

It needs bash, Perl and the scripts of github.com/moses-smt/mosesdecoder. It
prints one line per score. The exit status is 1 if a score differs by more than
0.01.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from scripts.benchmarks import harness
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import Suite
from t2t_repro.text import test_sets
from t2t_repro.text.parallel_files import read_lines

TOLERANCE = 0.01  # multi-bleu.perl prints two decimals


class Shell:
    """Folder with the files OUT, REF0, REF1 …, in which commands run."""

    def __init__(self, folder, out, references, moses):
        self._folder = folder
        shutil.copy(out, folder / "OUT")
        self._references = [f"REF{i}" for i in range(len(references))]
        for name, reference in zip(self._references, references, strict=True):
            shutil.copy(reference, folder / name)
        # sacrebleu is among them.
        programs = pathlib.Path(sys.executable).parent
        folders = programs, moses / "tokenizer", moses / "generic"
        path = [*map(str, map(pathlib.Path.absolute, folders))]
        self._env = os.environ | {
            "PATH": os.pathsep.join([*path, os.environ["PATH"]])
        }

    def score(self, check) -> float | None:
        """Return the score that a metric's check prints.

        It is None if the check cannot read several references.
        """
        if "multi-bleu.perl" in check:
            *steps, command = check.split("; ")
            # multi-bleu.perl REF.tok reads REF.tok0, REF.tok1 and so on.
            for name in ("OUT", *self._references) if steps else ():
                tokens = re.sub(r"(\D+)", r"\1.tok", name)
                self._run(f"({steps[0]}) < {name} > {tokens}")
            return float(re.match("BLEU = ([0-9.]+)", self._run(command))[1])
        if "awk" in check and len(self._references) > 1:
            return None  # it reads one reference
        check = re.sub(r"\bREF\b", " ".join(self._references), check)
        if "|" not in check and check.startswith("sacrebleu "):
            return json.loads(self._run(f"{check} -w 4 -f json"))["score"]
        return float(self._run(check).split()[-1])

    def _run(self, command):
        finished = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self._folder,
            env=self._env,
            capture_output=True,
            encoding="utf-8",
        )
        if finished.returncode:
            sys.exit(f"{command}\n{finished.stderr}")
        return finished.stdout


def main():
    parser = harness.argument_parser(__doc__)
    parser.add_argument("--moses", type=pathlib.Path, required=True)
    parser.add_argument("--language", required=True)
    parser.add_argument("--tokenized", action="store_true")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("references", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    suite = Suite(language=arguments.language, tokenized=arguments.tokenized)
    ours = scores.score(
        suite,
        list(read_lines(arguments.out)),
        test_sets.from_files(arguments.references).references,
    )
    differing = []
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(
            pathlib.Path(folder),
            arguments.out,
            arguments.references,
            arguments.moses,
        )
        for key, metric in suite.build().items():
            theirs = shell.score(metric.check)
            if theirs is None:
                continue
            mine = ours[key].value
            print(f"{key:20} {mine:9.4f} {theirs:9.4f}", flush=True)
            if abs(mine - theirs) > TOLERANCE:
                differing.append(key)
    if differing:
        sys.exit(f"Off by more than {TOLERANCE}: {', '.join(differing)}.")


if __name__ == "__main__":
    main()
