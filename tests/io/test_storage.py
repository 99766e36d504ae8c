"""Copies of folders in an object store, which is in memory."""

import os
import pathlib
import shutil
import sys

import pytest

from t2t_repro import errors
from t2t_repro.io import files, storage
from t2t_repro.runs import checkpoint_files

NAME = "run.json"


def checkpoint(step, age=""):
    """Return {name: text} of the data and the index of a checkpoint."""
    path = f"checkpoints/ckpt-{step}"
    return {
        f"{path}.data-00000-of-00001": f"{age}weights of {step}",
        f"{path}.index": f"{age}index of {step}",
    }


FILES = {NAME: "settings", "train.log": "steps", **checkpoint(4)}


@pytest.fixture(autouse=True)
def _store(memory, monkeypatch):
    """Use memory:// in all tests, and do not wait for the disk."""
    monkeypatch.setattr(files, "flush", lambda path: None)


def write(folder, contents):
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def read(folder):
    """Return {name: text} of what is copied."""
    names = storage.file_stats(folder) if folder.exists() else ()
    return {name: (folder / name).read_text() for name in names}


@pytest.fixture
def first(machine):
    """Return FILES on a machine that has copied them to the store."""
    folder = machine("first")
    write(folder, FILES)
    storage.upload(folder)
    return folder


def stored(system, folder="/bucket/run"):
    """Return {name: text} of the objects."""
    return {
        path.removeprefix(f"{folder}/"): system.cat(path).decode()
        for path in system.find(folder)
    }


def test_path_of_a_copy_tells_its_url(tmp_path):
    copy = storage.local_path("s3://bucket/some/run/")
    assert copy == tmp_path / "cache" / "s3" / "bucket" / "some" / "run"
    assert storage.url_of(copy) == "s3://bucket/some/run"
    assert storage.name_of(copy / "run.json") == "s3://bucket/some/run/run.json"
    assert storage.local_path("gs://b").parts[-2:] == ("gs", "b")
    assert storage.local_path("s3://b/a [1]:*#é").name == "a [1]:*#é"


@pytest.mark.parametrize("name", ["run", "/cache2/s3/b", "~/run", "a:b/c"])
def test_other_paths_are_their_own(name):
    path = storage.local_path(name)
    assert path == files.expand_path(name)
    assert storage.url_of(path) is None
    assert storage.name_of(path) == str(path.absolute())
    assert storage.names(path) == []
    assert storage.download(path) == path
    storage.upload(path)
    storage.fetch(path)


def test_paths_need_no_home_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("T2T_CACHE", raising=False)

    def without_home(path):
        if path.parts[:1] == ("~",):
            raise RuntimeError
        return path

    monkeypatch.setattr(pathlib.Path, "expanduser", without_home)
    assert storage.local_path(tmp_path) == tmp_path
    assert storage.url_of(tmp_path) is None
    assert storage.download(tmp_path) == tmp_path
    with pytest.raises(errors.UserError, match="no home folder for the ~"):
        storage.local_path("memory://bucket/run")


def test_folder_whose_name_is_not_utf8_is_refused():
    assert storage.local_path("café") == pathlib.Path("café")
    message = r"name 'run/caf\\udce9' is not UTF-8.* Rename"
    with pytest.raises(errors.UserError, match=message):
        storage.local_path("run/caf\udce9")  # of Latin-1


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///run",
        pathlib.Path("s3://b/run"),  # s3:/b/run
        "gs://b//x",
        "s3://b/../x",
        "ftp://b/x",
        "s3://b/x?versionId=3",
        "s3://b/x::y",
    ],
)
def test_other_urls_are_refused(url):
    with pytest.raises(errors.UserError, match=r"is not the URL of a folder"):
        storage.local_path(url)


def test_url_where_only_a_path_is_possible_is_refused():
    with pytest.raises(errors.UserError, match="got s3://b/out.txt. Name a pa"):
        files.expand_path("s3://b/out.txt")


@pytest.mark.parametrize("name", ["/run.json", "../x", "a/./b", "train.log/a"])
def test_object_that_can_be_no_file_is_named(memory, machine, name):
    for path in (name, "train.log"):
        memory.pipe_file(f"/bucket/run/{path}", b"content")
    with pytest.raises(errors.UserError) as raised:
        storage.download(machine("first"))
    assert f"The object memory://bucket/run/{name} ca" in str(raised.value)
    assert "Rename that object." in str(raised.value)
    assert read(machine("first")) == {}


