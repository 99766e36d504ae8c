"""A full disk ends any command with a message, whoever was writing."""

import pathlib
import subprocess
import sys

import pytest

FULL = pathlib.Path("/dev/full")  # Linux's: every write to it fails
WRITE = {
    "python": f"open('{FULL}', 'w').write('x' * 100_000)",
    "tensorflow": f"""
        import tensorflow as tf
        with tf.io.TFRecordWriter('{FULL}') as writer:
            writer.write(b'x' * 1_000_000)
        """,
}


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
@pytest.mark.parametrize("writer", WRITE)
def test_a_full_disk_is_a_message(writer):
    script = (
        "from t2t_repro import common_flags\n"
        "def main():\n"
        f"        {WRITE[writer].strip()}\n"
        "common_flags.run(main)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert result.returncode == 1, result.stderr
    assert result.stderr.startswith("Error: the disk is full: ")
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr
