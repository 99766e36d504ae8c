"""Commands that Control-C ends, in processes of their own."""

import subprocess
import sys

import pytest

CAUSES = {
    "anywhere": "raise KeyboardInterrupt",
    # As CPython reports it from the initialization of an extension.
    "import": "raise ImportError('failed') from KeyboardInterrupt()",
}


@pytest.mark.parametrize("cause", CAUSES)
def test_control_c_ends_a_command_without_traceback(cause):
    script = (
        "from t2t_repro.cli import command_line\n"
        f"def main(): {CAUSES[cause]}\n"
        "command_line.run(main)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (130, "Interrupted.\n")
