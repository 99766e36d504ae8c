"""evaluate: where test sets come from, and problems that change their text."""

import json
import shutil

import pytest
from forked import error, ok
from made_up_words import problem_flags
from processes import run_python

from t2t_repro.io import files

NOWHERE = {"http_proxy": "http://127.0.0.1:9"}  # a port that nobody listens at
FILES = {"sources": "both.xx", "references": "ref"}
CALM = '''
from t2t_repro.registry import problems
from t2t_repro.problems.parallel_text import ParallelText


@problems.register("calm_text")
class CalmText(ParallelText):
    """parallel_text whose source may be shouted."""

    tokenized = True

    def normalize(self, line, language):
        return line.lower() if language == "xx" else line
'''


@pytest.fixture(scope="module")
def calm(trained, tmp_path_factory):
    """Return flags of a run whose problem makes its source lowercase."""
    folder = tmp_path_factory.mktemp("calm")
    (folder / "usr").mkdir()
    (folder / "usr" / "calm.py").write_text(CALM)
    shutil.copytree(trained / "run", folder / "run")
    path = folder / "run" / "run.json"
    files.write_json(path, files.read_json(path) | {"problem": "calm_text"})
    return [f"--output_dir={folder / 'run'}", f"--usr_dir={folder / 'usr'}"]


def test_sacrebleu_test_set_is_scored_without_a_model(tmp_path):
    lines = "".join(f"line {i} of some more lines\n" for i in range(20))
    folder = tmp_path / "store" / "wmt14" / "full"
    folder.mkdir(parents=True)
    for field in ("src", "ref", "docid", "genre", "origlang"):
        (folder / f"wmt14_full.en-de.{field}").write_text(lines)
    (tmp_path / "out").write_text(lines.replace("7", "x"))
    flags = ["--split=wmt14/full", "--language=de", "--bootstrap_samples=9"]
    flags.append(f"--translations={tmp_path / 'out'}")
    flags.append(f"--scores_file={tmp_path / 'scores.json'}")
    store = NOWHERE | {"SACREBLEU": str(tmp_path / "store")}
    # sacreBLEU reads its variable when it is imported.
    text = ok(run_python("-m", "t2t_repro.evaluate", *flags, env=store))
    assert "± " in text and "bleu by words of the source" in text
    scores = json.loads(text.splitlines()[-1])
    assert scores["exact_match"] == 90
    whole = json.loads((tmp_path / "scores.json").read_text())
    assert list(whole)[: len(scores)] == list(scores)
    assert "moses-de" in whole["signatures"]["bleu_tok"]


def test_split_of_a_problem_is_scored_without_a_model(trained, run):
    references = trained / "raw" / "test.yy"
    problem, arguments, _, data = problem_flags(trained)
    flags = [problem, arguments, data, f"--translations={references}"]
    text = ok(run("evaluate", *flags, "--bootstrap_samples=1"))
    assert json.loads(text.splitlines()[-1])["exact_match"] == 100


def test_data_of_other_text_gives_a_warning(trained, run, tmp_path):
    shutil.copytree(trained / "data", tmp_path / "data")
    (manifest,) = (tmp_path / "data").glob("*/manifest.json")
    flags = [
        *(f"--output_dir={trained / 'run'}", "--split=validation"),
        *(f"--data_dir={tmp_path / 'data'}", "--bootstrap_samples=1"),
        f"--translations={trained / 'raw' / 'validation.yy'}",
    ]
    told = "is not that of the data which this run was trained on"
    result = run("evaluate", *flags)
    assert '"exact_match": 100' in ok(result) and told not in result.stderr
    changed = files.read_json(manifest)
    changed["splits"]["validation"]["text_sha256"]["inputs"] = "ab"
    files.write_json(manifest, changed, with_checksum=True)
    result = run("evaluate", *flags)
    assert '"exact_match": 100' in ok(result) and told in result.stderr
    manifest.unlink()  # no text, of which scores could be
    assert told not in error(run("evaluate", *flags))


def test_source_files_are_normalized_as_the_problem_does(calm, run, tmp_path):
    (tmp_path / "both.xx").write_text(f"A B C D E\na b c d e\n{'a ' * 40}\n")
    (tmp_path / "ref").write_text("E D C B A\n" * 3)
    flags = [f"--{name}={tmp_path / file}" for name, file in FILES.items()]
    flags.append("--decode_hparams=max_input_length=30,long_inputs=refuse")
    result = run("evaluate", *flags, *calm, "--bootstrap_samples=1")
    assert "The text is tokenized: bleu_tok, which uses" in ok(result)
    assert "(1 in all): line 3 (" in result.stderr
    folder = calm[0].partition("=")[2]
    with open(f"{folder}/translations/files/both.xx.txt") as file:
        first, second, refused = file
    assert first == second and refused == "\n"
    with open(f"{folder}/translations/files/both.xx.json") as file:
        assert json.load(file)["checkpoints"]


@pytest.mark.slow
def test_decoder_normalizes_raw_text(calm, run, tmp_path):
    (tmp_path / "pairs").write_text("A B C\tC B A\na b c\tC B A\n")
    scores = ok(run("decoder", *calm, f"--score_file={tmp_path / 'pairs'}"))
    (upper, length), (lower, same) = map(str.split, scores.splitlines())
    assert length == same
    # A score's last digit may depend on the row's place in the batch.
    assert float(upper) == pytest.approx(float(lower), abs=1e-4)
    found = ok(run("decoder", *calm, stdin="A B C D E\na b c d e\n"))
    assert len(set(found.splitlines())) == 1


def test_exporter_refuses_a_problem_that_normalizes(calm, run):
    result = run("exporter", *calm)
    assert result.returncode == 1
    assert "calm_text changes its text" in result.stderr
    assert "Translate with decoder" in result.stderr
