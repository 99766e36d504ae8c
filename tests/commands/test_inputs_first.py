"""Wrong flags and inputs, which commands refuse before TensorFlow is there."""

import json
import pathlib

import pytest
from cases import read_cases
from forked import ok
from processes import run_python
from stored_run import RUN

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
        sys.exit(t2t.main())
    except SystemExit as end:
        heavy = {"tensorflow", "keras"} & set(sys.modules)
        print(f"status {end.code}", *heavy, file=sys.stderr, flush=True)
    finally:
        os._exit(0)
"""
NAMES = {
    "run": f"{RUN}",
    "decoder": f"decoder --output_dir={RUN}",
    "to_dir": "--decode_from_file={here}/two --decode_to_dir={here}/out",
    "evaluate": "evaluate --translations={here}/two --bootstrap_samples=1",
    "sweep": "sweep --problem=multi30k_ende --hparams_set=tiny "
    "--output_dir={here}",
}
# Each command, and what its message must contain.
TABLE = pathlib.Path(__file__).with_name("refused_inputs.txt")
CASES = read_cases(TABLE.read_text("utf-8"))


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return the folder of the inputs, and the errors of each command."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "token").write_text("a\n")
    (folder / "one").write_text("a b\n")
    (folder / "two").write_text("a b\nc\n")
    (folder / "latin").write_bytes(b"a\nb \xe4\n")
    (folder / "export" / "1").mkdir(parents=True)
    (folder / "export" / "1" / "saved_model.pb").write_bytes(b"")
    errors = folder / "errors"
    errors.mkdir()
    names = {name: text.format(here=folder) for name, text in NAMES.items()}
    names["here"] = folder
    commands = [case.format_map(names).split() for case in CASES]
    ok(run_python("-c", PROGRAM, errors, input=json.dumps(commands)))
    texts = [(errors / str(i)).read_text() for i in range(len(commands))]
    return names, dict(zip(CASES, texts, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_input_is_refused_before_tensorflow_is_imported(answers, case):
    names, errors = answers
    message, status = errors[case].rsplit("\n", 2)[:2]
    message = " ".join(message.partition("Error: ")[2].split())
    assert CASES[case].format_map(names) in message
    assert status == "status 1"