def test_only_changes_are_copied(memory, machine, monkeypatch):
    copied = []
    for name in ("get", "put"):
        function = getattr(storage, f"{name}_object")

        def spy(*args, function=function, name=name):
            copied.append((name, pathlib.Path(str(args[0])).name))
            return function(*args)

        monkeypatch.setattr(storage, f"{name}_object", spy)
    first = machine("first")
    write(first, FILES)
    write(first, {"lock": "process", "train.log.0123.t2t.tmp": "half"})
    storage.upload(first)
    assert [name for _, name in copied] == [  # what completes comes last
        "ckpt-4.data-00000-of-00001",
        "train.log",
        "run.json",
        "ckpt-4.index",
    ]
    copied.clear()
    storage.upload(first)
    storage.download(first)
    assert copied == []
    write(first, {"train.log": "more steps"})
    storage.download(first)
    assert read(first)["train.log"] == "more steps"  # it is newer
    storage.upload(first)
    assert copied == [("put", "train.log")]
    second = machine("second")
    assert storage.download(second) == second
    assert read(second) == FILES | {"train.log": "more steps"}
    assert storage.names(second) == sorted(FILES)
    write(second, {"train.log": "steps of another machine"})
    storage.upload(second)
    copied.clear()
    storage.download(machine("first"))
    assert copied == [("get", "train.log")]
    assert read(first)["train.log"] == "steps of another machine"


def test_removed_files_are_removed_on_all_sides(memory, machine, first):
    second = machine("second")
    storage.download(second)
    # The data of the checkpoint is not copied to the third machine.
    third = machine("third")
    storage.download(
        third, lambda names: [n for n in names if ".data" not in n]
    )
    (third / "checkpoints" / "ckpt-4.index").unlink()
    write(third, {"checkpoints/ckpt-40.index": "index of 40"})
    storage.upload(third)
    expected = {name: FILES[name] for name in (NAME, "train.log")}
    expected["checkpoints/ckpt-40.index"] = "index of 40"
    assert stored(memory) == expected
    write(second, {"own.txt": "never uploaded"})
    machine("second")
    storage.download(second)
    assert read(second) == expected | {"own.txt": "never uploaded"}


def test_file_that_was_not_chosen_is_fetched(machine, first):
    second = machine("second")
    storage.download(second, lambda names: ["run.json"])
    assert read(second) == {"run.json": "settings"}
    storage.fetch(second / "train.log")
    assert (second / "train.log").read_text() == "steps"
    with pytest.raises(FileNotFoundError) as raised:
        storage.fetch(second / "absent")
    assert "memory://bucket/run/absent" in errors.explain(raised.value)


def test_objects_stay_if_their_files_were_removed_before(memory, first):
    # A trainer that is killed before its upload, or a user who needs room.
    for name in FILES:
        (first / name).unlink()
    checkpoint_files.open_folder(first)
    storage.upload(first)
    assert stored(memory) == FILES


def test_weights_that_another_machine_replaced_stay(memory, machine, first):
    second = machine("second")
    checkpoint_files.open_folder(second)
    changed = {name: f"new {FILES[name]}" for name in FILES}
    write(second, changed)
    storage.upload(second)
    first = machine("first")
    checkpoint_files.open_folder(first)
    storage.upload(first)
    assert stored(memory) == changed


def test_copy_in_which_a_process_works_stays_as_it_is(memory, first):
    memory.pipe("/bucket/run/train.log", b"of another machine")
    with files.locked(first):
        storage.download(first)
        assert read(first) == FILES
    storage.download(first)
    assert read(first)["train.log"] == "of another machine"


def test_upload_of_a_part_has_the_lock_of_the_run(machine, monkeypatch):
    first = machine("first")
    write(first, FILES)
    refused, put = [], storage.put_object

    def put_in_lock(path, url):
        with pytest.raises(files.TakenError) as raised:
            with files.locked(first, beside=True):
                pass
        refused.append(raised.value)
        return put(path, url)

    monkeypatch.setattr(storage, "put_object", put_in_lock)
    storage.upload(first / "checkpoints")
    assert len(refused) == 2


def test_checkpoint_that_has_changed_here_is_copied_again(memory, first):
    *_, data, index = FILES
    write(first, {data: "half", "train.log": "more steps"})
    storage.download(first)
    storage.upload(first)
    assert stored(memory) == FILES | {"train.log": "more steps"}
    assert read(first) == stored(memory)


def test_objects_stay_if_their_copy_fails(memory, monkeypatch, first):
    def fail(url, path):
        raise errors.UserError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "get_object", fail)
        with pytest.raises(errors.UserError, match="no network"):
            storage.fetch_again(first / "checkpoints", "ckpt-4.*")
    storage.upload(first)
    assert stored(memory) == FILES


def test_checkpoint_that_is_written_during_an_upload_is_not_mixed(
    memory, monkeypatch, first
):
    *_, data, index = FILES
    (first / index).unlink()
    write(first, {data: "new weights of 4", "train.log": "more steps"})
    put = storage.put_object

    def put_meanwhile(path, url):
        write(first, {index: "new index of 4"})
        return put(path, url)

    monkeypatch.setattr(storage, "put_object", put_meanwhile)
    storage.upload(first)
    assert stored(memory) == FILES | {"train.log": "more steps"}
    storage.upload(first)
    assert stored(memory) == read(first)
    assert stored(memory)[index] == "new index of 4"


