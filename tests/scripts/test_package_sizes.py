"""Sizes of packages in a folder of simulated ones."""

import sys

import pytest

from scripts.release import package_sizes

REQUIRED = {
    "t2t_repro": ["one", "two[fast]", 'three; extra == "dev"'],
    "one": ["shared", "two"],
    "two": ["shared", 'quick; extra == "fast"', 'slow; extra == "slow"'],
    "shared": ["Deep.er"],
    "Deep.er": [],
    "quick": [],
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a folder of installed packages, each with a file of 1 MB."""
    for name, required in REQUIRED.items():
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        lines = [f"Name: {name}", *(f"Requires-Dist: {r}" for r in required)]
        (folder / "METADATA").write_text("\n".join(lines))
        (folder / "RECORD").write_text(f"{name}.py,,\nabsent.py,,\n")
        (tmp_path / f"{name}.py").write_bytes(b"#" * 2**20)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])


def test_package_counts_with_the_first_that_needs_it(site, capsys):
    assert package_sizes.groups() == {
        "one": ["shared", "deep-er"],
        "two": ["quick"],
    }
    package_sizes.main()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| `one` | 1.0 | 2.0: shared, deep-er |",
        "| `two` | 1.0 | 1.0: quick |",
        "| all, with t2t_repro | 6.0 | |",
    ]
