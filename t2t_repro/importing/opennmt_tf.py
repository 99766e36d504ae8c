"""Transformers of OpenNMT-tf 2.

    ckpt-500000.index, .data-…      weights, which `checkpoint` may name
    model_description.py            see opennmt_tf_description.py
    data.yml                        names the vocabularies; search
    src.vocab, tgt.vocab            see opennmt_tf_vocabularies.py

Sources: models/transformer.py, layers/transformer.py, layers/position.py,
encoders/ and decoders/ of OpenNMT-tf.
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from t2t_repro.importing import (
    imported,
    opennmt_tf_description,
    opennmt_tf_vocabularies,
    position_tables,
    tensorflow_checkpoint,
    weights,
)
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported

_END = "/.ATTRIBUTES/VARIABLE_VALUE"
_EPSILON = 1e-3  # default of Keras's LayerNormalization
_MAX_LAYERS = 1000
_MAX_NUMBER = 10_000  # of a setting of the search
# Settings of the search that change outputs and have no counterpart here, with
# the only value that is allowed.
_SEARCH_FIXED = {
    # Its sum is not that of GNMT where a word got no attention.
    "coverage_penalty": 0,
    "sampling_topk": 1,
    "decoding_noise": [],
    "replace_unknown_target": False,
}
_IGNORED = (
    "_CHECKPOINTABLE_OBJECT_GRAPH",
    r"(save_counter|optimizer)/.*",
    r".*/\.OPTIMIZER_SLOT/.*",
)


def read(path: pathlib.Path) -> Imported:
    """Read a model.

    Args:
        path: folder of the checkpoint, or the checkpoint in it.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    prefix = tensorflow_checkpoint.find(path)
    model_file = opennmt_tf_description.find(
        prefix.parent, opennmt_tf_description.MODEL
    )
    data_file = opennmt_tf_description.find(
        prefix.parent, *opennmt_tf_description.DATA
    )
    description = opennmt_tf_description.read_model(model_file)
    config = opennmt_tf_description.read_yaml(data_file)
    found = opennmt_tf_vocabularies.read(config, data_file)
    tensors = tensorflow_checkpoint.read(prefix)
    changes: dict[str, Any] = {"encode_eos": found.encode_eos}
    model_weights = _Reader(tensors, description, changes).read(found)
    left_over = tensors.refuse_rest(_IGNORED)
    files = tensorflow_checkpoint.files(prefix)
    return Imported(
        changes,
        model_weights,
        found.pair,
        found.kind,
        _search(config, data_file),
        (*files, model_file, data_file, *found.files),
        left_over=left_over,
    )


def _search(config, file):
    """Return the settings of the search as DecodeHParams."""
    params = config.get("params")
    params = params if isinstance(params, Mapping) else {}
    for name in ("beam_width", "length_penalty", "minimum_decoding_length"):
        value = params.get(name, 0)
        if type(value) not in (int, float) or not 0 <= value < _MAX_NUMBER:
            rule = f"from 0 to {_MAX_NUMBER:,}"
            raise imported.refuse(file, name, rule, value)
    for name, only in _SEARCH_FIXED.items():
        if (value := params.get(name, only)) not in (None, only):
            raise imported.refuse(file, name, repr(only), value)
    shortest = int(params.get("minimum_decoding_length", 0))  # without EOS
    return {
        # That of OpenNMT-tf's auto_config.
        "beam_size": int(params.get("beam_width", 4)) or 1,
        "alpha": float(params.get("length_penalty", 0.0)),
        "min_length": shortest + 1 if shortest else 0,
    }


