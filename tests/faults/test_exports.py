"""Exporters and servers that are killed, and exports that are damaged."""

import contextlib
import shutil

import pytest
from forked import ok

from t2t_repro import errors
from t2t_repro.server import version_process
from t2t_repro.serving import client, saved_model

SECONDS = 1800  # what takes longer has hung
LINES = "".join(f"{a} b c d e f\n" for a in "abcdefghij" * 4)
SEARCH = ["--decode_hparams=beam_size=1"]
WARM_UP = 4  # requests that warm a server up


@pytest.fixture(scope="module")
def export_again(commands, trained):
    """Return a function that exports into a folder, with a fault."""

    def run(folder, **fault):
        return commands.run(
            "exporter",
            folder,
            f"--output_dir={trained}",
            f"--export_dir={folder}",
            *SEARCH,
            **fault,
        )

    return run


@pytest.fixture(scope="module")
def exported(export_again, tmp_path_factory):
    """Return a folder with an export."""
    folder = tmp_path_factory.mktemp("exported")
    ok(export_again(folder))
    return folder


@pytest.fixture(scope="module")
def translations(commands, trained):
    """Return the decoder's translations of LINES, without an export."""
    flags = [f"--output_dir={trained}", *SEARCH]
    text = ok(commands.run("decoder", trained, *flags, stdin=LINES))
    assert text.count("\n") == 40
    return text


@pytest.mark.slow
def test_export_survives_random_kills(
    commands, export_again, exported, translations, survive, tmp_path
):
    folder = tmp_path / "export"
    graph = exported / "1" / "saved_model.pb"

    def check():
        flags = f"--export_dir={folder}"
        queried = ok(commands.run("query", folder, flags, stdin=LINES))
        assert queried == translations
        shutil.rmtree(folder)

    survive(
        "exporter",
        lambda **fault: export_again(folder, **fault),
        check,
        changes=6,
        size=graph.stat().st_size,
        kills=3,
    )


@pytest.fixture
def served(commands, exported):
    """Return a function of a fault and ports that starts a server."""
    with contextlib.ExitStack() as stack:

        def start(fault=None, **ports):
            flags, env = commands.faulty([], exported, fault)
            server = commands.forked.serve(exported, *flags, env=env, **ports)
            return stack.enter_context(server)

        yield start


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "batch"), [("grpc", 1), ("rest", 2)])
def test_client_outlives_server_killed_in_a_request(
    commands, served, translations, count_outcome, protocol, batch
):
    """LINES make two batches."""
    server = served(f"SIGKILL run {WARM_UP + batch}")
    asked = commands.forked.start(
        "query",
        f"--server=127.0.0.1:{getattr(server, protocol)}",
        f"--protocol={protocol}",
        f"--timeout_secs={SECONDS}",
        stdin=LINES,
    )
    assert server.command.wait().returncode == -9
    count_outcome("kills", "serve", "tried")
    served(rest=server.rest, grpc=server.grpc)
    result = asked.wait()
    assert ok(result) == translations
    assert "; retrying for up to" in result.stderr
    count_outcome("kills", "serve", "survived")


@pytest.fixture
def copy(stored_export, tmp_path):
    """Return a copy of the version of the stored export."""
    return shutil.copytree(stored_export, tmp_path / "export") / "1"


def files_of(version):
    return sorted(path for path in version.rglob("*") if path.is_file())


def test_linked_folder_of_a_version_is_verified(copy, tmp_path):
    (copy / "variables").rename(tmp_path / "variables")
    (copy / "variables").symlink_to(tmp_path / "variables")
    assert saved_model.read_verified_card(copy)["files"]
    (tmp_path / "variables" / "variables.index").write_bytes(b"")
    with pytest.raises(errors.UserError, match="variables.index is damaged"):
        saved_model.read_verified_card(copy)


def test_export_without_a_file_is_refused_by_client_and_server(copy):
    (copy / "fingerprint.pb").unlink()
    message = f"{copy / 'fingerprint.pb'} is damaged: sha256 is no file"
    with pytest.raises(errors.UserError, match=message):
        client.ExportedModel(copy.parent)
    with pytest.raises(errors.UserError, match=message):
        version_process.Model(copy)


@pytest.mark.parametrize("count", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_damage_to_any_file_of_an_export_is_found(copy, damage, count):
    def read():
        return saved_model.read_verified_card(copy), [
            request.SerializeToString()
            for request in saved_model.read_warm_up(copy)
        ]

    def listed_files():
        return {name: (copy / name).read_bytes() for name in card["files"]}

    card, requests = read()
    contents = listed_files()
    assert set(card["files"]) < {
        path.relative_to(copy).as_posix() for path in files_of(copy)
    }

    def open_it():
        found, warmed = read()
        # A changed name would be one more key, which nobody reads.
        assert {name: found.get(name) for name in card} == card
        assert warmed == requests[: len(warmed)]
        assert listed_files() == contents

    for path in files_of(copy):
        damage("export", path, path, open_it, count)
