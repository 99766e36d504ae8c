"""Tests of a page's files and commands, and of the shell that times them."""

import os
import subprocess

import pytest

from scripts.release import cold_start

PAGE = """
```python
# folder/hello.py
print("hello")
```

```
ignored
```

```sh
python folder/hello.py
echo one \\
    two | cat
```
"""


def test_files_are_written_and_commands_run(tmp_path):
    cold_start.write_files(PAGE, tmp_path)
    commands = cold_start.shell_commands(PAGE)
    assert commands == ["python folder/hello.py", "echo one \\\n    two | cat"]
    results = cold_start.run(commands, tmp_path, os.environ["PATH"])
    assert [command for command, _, _ in results] == commands
    assert [lines for _, _, lines in results] == [["hello\n"], ["one two\n"]]


def test_python_block_without_file_name_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="must begin with.*print"):
        cold_start.write_files("```python\nprint()\n```\n", tmp_path)


def test_script_stops_at_first_failure_and_kills_servers(tmp_path):
    script = cold_start.script(["sleep 600 &", "echo a", "false", "echo b"])
    result = subprocess.run(
        ["bash", "-c", script], capture_output=True, encoding="utf-8"
    )
    assert (result.returncode, result.stdout) == (1, "a\n")
    with pytest.raises(SystemExit, match="failed: false"):
        cold_start.run(["true", "false"], tmp_path, os.environ["PATH"])


def test_output_without_newline_belongs_to_its_command(tmp_path):
    commands = ["printf a", r"printf 'b 1\rb 2\n'"]
    (_, _, first), (_, _, second) = cold_start.run(
        commands, tmp_path, os.environ["PATH"]
    )
    assert first == ["a"]
    assert [line.rstrip() for line in second] == ["b 1", "b 2"]
