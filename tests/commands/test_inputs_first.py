"""Wrong flags and inputs, which commands refuse before TensorFlow is there."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
RUN = ROOT / "tests" / "fixtures" / "run" / "run"
# Runs each command in a fork, without the time that the imports take.
PROGRAM = """
import json, os, sys
import grpc, pyarrow, sacrebleu
from t2t_repro import __main__ as t2t, registry
registry.load_definitions()
for number, arguments in enumerate(json.load(sys.stdin)):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    os.dup2(os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_WRONLY), 2)
    sys.argv[1:] = arguments
    try:
        t2t.main()
    except SystemExit as end:
        heavy = {"tensorflow", "keras"} & set(sys.modules)
        print(f"status {end.code}", *heavy, file=sys.stderr, flush=True)
    finally:
        os._exit(0)
"""
DECODER = "decoder", f"--output_dir={RUN}"
TO_DIR = "--decode_from_file={0}/two", "--decode_to_dir={0}/out"
EXPORT = "decoder", *TO_DIR, "--export_dir={0}/none"
EVALUATE = "evaluate", "--translations={0}/two", "--bootstrap_samples=1"
CASES = {
    "unknown decode hparam": (
        (*DECODER, "--decode_hparams=beam=5"),
        "DecodeHParams has no 'beam'. Did you mean beam_size?",
    ),
    "decode hparam out of range": (
        (*DECODER, "--decode_hparams=alpha=-1"),
        "decode hparam alpha must be at least 0; got -1.0",
    ),
    "unknown search rule": (
        (*DECODER, "--decode_hparams=rules=no_digitz"),
        "Unknown search rule 'no_digitz'",
    ),
    "unknown decode hparam of the exporter": (
        ("exporter", f"--output_dir={RUN}", "--decode_hparams=beam=5"),
        "Did you mean beam_size?",
    ),
    "no such run": (
        ("decoder", "--output_dir={0}"),
        "There is no run in {0} (run.json is missing)",
    ),
    "no such checkpoint": (
        (*DECODER, f"--checkpoint_path={RUN}/checkpoints/ckpt-7"),
        "There is no checkpoint",
    ),
    "fewer checkpoints than are to be averaged": (
        ("avg_checkpoints", f"--output_dir={RUN}", "--num_last_checkpoints=2"),
        "has 1 checkpoints; 2 are to be averaged. Train on",
    ),
    "no such run to report": (
        ("report", f"--output_dir={RUN},{{0}}"),
        "There is no run in {0} (run.json is missing)",
    ),
    "no such input file": (
        (*DECODER, "--decode_from_file={0}/none"),
        "There is no file {0}/none: it does not exist.",
    ),
    "input file is not UTF-8": (
        (*DECODER, "--decode_from_file={0}/latin"),
        "{0}/latin, line 2, is not UTF-8",
    ),
    "prefixes of another number": (
        (
            *DECODER,
            "--decode_from_file={0}/two",
            "--decode_prefix_file={0}/one",
        ),
        "got 1 lines in {0}/one for 2.",
    ),
    "prefixes without a file": (
        (*DECODER, "--decode_prefix_file={0}/one"),
        "--decode_prefix_file needs --decode_from_file.",
    ),
    "no folder of the output": (
        (*DECODER, "--decode_to_file={0}/none/out"),
        "No such file or directory: {0}/none/out.",
    ),
    "output is a folder": (
        (*DECODER, "--decode_to_file={0}"),
        "{0} is a folder. Name a file.",
    ),
    "two modes": (
        (*DECODER, "--decode_interactive", "--score_file={0}/two"),
        "--decode_interactive ignores --score_file. Omit one of them.",
    ),
    "alignments of a mode without translations": (
        (*DECODER, "--decode_attention", "--alignments={0}/out"),
        "--decode_attention ignores --alignments. Omit one of them.",
    ),
    "layer without alignments": (
        (*DECODER, "--alignment_layer=1"),
        "--alignment_layer needs --alignments.",
    ),
    "no such layer": (
        (*DECODER, "--alignments={0}/out", "--alignment_layer=3"),
        "--alignment_layer must be from 1 to 2, the number of",
    ),
    "alignments in the file of translations": (
        (*DECODER, "--alignments={0}/out", "--decode_to_file={0}/out"),
        "--decode_to_file and --alignments are the same file",
    ),
    "folder for standard input": (
        (*DECODER, "--decode_to_dir={0}/out"),
        "--decode_to_dir needs --decode_from_file.",
    ),
    "shards of one file": (
        (*DECODER, "--decode_from_file={0}/two", "--shard_lines=7"),
        "--shard_lines needs --decode_to_dir.",
    ),
    "folder and file": (
        (*DECODER, *TO_DIR, "--decode_to_file={0}/file"),
        "--decode_to_dir ignores --decode_to_file.",
    ),
    "scores in a folder": (
        (*DECODER, "--score_file={0}/two", "--decode_to_dir={0}/out"),
        "--score_file ignores --decode_to_dir.",
    ),
    "no file matches": (
        (*DECODER, "--decode_from_file={0}/x*", "--decode_to_dir={0}/out"),
        "No file matches --decode_from_file={0}/x*.",
    ),
    "folder of the files themselves": (
        (*DECODER, TO_DIR[0], "--decode_to_dir={0}"),
        "--decode_to_dir={0} has the files of --decode_from_file={0}/",
    ),
    "folder is a file": (
        (*DECODER, TO_DIR[0], "--decode_to_dir={0}/one"),
        "File exists: {0}/one.",
    ),
    "unknown engine": (
        (*DECODER, *TO_DIR, "--engine=spark"),
        "engine must be local, or dask:ADDRESS",
    ),
    "processes of a cluster": (
        (*DECODER, *TO_DIR, "--engine=dask:tcp://a:1", "--num_workers=2"),
        "--engine=dask:tcp://a:1 ignores --num_workers",
    ),
    "no such export": (EXPORT, "There is no exported model in {0}/none."),
    "checkpoint of an export": (
        (*EXPORT, f"--checkpoint_path={RUN}/checkpoints/ckpt-300"),
        "--export_dir ignores --checkpoint_path",
    ),
    "output in place of the input": (
        (*DECODER, "--decode_from_file={0}/two", "--decode_to_file={0}/two"),
        "{0}/two is also a file to read, and would be lost.",
    ),
    "no pair to score": (
        (*DECODER, "--score_file={0}/two"),
        "{0}/two, line 1: expected input, tab, target; got 1 fields: 'a b'.",
    ),
    "no such translations": (
        ("evaluate", "--translations={0}/none", "--references={0}/two"),
        "There is no file {0}/none: it does not exist.",
    ),
    "references of another number": (
        (*EVALUATE, "--references={0}/one", "--language=de"),
        "the same number of lines, at least one; got 1 and 2.",
    ),
    "folder of scores": (
        (*EVALUATE, "--references={0}/two", "--scores_file={0}/none/s"),
        "No such file or directory: {0}/none/s.",
    ),
    "language of files": (
        (*EVALUATE, "--references={0}/two"),
        "Name that of the translations with --language=de,",
    ),
    "language of a test set": (
        (*EVALUATE, "--split=wmt20", "--language=de"),
        "test set wmt20 has en-de, fr-de. Name one pair with "
        "--source_language and --language; got none and de.",
    ),
    "language that a test set lacks": (
        (*EVALUATE, "--split=wmt17/ms", "--language=de"),
        "test set wmt17/ms has zh-en. Name one pair",
    ),
    "language of another problem": (
        (*EVALUATE, "--problem=multi30k_ende", "--language=fr"),
        "The problem multi30k_ende translates from en to de; got fr.",
    ),
    "language with a region": (
        (*EVALUATE, "--problem=multi30k_ende", "--language=pt_BR"),
        "The problem multi30k_ende translates from en to de; got pt_BR.",
    ),
    "misspelt split": (
        (*EVALUATE, "--problem=multi30k_many", "--split=tset"),
        "--split must be a split of multi30k_many, one of train, validation, "
        "test, or a test set that sacreBLEU knows, such as wmt14/full; got",
    ),
    "text of a problem of several directions": (
        (*EVALUATE, "--problem=multi30k_many", "--references={0}/two"),
        "multi30k_many has several directions. Name that of the text",
    ),
    "unknown setting to evaluate": (
        ("evaluate", f"--output_dir={RUN}", "--decode_hparams=beam=5"),
        "Did you mean beam_size?",
    ),
    "no export": (
        ("query", "--export_dir={0}", "--inputs=a"),
        "There is no exported model in {0}.",
    ),
    "no address": (
        ("query", "--server=here", "--inputs=a"),
        "A server is HOST:PORT, such as 127.0.0.1:8500, without http://; "
        "got 'here'.",
    ),
    "address of a page": (
        ("query", "--server=http://127.0.0.1:8501", "--inputs=a"),
        "without http://; got 'http://127.0.0.1:8501'.",
    ),
    "one port for both protocols": (
        ("serve", "--export_dir={0}", "--port=8501"),
        "--rest_port and --grpc_port (alias --port) are both 8501.",
    ),
    "token for an export": (
        ("query", "--export_dir={0}/export/1", "--token_file={0}/one"),
        "--token_file is for a --server.",
    ),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return the folder of the inputs, and the errors of each command."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "one").write_text("a b\n")
    (folder / "two").write_text("a b\nc\n")
    (folder / "latin").write_bytes(b"a\nb \xe4\n")
    (folder / "export" / "1").mkdir(parents=True)
    (folder / "export" / "1" / "saved_model.pb").write_bytes(b"")
    errors = folder / "errors"
    errors.mkdir()
    commands = [
        [argument.format(folder) for argument in arguments]
        for arguments, _ in CASES.values()
    ]
    subprocess.run(
        [sys.executable, "-c", PROGRAM, errors],
        cwd=ROOT,
        input=json.dumps(commands),
        encoding="utf-8",
        check=True,
    )
    texts = [(errors / str(i)).read_text() for i in range(len(commands))]
    return folder, dict(zip(CASES, texts, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_input_is_refused_before_tensorflow_is_imported(answers, name):
    folder, errors = answers
    message, status = errors[name].removeprefix("Error: ").rsplit("\n", 2)[:2]
    assert CASES[name][1].format(folder) in message
    assert status == "status 1"
