"""Test that scripts/README.md lists every program."""

import pathlib
import re

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
FOLDERS = "benchmarks paper release reproduce serving".split()


def test_readme_lists_every_program_in_its_folder():
    text = (SCRIPTS / "README.md").read_text("utf-8")
    sections = dict(
        re.findall(r"^## (\w+):(.*?)(?=^## |\Z)", text, re.M | re.S)
    )
    for folder in FOLDERS:
        listed = set(re.findall(r"`([\w.]+)`", sections[folder]))
        files = {
            path.name.removesuffix(".py")
            for path in (SCRIPTS / folder).iterdir()
            if path.is_file() and path.stem not in ("__init__", "translate")
        }
        assert files <= listed, folder