def test_data_whose_index_was_never_uploaded_is_removed(memory, machine, first):
    data, index = checkpoint(9)
    for name in (data, f"{index}.own"):
        memory.pipe_file(f"/bucket/run/{name}", b"of another machine")
    storage.remove_unfinished(machine("second") / "checkpoints")
    assert stored(memory).keys() == {*FILES, f"{index}.own"}


def test_unreadable_list_of_objects_means_that_nothing_is_known(first):
    (first / ".t2t.objects").write_text('{"run.json": 3}')
    storage.download(first)
    assert read(first) == FILES


class Killed(BaseException):
    """Stands for SIGKILL."""


def is_whole(contents, step):
    """Return whether a checkpoint is complete, with the same data and index."""
    data, index = map(contents.get, checkpoint(step))
    assert index is None or data == index.replace("index", "weights")
    return index is not None


def test_upload_may_be_killed_before_any_change(memory, machine, monkeypatch):
    changes, limit = 0, None  # the change before which the upload is killed
    for name in ("put_file", "rm_file"):
        function = getattr(type(memory), name)

        def count(self, *args, function=function, **settings):
            nonlocal changes
            changes += 1
            if changes == limit:
                raise Killed
            return function(self, *args, **settings)

        monkeypatch.setattr(type(memory), name, count)

    def advance(folder):
        """Replace ckpt-4 by ckpt-8, and write an average anew."""
        for name in checkpoint(4):
            (folder / name).unlink()
        write(folder, {"train.log": "more steps", **checkpoint(8)})
        write(folder, checkpoint(6, "new "))

    outcomes = set()
    for number in range(1, 30):
        memory.store.clear()
        shutil.rmtree(machine("first"), ignore_errors=True)
        first = machine("first")
        write(first, FILES | checkpoint(6))
        storage.upload(first)
        advance(first)
        changes, limit = 0, number
        try:
            storage.upload(first)
        except Killed:
            pass
        else:
            break
        fresh, limit = machine(f"fresh-{number}"), None
        copy = read(storage.download(fresh))
        whole = [step for step in (4, 6, 8) if is_whole(copy, step)]
        assert {4, 8} & {*whole}
        assert copy["run.json"] == "settings"
        outcomes.add(tuple(whole))
        # The killed process starts again. It may have ckpt-4 again.
        machine("first")
        storage.download(first)
        storage.upload(first)
        assert stored(memory) == read(first)
        assert is_whole(read(first), 8)
    assert number == changes + 1 == 10
    assert outcomes == {(4, 6), (4,), (4, 6, 8), (6, 8)}


@pytest.mark.usefixtures("first")
def test_download_that_is_cut_is_reported(memory, machine, monkeypatch):
    second = machine("second")
    monkeypatch.setattr(
        type(memory),
        "get_file",
        lambda self, name, path: pathlib.Path(path).write_text("st"),
    )
    with pytest.raises(errors.UserError, match="received 2 of 8 bytes. Check"):
        storage.download(second, lambda names: [NAME])
    assert not (second / NAME).exists()


@pytest.mark.parametrize("name", ["a::file", "a::b/c", "x?versionId=1"])
def test_name_with_syntax_of_fsspec_is_a_name(memory, machine, name):
    first = machine("first")
    write(first, {NAME: "settings", name: "mine"})
    storage.upload(first)
    assert {*memory.store} == {f"/bucket/run/{each}" for each in (name, NAME)}
    second = machine("second")
    assert (storage.download(second) / name).read_text() == "mine"


def test_errors_of_the_store_are_explained(memory, machine, monkeypatch):
    def fail(self, *args, **settings):
        raise PermissionError(13, "Access Denied")

    first = machine("first")
    write(first, {NAME: "settings"})
    for name in ("find", "put_file"):
        monkeypatch.setattr(type(memory), name, fail)
    for access in (storage.names, storage.download, storage.upload):
        with pytest.raises(errors.UserError) as raised:
            access(first)
        assert "Cannot access memory://bucket/run" in str(raised.value)
        reason = ": PermissionError: [Errno 13] Access Denied. Check the URL"
        assert reason in str(raised.value)
    assert (first / NAME).read_text() == "settings"


@pytest.mark.usefixtures("first")
def test_full_disk_is_not_blamed_on_the_store(memory, machine, monkeypatch):
    def fail(self, *args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(memory), "get_file", fail)
    second = machine("second")
    with pytest.raises(OSError, match="No space") as raised:
        storage.download(second, lambda names: [NAME])
    assert raised.value.filename == os.fspath(second / NAME)


def test_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(errors.UserError, match="gs:// needs gcsfs.* extra gcs"):
        storage.names(storage.local_path("gs://bucket/run"))
