"""Layers of CTranslate2's Transformer, from the variables of a model.bin.

Their names are those of python/ctranslate2/specs/transformer_spec.py:

    encoder/layer_0/self_attention/linear_0/weight    queries, keys and values
    encoder/layer_0/self_attention/linear_1/weight    outputs
    decoder/layer_0/attention/linear_0/weight         queries
    decoder/layer_0/attention/linear_1/weight         keys and values
    decoder/layer_0/attention/linear_2/weight         outputs
    decoder/layer_0/ffn/linear_0/weight               filter
    decoder/layer_0/ffn/linear_0_noact/weight         beside a gate
    decoder/layer_0/ffn/linear_1/weight               outputs

Each sublayer has a layer_norm, and matrices are [outputs, inputs].
"""

import math
import pathlib
import re
from typing import Any

import numpy as np

from t2t_repro.importing import imported, weights
from t2t_repro.importing.ctranslate2_files import ModelFile

_SCALE_TOLERANCE = 1e-6
_SIDES = "encoder", "decoder"


class Layers:
    """Reader of layers, which also finds the hparams that they share."""

    def __init__(
        self,
        model: ModelFile,
        file: pathlib.Path,
        hidden_size: int,
        num_heads: int,
    ):
        """Find out what all layers share.

        Args:
            model: content of the model.bin.
            file: its path, for errors.
            hidden_size: D.
            num_heads: H.
        """
        self._tensors, self._attributes = model.tensors, model.attributes
        self._file = file
        self._size, self._heads = hidden_size, num_heads
        self._counts = {side: self._count(side) for side in _SIDES}
        self._has_bias = bool(
            self._tensors.names(r".*/layer_\d+/\w*attention/linear_\d/bias")
        )
        self._relative = self._tensors.names(".*/relative_position_keys")
        self._has_gate = bool(self._tensors.names(".*/linear_0_noact/weight"))
        self._width = len(
            self._tensors.take("encoder/layer_0/ffn/linear_0/weight", -1, -1)
        )
        self._head_size = self._attributes.take(
            "encoder/layer_0/self_attention/head_dim",
            hidden_size // num_heads,
        )
        self._unscaled = self._is_unscaled()

    @property
    def hparams(self) -> dict[str, Any]:
        """Hparams of the layers."""
        channels = self._heads * self._head_size
        if channels == self._size:
            channels = 0
        kind = "dot_product_unscaled" if self._unscaled else "dot_product"
        relative = 0
        if self._relative:
            table = self._tensors.take(self._relative[0], -1, -1)
            relative = (len(table) - 1) // 2
            if len(table) < 3 or len(table) % 2 == 0:
                raise imported.refuse(
                    self._file,
                    f"the number of rows of {self._relative[0]}",
                    "odd and at least 3",
                    len(table),
                )
        return {
            "filter_size": self._width,
            "num_heads": self._heads,
            **imported.layer_counts(**self._counts),
            "attention_key_channels": channels,
            "attention_value_channels": channels,
            "attention_type": kind,
            "attention_bias": self._has_bias,
            "max_relative_position": relative,
        }

    def read(self, side: str) -> list[weights.Layer]:
        """Read the layers of "encoder" or "decoder"."""
        return [
            self._layer(f"{side}/layer_{i}", side == "decoder")
            for i in range(self._counts[side])
        ]

    def norm(self, path: str) -> weights.Norm:
        """Read a layer normalization."""
        if f"{path}/gamma" in self._tensors and (
            f"{path}/beta" not in self._tensors
        ):
            raise imported.refuse(
                self._file, path, "a layer normalization", "RMS normalization"
            )
        return weights.Norm(
            self._tensors.take(f"{path}/gamma", self._size),
            self._tensors.take(f"{path}/beta", self._size),
        )

    def _count(self, side):
        names = self._tensors.names(rf"{side}/layer_\d+/.*")
        numbers = {re.findall(r"\d+", name)[0] for name in names}
        count = next(
            i for i in range(len(numbers) + 1) if str(i) not in numbers
        )
        if not count:
            raise imported.refuse(self._file, f"the {side}", "of layers", None)
        return count

    def _scale_names(self):
        """Return the names of the factors of queries of all attentions."""
        return [
            f"{side}/layer_{i}/{name}/queries_scale"
            for side in _SIDES
            for i in range(self._counts[side])
            for name in ("self_attention", "attention")
            if side == "decoder" or name == "self_attention"
        ]

    def _is_unscaled(self):
        take = self._attributes.take_float
        return {take(name, None) for name in self._scale_names()} == {1.0}

    def _layer(self, path, is_decoder):
        size, width = self._size, self._width
        ffn = f"{path}/ffn"
        linear = None
        if self._has_gate:
            linear = self._dense(f"{ffn}/linear_0_noact", size, width)
        layer = weights.Layer(
            self._attention(f"{path}/self_attention", [3]),
            self.norm(f"{path}/self_attention/layer_norm"),
            self._dense(f"{ffn}/linear_0", size, width),
            self._dense(f"{ffn}/linear_1", width, size),
            self.norm(f"{ffn}/layer_norm"),
            linear=linear,
        )
        if not is_decoder:
            return layer
        return layer._replace(
            cross_attention=self._attention(f"{path}/attention", [1, 2]),
            cross_attention_norm=self.norm(f"{path}/attention/layer_norm"),
        )

    def _dense(self, path, inputs, outputs, has_bias=True):
        """Read a projection; a bias that the file lacks is 0."""
        kernel = self._tensors.take(f"{path}/weight", outputs, inputs)
        bias = self._tensors.take_if_present(f"{path}/bias", outputs)
        if bias is None and has_bias:
            bias = np.zeros(outputs, np.float32)
        return weights.Dense(kernel.T, bias)

    def _attention(self, path, products):
        """Read an attention.

        Args:
            path: its scope.
            products: how many of queries, keys and values share a matrix.
        """
        self._check_attention(path)
        channels = self._heads * self._head_size
        projections = []
        for i, count in enumerate(products):
            dense = self._dense(
                f"{path}/linear_{i}",
                self._size,
                count * channels,
                self._has_bias,
            )
            kernels = np.split(dense.kernel, count, axis=1)
            biases = [None] * count
            if dense.bias is not None:
                biases = np.split(dense.bias, count)
            projections += map(weights.Dense, kernels, biases)
        projections[0] = self._scaled(path, projections[0])
        output = self._dense(
            f"{path}/linear_{len(products)}",
            channels,
            self._size,
            self._has_bias,
        )
        attention = weights.Attention(*projections, output)
        if not self._relative or path.endswith("/attention"):
            return attention
        rows = len(self._tensors.take(self._relative[0]))
        keys, values = (
            self._tensors.take(
                f"{path}/relative_position_{name}", rows, self._head_size
            )
            for name in ("keys", "values")
        )
        return attention._replace(relative_keys=keys, relative_values=values)

    def _check_attention(self, path):
        """Refuse an attention that differs from the others, or shares heads."""
        for name, wanted, rule in (
            ("head_dim", self._head_size, "the same everywhere"),
            ("num_heads_kv", self._heads, "num_heads: no head shares keys"),
            ("multi_query", False, "false: no head shares keys"),
        ):
            got = self._attributes.take(f"{path}/{name}", wanted)
            if got != wanted:
                raise imported.refuse(self._file, f"{path}/{name}", rule, got)

    def _scaled(self, path, query):
        """Return a projection of queries with their factor within it.

        The model divides by the square root of the size of a head, unless no
        attention has a factor.
        """
        default = self._head_size**-0.5
        factor = self._attributes.take_float(f"{path}/queries_scale", default)
        if self._unscaled or math.isclose(
            factor, default, rel_tol=_SCALE_TOLERANCE
        ):
            return query
        return weights.Dense(
            *(
                None if array is None else array * np.float32(factor / default)
                for array in query
            )
        )
