"""Packaging: problems/ and hparams/ are installed inside t2t_repro.

site-packages gets no top-level `hparams` or `problems`: both names are taken
on PyPI, and a user's own hparams.py would shadow ours.
"""

import pathlib
import re

from setuptools import setup

ROOT = pathlib.Path(__file__).parent
COMMANDS = (
    "avg_checkpoints datagen decoder evaluate exporter query report serve "
    "show trainer"
).split()
VERSION = re.search(
    r'__version__ = "(.+)"', (ROOT / "t2t_repro/__init__.py").read_text()
)[1]
SERVE = [
    # HTTP in the event loop that gRPC runs in, too: a waiting request costs no
    # thread. Kept well for ten years; its dependencies are its own parts.
    "aiohttp>=3.11,<4",
    "prometheus-client>=0.23,<1",  # /metrics; has no dependencies
]

setup(
    name="t2t_repro",
    version=VERSION,
    description="Attention Is All You Need, reproduced on TensorFlow 2",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.13",
    packages=[
        "t2t_repro",
        "t2t_repro.data",
        "t2t_repro.decoding",
        "t2t_repro.hparams",
        "t2t_repro.layers",
        "t2t_repro.metrics",
        "t2t_repro.models",
        "t2t_repro.problems",
        "t2t_repro.reports",
        "t2t_repro.serving",
        "t2t_repro.text",
        "t2t_repro.training",
    ],
    package_dir={
        "t2t_repro": "t2t_repro",
        "t2t_repro.hparams": "hparams",
        "t2t_repro.problems": "problems",
    },
    package_data={
        "t2t_repro": ["py.typed"],
        "t2t_repro.reports": ["*.j2"],
        "t2t_repro.serving": ["static/*"],
    },
    install_requires=[
        # TensorFlow and TF Text must be of the same minor version: TF Text's
        # operations are compiled against it. Its 2.21.0 cannot be imported
        # ("undefined symbol: icudt77_dat").
        "tensorflow>=2.21,<2.22",
        "tensorflow-text>=2.21.1,<2.22",
        "tensorboard>=2.20,<2.22",  # tf.summary's scalars need it
        # TensorFlow Serving's messages, of an export's warm-up and of gRPC: a
        # quarter of a megabyte that needs only what TensorFlow needs.
        "tensorflow-serving-api>=2.21,<2.22",
        "keras>=3.12,<3.16",  # layers; 3.12 is the last for Python 3.10
        "tensorflow-datasets>=4.9.10,<5",  # WMT14
        "importlib_resources>=6",  # which TFDS imports and does not require
        "sentencepiece>=0.2.2,<0.3",  # the vocabulary
        "pyarrow>=21,<27",  # memory-mapped columns of encoded text
        "numpy>=2.1,<3",  # plans and batches
        "absl-py>=2.1,<3",  # flags
        "sacrebleu>=2.5,<3",  # scores
        "sacremoses>=0.1.1,<0.3",  # the paper's tokenized BLEU
        "num2words>=0.5.14,<0.6",  # text of number_words, without a download
        "matplotlib>=3.9,<4",  # curves of the report
        "Jinja2>=3.1,<4",  # the report's page
        "tqdm>=4.66,<5",  # progress bars
        # Locks that end with their process; sacreBLEU needs it, too.
        "portalocker>=3.1,<5",
    ],
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
        "serve": SERVE,
        "ctranslate2": ["ctranslate2>=4.7,<5"],  # exporter --format=ctranslate2
        "dev": [
            *SERVE,
            "pytest>=8,<10",
            "pytest-xdist>=3.8,<4",  # tests on all cores
            "pytest-cov>=7,<8",  # lines that tests reach
            "hypothesis>=6.100,<7",  # property tests
            # Keras's other backend: layers and models are tested on it, too.
            "jax>=0.6,<0.11",  # 0.6 is the last for Python 3.10
            "ctranslate2>=4.7,<5",  # its translations are compared with ours
            "scipy>=1.13,<2",  # Student's t in verdicts on claims
            "ruff>=0.12,<0.18",
            "mypy>=1.15,<3",
            "build>=1.2,<2",  # the wheel that a test looks into
            "setuptools>=77",  # which it is built with, without a download
            "pre-commit>=4,<5",
        ],
    },
    entry_points={
        "console_scripts": [
            "t2t = t2t_repro.__main__:main",
            # tensor2tensor's names of the same commands.
            *(
                f"t2t-{name.replace('_', '-')} = t2t_repro.__main__:main"
                for name in COMMANDS
            ),
        ]
    },
)
