"""Downloads by name, from a Hub on loopback that fails as real ones do."""

import os
import pathlib
import shutil
import time

import pytest
from huggingface_hub import constants
from loopback_hub import API, COMMIT, MODEL, running_hub

import t2t_repro
from t2t_repro import errors
from t2t_repro.importing import hub as hub_module

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "huggingface"
NAME = hub_module.Name(MODEL, "main")
WEIGHTS = "model.safetensors"
CDN = f"/cdn/{WEIGHTS}"
CARD = b"---\nlicense: cc-by-4.0\n---\n"
SMALL = {"config.json": b"{}", "source.spm": b"s", "README.md": CARD}


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    """Use a Hub, without waits between requests, and return it."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with running_hub(tmp_path) as hub:
        resolve = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        for name, value in {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": resolve,
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_HUB_OFFLINE": False,
        }.items():
            monkeypatch.setattr(constants, name, value)
        for name, value in hub.env.items():
            monkeypatch.setenv(name, value)
        hub.files = SMALL | {WEIGHTS: os.urandom(1000)}
        yield hub


def refused():
    with pytest.raises(errors.UserError) as caught:
        hub_module.download(NAME)
    return str(caught.value)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def unfinished(tmp_path):
    return [*tmp_path.rglob("*.incomplete")]


def test_only_needed_files_are_downloaded_once(hub):
    hub.files |= {
        name: b"no"
        for name in (
            "pytorch_model.bin",
            "tf_model.h5",
            "pytorch_model.bin.index.json",
            "onnx/config.json",
        )
    }
    folder, origin = hub_module.download(NAME)
    assert names(folder) == sorted([*SMALL, WEIGHTS])
    assert (folder / WEIGHTS).read_bytes() == hub.files[WEIGHTS]
    assert origin == {"name": MODEL, "revision": COMMIT}
    hub.requests.clear()
    assert hub_module.download(NAME)[0] == folder
    assert not [line for line in hub.requests if line.startswith("GET /H")]


@pytest.mark.parametrize(
    ("stem", "ending"), [("model", "safetensors"), ("pytorch_model", "bin")]
)
def test_parts_of_weights_are_downloaded_with_their_index(
    hub, monkeypatch, stem, ending
):
    hub.files = SMALL | {
        f"{stem}.{ending}.index.json": b"{}",
        f"{stem}-00001-of-00002.{ending}": b"1",
        f"{stem}-00002-of-00002.{ending}": b"2",
    }
    wanted = sorted(hub.files)
    if ending == "safetensors":
        hub.files["pytorch_model.bin"] = b"no"
    mirrored = [{"rfilename": name} for name in hub.files]  # no checksums
    monkeypatch.setattr(hub, "listing", lambda: mirrored)
    assert names(hub_module.download(NAME)[0]) == wanted


def test_lost_connection_leaves_complete_files_only(hub, tmp_path):
    hub.faults[CDN] = [0] * 9
    assert "those of an earlier download" in refused()
    assert not unfinished(tmp_path)
    hub.requests.clear()
    hub.faults.clear()
    hub_module.download(NAME)
    fetched = [line for line in hub.requests if line.startswith("GET /")]
    assert fetched == [f"GET {API}/revision/main", f"GET {CDN}"]


@pytest.mark.parametrize("file", [WEIGHTS, "source.spm"])
def test_damaged_file_is_removed_and_downloaded_again(hub, monkeypatch, file):
    listing = [*hub.listing()]
    monkeypatch.setattr(hub, "listing", lambda: listing)
    right = hub.files[file]
    hub.files[file] = bytes(len(right))
    assert f"{file} of {MODEL}@main is damaged: its checksum must" in refused()
    hub.files[file] = right
    folder, _ = hub_module.download(NAME)
    assert (folder / file).read_bytes() == right


@pytest.mark.parametrize(
    ("path", "status", "headers", "message"),
    [
        (
            f"/{MODEL}/resolve/main/config.json",
            403,
            {"X-Error-Code": "GatedRepo"},
            f"Ask for it at URL/{MODEL}, and log in with `hf auth login`",
        ),
        (
            f"{API}/revision/main",
            401,
            {"X-Error-Message": "Invalid credentials in Authorization header"},
            "Correct the token: log in with `hf auth login`, or set HF_TOKEN.",
        ),
        (f"{API}/revision/main", 429, {}, "Wait a few minutes"),
        (f"{API}/revision/main", 500, {}, "Check the connection"),
    ],
)
def test_refusals_of_the_hub_are_explained(
    hub, tmp_path, path, status, headers, message
):
    hub.faults[path] = [(status, headers)] * 9
    assert message.replace("URL", hub.url) in refused()
    assert not unfinished(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Helsinki-NLP/opus-mt-en-d", f"Did you mean {MODEL} or Hels"),
        (f"hf://{MODEL}@mian", "no revision 'mian'."),
        ("hf://opus", "is not the name of a model. Write hf://ORG"),
        ("hf://../a", "is not the name of a model. Write hf://ORG"),
    ],
)
def test_unknown_names_have_near_ones(text, message):
    with pytest.raises(errors.UserError, match=message.replace("?", r"\?")):
        hub_module.download(hub_module.parse(text))


def test_files_that_no_reader_knows_are_refused_before_a_download(hub):
    hub.files = SMALL | {"tf_model.h5": b"h5"}
    assert "config.json, source.spm, tf_model.h5" in refused()
    assert not [line for line in hub.requests if line.startswith("GET /H")]


def test_full_disk_is_refused_before_a_download(hub, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert "set HF_HUB_CACHE to a folder on another disk" in refused()


def test_disk_that_fills_up_is_named(hub, tmp_path, monkeypatch):
    def fail(*args, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("huggingface_hub.file_download.http_get", fail)
    with pytest.raises(OSError) as caught:
        hub_module.download(NAME)
    assert caught.value.filename == str(tmp_path / "cache")
    assert "the disk is full" in errors.explain(caught.value)
    assert not unfinished(tmp_path)


def test_offline_mode_reads_an_earlier_download(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "was not downloaded before, and HF_HUB_OFFLINE is set" in refused()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    snapshot = hub_module.download(NAME)
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub_module.download(NAME) == snapshot
    assert hub.requests == []


def test_load_imports_a_name_once(hub, tmp_path):
    hub.files = {path.name: path.read_bytes() for path in GOLDEN.iterdir()}
    hub.files["README.md"] = CARD
    folder = tmp_path / "t2t/hf/Helsinki-NLP--opus-mt-en-de@main/opus-mt-en-de"
    (folder / "checkpoints").mkdir(parents=True)  # of a killed process
    run = t2t_repro.load(f"hf://{MODEL}").run
    assert run.output_dir == folder
    origin = run.settings["imported_from"]
    assert origin["name"] == MODEL and origin["revision"] == COMMIT
    assert origin["license"] == "cc-by-4.0"
    assert WEIGHTS in origin["sha256"]
    hub.requests.clear()
    assert t2t_repro.load(f"hf://{MODEL}").run.settings == run.settings
    assert hub.requests == []
