"""Packages of extras that are missing, and the commands that install them."""

from importlib import metadata

import pytest

from t2t_repro import errors

REQUIREMENTS = [
    "numpy<3,>=2.1",
    'aiohttp<4,>=3.11; extra == "serve"',
    "six ; extra == 'serve'",
    'tensorflow[and-cuda]<2.22,>=2.21; python_version < "4" and extra == "gpu"',
    'pytest<10,>=8; extra == "serve-tests"',
]


@pytest.fixture
def requirements(monkeypatch):
    """Replace the metadata of the installed package; return its list."""
    listed = [*REQUIREMENTS]
    monkeypatch.setattr(metadata, "requires", {"t2t_repro": listed}.get)
    return listed


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("serve", "pip install 'aiohttp<4,>=3.11' six"),
        ("gpu", "pip install 'tensorflow[and-cuda]<2.22,>=2.21'"),
    ],
)
def test_command_names_the_packages_of_the_extra(requirements, extra, command):
    assert errors.install_command(extra) == command


def test_missing_package_is_named_with_purpose_and_command(requirements):
    with pytest.raises(errors.UserError) as raised:
        with errors.needed("serve", "The server"):
            import no_such_package.part  # noqa: F401
    assert str(raised.value) == (
        "The server needs no_such_package, which is not installed. Install the "
        "extra serve: pip install 'aiohttp<4,>=3.11' six"
    )


def test_missing_module_of_our_own_is_not_explained():
    with pytest.raises(ModuleNotFoundError, match="t2t_repro.absent"):
        with errors.needed("serve", "The server"):
            import t2t_repro.absent  # noqa: F401
