"""Packaging: problems/ and hparams/ are installed inside t2t_repro.

As top-level packages, `hparams` and `problems` would conflict with packages on
PyPI of the same names, and a user's own hparams.py would hide ours.
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
    # HTTP in the event loop of gRPC, so that a waiting request needs no thread.
    # Maintained for ten years; its dependencies are its own components.
    "aiohttp>=3.11,<4",
    "prometheus-client>=0.23,<1",  # /metrics; without dependencies
    # grpc.health.v1; 20 kB, and only dependencies that TensorFlow has.
    "grpcio-health-checking>=1.76,<2",
]
SENTENCES = [
    # decoder --split_sentences. Maintained by Wikimedia, with rules for many
    # languages in a wheel of 1.2 MB, and without dependencies or downloads.
    "sentencex>=1.0.32,<2",
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
        "t2t_repro.serving": ["*.json", "static/*"],
    },
    install_requires=[
        # TensorFlow and TF Text must have the same minor version, since the
        # operations of TF Text are compiled against TensorFlow. TF Text 2.21.0
        # cannot be imported ("undefined symbol: icudt77_dat").
        "tensorflow>=2.21,<2.22",
        "tensorflow-text>=2.21.1,<2.22",
        "tensorboard>=2.20,<2.22",  # scalars of tf.summary need it
        # Messages of TensorFlow Serving for warm-up requests and gRPC. It has a
        # quarter of a megabyte, and only dependencies that TensorFlow has.
        "tensorflow-serving-api>=2.21,<2.22",
        "keras>=3.12,<3.16",  # layers; 3.12 is the last for Python 3.10
        "tensorflow-datasets>=4.9.10,<5",  # WMT14
        "importlib_resources>=6",  # TFDS imports it without requiring it
        "sentencepiece>=0.2.2,<0.3",  # the vocabulary
        "pyarrow>=21,<27",  # memory-mapped columns of encoded text
        "numpy>=2.1,<3",  # plans and batches
        "absl-py>=2.1,<3",  # flags
        "sacrebleu>=2.5,<3",  # scores
        "sacremoses>=0.1.1,<0.3",  # the paper's tokenized BLEU
        "num2words>=0.5.14,<0.6",  # text of number_words
        "matplotlib>=3.9,<4",  # curves of the report
        "Jinja2>=3.1,<4",  # the report's page
        "tqdm>=4.66,<5",  # progress bars
        # Locks that are released when their process ends. Also required by
        # sacreBLEU.
        "portalocker>=3.1,<5",
    ],
    extras_require={
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
        "serve": SERVE,
        "ctranslate2": ["ctranslate2>=4.7,<5"],  # exporter --format=ctranslate2
        "sentences": SENTENCES,
        "dev": [
            *SERVE,
            *SENTENCES,
            "pytest>=8,<10",
            "pytest-xdist>=3.8,<4",  # tests on all cores
            "pytest-cov>=7,<8",  # coverage of the tests
            "hypothesis>=6.100,<7",  # property tests
            # Another backend of Keras, on which layers and models are tested.
            "jax>=0.6,<0.11",  # 0.6 is the last for Python 3.10
            "ctranslate2>=4.7,<5",  # tests compare its translations with ours
            "optuna>=4,<5",  # hyperparameter search
            "scipy>=1.13,<2",  # Student's t, for verdicts on claims
            "ruff>=0.12,<0.18",
            "mypy>=1.15,<3",
            "build>=1.2,<2",  # a test builds the wheel and inspects it
            "setuptools>=77",  # builds the wheel without a download
            "pre-commit>=4,<5",
        ],
    },
    entry_points={
        "console_scripts": [
            "t2t = t2t_repro.__main__:main",
            # The names of these commands in tensor2tensor.
            *(
                f"t2t-{name.replace('_', '-')} = t2t_repro.__main__:main"
                for name in COMMANDS
            ),
        ]
    },
)
