"""Translation of lines by an export; checks of the models of workers."""

import pathlib
import tarfile

import numpy as np
import pytest

from t2t_repro import errors, registry
from t2t_repro.decoding import translation
from t2t_repro.hparam import DecodeHParams
from t2t_repro.runs.run import Run
from t2t_repro.serving import bulk_decoding, client

RUN = pathlib.Path(__file__).parents[1] / "fixtures" / "run" / "run"


class Upper(client.SignatureTranslator):
    """Export that translates to upper case."""

    def __init__(self, **more):
        super().__init__(bulk_decoding._similar_lengths)
        self.seen, self._more = [], more

    def add_tags(self, lines, target_language):
        return lines

    def run(self, signature, columns):
        assert signature == "serving_default"
        lines = columns["inputs"]
        self.seen.append(lines)
        outputs = {
            "outputs": np.array([line.upper() for line in lines], object),
            "scores": np.array([-len(line) for line in lines]),
        }
        return outputs | {
            name: np.array([function(line) for line in lines])
            for name, function in self._more.items()
        }


def test_export_translates_batches_of_similar_length_in_order():
    model = Upper(truncated=lambda line: len(line) > 5_000)
    lines = ["ä", "", "b" * 6_000, " ", *("c" * i for i in range(1, 300))]
    found = model.translate(lines)
    # Blank lines, too: an export with allow_empty_source translates them.
    assert [each.text for each in found] == [line.upper() for line in lines]
    assert [each.scores for each in found] == [[-len(x)] for x in lines]
    assert translation.too_long(found, first=0) == {2: 6_000}
    for batch in model.seen:
        longest = max(len(line.encode()) for line in batch)
        assert len(batch) * (longest + 200) <= 32_768
    assert len(model.seen) < 8


def test_export_of_another_program_truncates_nothing_that_it_reports():
    (found,) = Upper().translate(["a"])
    assert found.text == "A" and found.too_long == 0


def test_worker_that_finds_another_checkpoint_refuses():
    registry.load_definitions()
    model = bulk_decoding.of_run(Run.open(RUN))
    other = model._replace(checkpoint_checksums=("0",))
    with pytest.raises(errors.UserError, match="has found a different model"):
        other.load()


def test_export_is_the_same_beside_other_files(tmp_path):
    with tarfile.open(RUN.parent / "export.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    before = bulk_decoding.of_export(tmp_path / "export")
    # Notes of a copy from an object store.
    for name in (".t2t.objects", "variables/.t2t.objects"):
        (before.folder / name).write_text("{}")
    (before.folder / "README.md").write_text("Licence: of my choice")
    assert bulk_decoding.of_export(tmp_path / "export") == before


def test_text_of_a_file_that_a_rule_reads_is_a_setting(tmp_path):
    (words := tmp_path / "words").write_text("a")
    search = DecodeHParams(rules=f"forbid:file={words}:ignore_case=true")
    model = bulk_decoding.RunModel(RUN, (), (), search, False, "")
    before = model.settings
    words.write_text("b")
    assert before["files_sha256"] != model.settings["files_sha256"]


def test_definitions_and_target_language_are_settings():
    registry.load_definitions()
    model = bulk_decoding.of_run(Run.open(RUN))
    assert "usr_dir" not in model.settings
    changes = [{"definitions": (("mine.py", sha256),)} for sha256 in "ab"]
    for change in [*changes, {"target_language": "de"}]:
        changed = model._replace(**change)
        assert changed.settings != model.settings
        model = changed
