"""Files, flags and extras that the files in docker/ name."""

import json
import re

import pytest
import yaml
from processes import ROOT

DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
COMPOSE_FILES = sorted(DOCKER.glob("*.compose.yaml"))


def instructions(path):
    """Return [(instruction, arguments)] of a Dockerfile."""
    text = re.sub(r"^#.*\n", "", path.read_text("utf-8"), flags=re.M)
    lines = text.replace("\\\n", " ").splitlines()
    return [line.split(maxsplit=1) for line in lines if line]


def assert_flags(command, arguments):
    """Assert that a command or common_flags defines the flags, or fields."""
    sources = [
        ROOT / "t2t_repro" / f"{n}.py" for n in (command, "cli/common_flags")
    ]
    text = "".join(path.read_text("utf-8") for path in sources)
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        assert argument.startswith("--") and value
        assert re.search(rf'(^ +|\()"{name}",|^    {name}: ', text, re.M), name


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfile_has_what_the_build_needs_and_extras_that_exist(path):
    copied = set()
    for name, arguments in instructions(path):
        if name == "COPY" and not arguments.startswith("--from"):
            copied |= {*arguments.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    needed = "LICENSE README.md pyproject.toml setup.py docs hparams problems"
    assert copied == {*needed.split(), "t2t_repro"}
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", path.read_text("utf-8"))
    page = (ROOT / "docs" / "packages.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)`", page.split("## Extras")[1], re.M)
    assert {*extras.split(",")} <= {*listed}


def test_entry_points_are_commands_with_their_flags():
    serve = dict(instructions(DOCKER / "serve.Dockerfile"))
    entry, check = json.loads(serve["ENTRYPOINT"]), serve["HEALTHCHECK"]
    assert entry[:2] == ["t2t", "serve"]
    assert_flags(entry[1], entry[2:])
    (port,) = re.findall(r"'http://127\.0\.0\.1:(\d+)/healthz'", check)
    assert f"--health_port={port}" in entry
    train = dict(instructions(DOCKER / "train.Dockerfile"))
    assert train["ENTRYPOINT"] == '["t2t"]'


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.name)
def test_paths_of_compose_file_exist(path):
    for service in yaml.safe_load(path.read_text())["services"].values():
        if "build" in service:
            context = DOCKER / service["build"]["context"]
            assert context.resolve() == ROOT
            assert (ROOT / service["build"]["dockerfile"]).exists()
        for volume in service["volumes"]:
            if volume.startswith("."):
                assert (DOCKER / volume.split(":")[0]).is_dir()