@dataclasses.dataclass
class _Reader:
    """Arrays of a checkpoint by their roles."""

    tensors: Tensors
    description: Mapping[str, Any]
    changes: dict[str, Any]

    def read(self, found: FoundVocabularies) -> weights.Weights:
        """Return all weights, and complete the changes of hparams."""
        rows = [len(order) for order in found.orders]
        source, target = self._embeddings(rows)
        start = target[opennmt_tf_vocabularies.START_ID]
        kernel = self._take("decoder/output_layer/kernel")
        softmax = target if kernel is None else kernel.T
        bias = self._take("decoder/output_layer/bias", rows[1])
        self._set_structure(source.shape[1], bias is not None)
        self.changes |= imported.sharing(
            kernel is None, target is source and found.pair.have_same_ids
        )
        source, target, softmax = imported.reorder(
            source, target, softmax, found.orders
        )
        return weights.Weights(
            self._side("encoder", source),
            self._side("decoder", target),
            softmax,
            None if bias is None else imported.rows(bias, found.orders[1]),
            start,
        )

    def _embeddings(self, rows):
        """Return both embeddings, one object where the file has one."""
        found = [
            self._take(f"examples_inputter/{side}_inputter/embedding", n, -1)
            for side, n in zip(("features", "labels"), rows, strict=True)
        ]
        present = [array for array in found if array is not None]
        if not present:
            self._need("examples_inputter/features_inputter/embedding")
        if len(present) == 1 and rows[0] != rows[1]:
            raise imported.refuse(
                "the vocabularies", "size", "equal, as the embedding", rows
            )
        return found[0] if found[0] is not None else present[0], present[-1]

    def _set_structure(self, size, softmax_bias):
        """Set the hparams that the names and shapes of arrays show."""
        layers = [self._count(side) for side in ("encoder", "decoder")]
        first = "encoder/layers/0"
        width = self._need(f"{first}/ffn/layer/inner/bias", -1)
        pre_norm = self._has(f"{first}/ffn/input_layer_norm/gamma")
        learned = self._has("encoder/position_encoder/position_embedding")
        positions = "emb" if learned else "timing"
        if self.description["position_encoder_class"] is None:
            positions = "none"
        attention = f"{first}/self_attention/layer/linear_queries/bias"
        self.changes |= {
            "hidden_size": size,
            "filter_size": len(width),
            "num_heads": self.description["num_heads"],
            **imported.layer_counts(*layers),
            "attention_bias": self._has(attention),
            "softmax_bias": softmax_bias,
            "ffn_activation": self.description["ffn_activation"],
            "norm_epsilon": _EPSILON,
            "learned_start": True,  # OpenNMT-tf starts with <s>
            "pos": positions,
            "first_position": 1 if positions == "timing" else 0,
            **imported.norm_order(pre_norm),
            "layer_prepostprocess_dropout": float(self.description["dropout"]),
            "attention_dropout": float(self.description["attention_dropout"]),
            "relu_dropout": float(self.description["ffn_dropout"]),
        }

    def _count(self, side):
        pattern = rf"model/{side}/layers/([0-9]{{1,4}})/.*{re.escape(_END)}"
        numbers = {
            int(name.split("/")[3]) for name in self.tensors.names(pattern)
        }
        count = len(numbers)
        if not numbers or count > _MAX_LAYERS:
            self._need(f"{side}/layers/0/ffn/layer/inner/kernel")
        return count

    def _side(self, side, embedding):
        pre_norm = self.changes["layer_preprocess_sequence"] == "n"
        final_norm = self._norm(f"{side}/layer_norm") if pre_norm else None
        positions = None
        if self.changes["pos"] == "emb":
            name = f"{side}/position_encoder/position_embedding"
            # The first row is never used; the last is that of all positions
            # beyond the table, also here.
            table = self._need(name, -1, self.changes["hidden_size"])[1:]
            if not len(table):
                raise imported.refuse("the weights", name, "two rows", 1)
            (positions,) = position_tables.pad([table])
            self.changes["max_length"] = len(positions)
        layers = [
            self._layer(f"{side}/layers/{i}", side == "decoder")
            for i in range(self.changes[f"num_{side}_layers"])
        ]
        return weights.Side(embedding, layers, final_norm, None, positions)

    def _layer(self, path, is_decoder):
        size, width = self.changes["hidden_size"], self.changes["filter_size"]
        cross = f"{path}/attention/0"
        return weights.Layer(
            self._attention(f"{path}/self_attention"),
            self._sublayer_norm(f"{path}/self_attention"),
            self._dense(f"{path}/ffn/layer/inner", size, width),
            self._dense(f"{path}/ffn/layer/outer", width, size),
            self._sublayer_norm(f"{path}/ffn"),
            self._attention(cross) if is_decoder else None,
            self._sublayer_norm(cross) if is_decoder else None,
        )

    def _attention(self, path):
        size = self.changes["hidden_size"]
        return weights.Attention(
            *(
                self._dense(f"{path}/layer/linear_{name}", size, size)
                for name in ("queries", "keys", "values", "output")
            )
        )

    def _dense(self, path, inputs, outputs):
        return weights.Dense(
            self._need(f"{path}/kernel", inputs, outputs),
            self._take(f"{path}/bias", outputs),
        )

    def _sublayer_norm(self, path):
        pre_norm = self.changes["layer_preprocess_sequence"] == "n"
        kind = "input" if pre_norm else "output"
        return self._norm(f"{path}/{kind}_layer_norm")

    def _norm(self, path):
        size = self.changes["hidden_size"]
        gamma = self._need(f"{path}/gamma", size)
        return weights.Norm(gamma, self._need(f"{path}/beta", size))

    def _has(self, name):
        return f"model/{name}{_END}" in self.tensors

    def _take(self, name, *shape):
        return self.tensors.take_if_present(f"model/{name}{_END}", *shape)

    def _need(self, name, *shape):
        return self.tensors.take(f"model/{name}{_END}", *shape)
