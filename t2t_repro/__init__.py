"""Attention Is All You Need on TensorFlow 2 and Keras 3.

Shapes in docstrings and comments use these letters:

    B  sentences (or packed rows) of a batch      D  hidden size
    L  source length, in subwords                 H  attention heads
    T  target length, in subwords                 K  a head's key or value size
    V  vocabulary                                 F  filter size of the FFN
    W  beams                                      N  pairs of a corpus

Data flow: ``problem`` -> ``text`` -> ``data`` -> ``models`` ->
``training`` -> ``decoding`` -> ``reports`` and ``serving``. CONTRIBUTING.md
draws the layers; tests/test_layering.py enforces them.
"""

import importlib.util
import pathlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t2t_repro.api import ExportedModel, Model, RemoteModel, load, train

__all__ = ["ExportedModel", "Model", "RemoteModel", "load", "train"]


def __getattr__(name: str) -> object:
    """Return a name that is looked up, or imported, on first use.

    The interface for Python imports TensorFlow.
    """
    if name == "__version__":
        from t2t_repro import errors

        return errors.version()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from t2t_repro.runtime import tensorflow_import

    with tensorflow_import.tuned():
        from t2t_repro import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """Return the names for completion, also of what is not imported yet."""
    return sorted({*globals(), *__all__, "__version__"})


def _bridge_checkout(name):
    """Make t2t_repro.NAME importable in a checkout.

    In a wheel, problems/ and hparams/ lie inside this package; in a checkout,
    beside it. Only these two folders are bridged: the repository's root on
    ``__path__`` would make ``t2t_repro.tests`` importable as well.
    """
    package = pathlib.Path(__file__).parent
    folder = package.parent / name
    if (package / name).is_dir() or not folder.is_dir():
        return
    spec = importlib.util.spec_from_file_location(
        f"{__name__}.{name}",
        folder / "__init__.py",
        submodule_search_locations=[str(folder)],
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    setattr(sys.modules[__name__], name, module)  # as an import would


_bridge_checkout("problems")
_bridge_checkout("hparams")
