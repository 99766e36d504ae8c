"""Commands and files of a page, and a timed shell that runs them."""

import os
import subprocess

import pytest

from scripts.release import cold_start, page_commands

PAGE = """
```python
# folder/hello.py
print("hello")
```

```
left out
```

```sh
python folder/hello.py
echo one \\
    two | cat
```
"""


def test_files_are_written_and_commands_run(tmp_path):
    page_commands.write_files(PAGE, tmp_path)
    commands = page_commands.shell_commands(PAGE)
    assert commands == ["python folder/hello.py", "echo one \\\n    two | cat"]
    found = cold_start.run(commands, tmp_path, os.environ["PATH"])
    assert [command for command, _, _ in found] == commands
    assert [lines for _, _, lines in found] == [["hello\n"], ["one two\n"]]


def test_a_file_has_a_name(tmp_path):
    with pytest.raises(ValueError, match="no file's name.*print"):
        page_commands.write_files("```python\nprint()\n```\n", tmp_path)


def test_the_first_that_fails_is_the_last(tmp_path):
    script = page_commands.script(["sleep 600 &", "echo a", "false", "echo b"])
    result = subprocess.run(
        ["bash", "-c", script], capture_output=True, encoding="utf-8"
    )
    assert (result.returncode, result.stdout) == (1, "a\n")
    with pytest.raises(SystemExit, match="failed: false"):
        cold_start.run(["true", "false"], tmp_path, os.environ["PATH"])


def test_what_ends_in_no_newline_is_its_commands(tmp_path):
    commands = ["printf a", r"printf '\033[1mb\033[0m 1\rb 2\n'"]
    (_, _, first), (_, _, second) = cold_start.run(
        commands, tmp_path, os.environ["PATH"]
    )
    assert first == ["a"]
    assert list(map(cold_start.visible, second)) == ["b 1", "b 2"]
