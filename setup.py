"""Packaging: problems/, hparams/ and docs/ are installed inside t2t_repro.

As top-level packages, `hparams` and `problems` would conflict with packages on
PyPI of the same names, and a user's own hparams.py would hide ours. All other
metadata is in pyproject.toml.
"""

import pathlib
import re

from setuptools import setup

ROOT = pathlib.Path(__file__).parent


def long_description() -> str:
    """Return README without links to files, which a package index lacks.

    A link becomes its text. A picture is left out, with its caption.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    target = r"\((?!https?:)[^)]*\)"
    text = re.sub(rf"!\[[^]]*\]{target}\n\n\*.*?\*\n\n", "", text, flags=re.S)
    return re.sub(rf"\[([^]]*)\]{target}", r"\1", text)


setup(
    long_description=long_description(),
    long_description_content_type="text/markdown",
    packages=[
        "t2t_repro",
        "t2t_repro.cli",
        "t2t_repro.data",
        "t2t_repro.decoding",
        "t2t_repro.docs",
        "t2t_repro.evaluation",
        "t2t_repro.hparams",
        "t2t_repro.importing",
        "t2t_repro.io",
        "t2t_repro.layers",
        "t2t_repro.metrics",
        "t2t_repro.models",
        "t2t_repro.problems",
        "t2t_repro.reports",
        "t2t_repro.runs",
        "t2t_repro.runtime",
        "t2t_repro.server",
        "t2t_repro.serving",
        "t2t_repro.sweeps",
        "t2t_repro.text",
        "t2t_repro.training",
    ],
    package_dir={
        "t2t_repro": "t2t_repro",
        "t2t_repro.docs": "docs",
        "t2t_repro.hparams": "hparams",
        "t2t_repro.problems": "problems",
    },
    include_package_data=False,  # only these:
    package_data={
        "t2t_repro": ["py.typed"],
        "t2t_repro.cli": ["*.bash"],
        "t2t_repro.docs": ["*.ipynb", "*.md"],
        "t2t_repro.reports": ["*.j2"],
        "t2t_repro.server": ["static/*"],
        "t2t_repro.serving": ["*.json"],
    },
)
