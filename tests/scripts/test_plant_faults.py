"""Tests of the program that plants faults, on a project of two files."""

import pytest

from scripts.release import plant_faults

TEXT = """# A comment is not a fault.

half instead of double
a.py
- x * 2
+ x / 2
tests

another name for the result
a.py
-     return x * 2
- # end
+     y = x * 2
+     return y
tests/test_a.py
tests

a line that is not Python
a.py
- def double(x):
+ def double(x:
tests
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "a.py").write_text("def double(x):\n    return x * 2\n# end\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(
        "import a\n\ndef test_double():\n    assert a.double(3) == 6\n"
    )
    return tmp_path


def test_faults_that_do_not_fit_the_project_are_named(project):
    faults = plant_faults.read_faults(TEXT)
    assert plant_faults.find_misfits(faults, project) == []
    (project / "a.py").write_text("x * 2\nx * 2\n")
    (project / "tests" / "test_a.py").unlink()
    wrong = plant_faults.find_misfits([*faults, faults[0]], project)
    for text in ("given 2 times", "old text 2 times", "no tests/test_a.py"):
        assert sum(text in line for line in wrong) >= 1


def test_all_planted_faults_fit_this_project():
    faults = plant_faults.read_faults(plant_faults.FAULTS.read_text())
    assert plant_faults.find_misfits(faults, plant_faults.ROOT) == []


@pytest.mark.slow
def test_only_a_failed_test_catches_a_fault(project):
    copy = plant_faults.ProjectCopy(project, limit=300)
    before = (project / "a.py").read_text()
    faults = plant_faults.read_faults(TEXT)
    half, renamed, broken = map(copy.try_fault, faults)
    assert (half.caught, half.by) == (True, "tests/test_a.py::test_double")
    assert (renamed.caught, renamed.by) == (False, "all tests passed")
    assert not broken.caught
    assert (project / "a.py").read_text() == before
