"""Transformers of tensor2tensor.

    model.ckpt-250000.index, .data-…    weights, which `checkpoint` may name
    hparams.json                        settings
    vocab.….subwords                    or two, for each language
    flags.txt                           if it is there, names the problem

t2t-trainer writes the first and the last two into its --output_dir; the
vocabulary is in its --data_dir.

The target-space embedding adds one of 32 vectors to all embeddings of inputs:
hparam inputs_bias. The problem has the number of the vector, and no file has
it. It is 0 since tensor2tensor 1.5.3, whose hparams.json has the settings of
Adafactor. Adam's moments, if the checkpoint has them, show which vector was
trained. Otherwise, hparams.json must have "target_space_id".
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import arrays, imported, weights
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import Imported
from t2t_repro.text.t2t_subwords import T2TSubwords
from t2t_repro.text.vocabulary_pair import Vocabularies

# Optimizer's variables, and statistics.
_IGNORED = (
    r"(.*/)?(training|losses_avg|train_stats)/.*",
    r"(.*/)?(global_step|learning_rate|beta[12]_power|problem_\d+_steps)",
    r".*/(Adam|Adam_1|Adafactor|Momentum|ExponentialMovingAverage)",
)


def read(path: pathlib.Path) -> Imported:
    """Read a model.

    Args:
        path: folder of the files above, or the checkpoint in it.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    prefix = arrays.find_checkpoint(path)
    folder = prefix.parent
    file = folder / HPARAMS
    found, settings = read_settings(file)
    languages, flags_file = problem_languages(folder)
    tensors = arrays.read_checkpoint_arrays(prefix)
    vocabulary_files = _vocabulary_files(folder, languages)
    pair = _vocabularies(vocabulary_files, settings["vocab_divisor"])
    changes = hparams_changes(settings)
    model_weights = _Reader(tensors, settings, changes).read(pair, found, file)
    left_over = tensors.refuse_rest(_IGNORED)
    return Imported(
        changes,
        model_weights,
        pair,
        "t2t_subwords",
        {},  # tensor2tensor's flags, not its files, have the search
        (
            *arrays.checkpoint_files(prefix),
            file,
            *vocabulary_files,
            *flags_file,
        ),
        languages,
        left_over=left_over,
    )


def _vocabulary_files(folder, languages):
    """Return the file of both vocabularies, or the two files."""
    files = sorted(folder.glob("vocab.*"))
    if len(files) == 1:
        return files
    by_language = {file.suffix[1:]: file for file in files}
    if len(files) == 2 and by_language.keys() == set(languages):
        return [by_language[language] for language in languages]
    raise errors.UserError(
        f"{folder} has {len(files)} vocab.* files. Copy the model's "
        "vocabulary, such as vocab.translate_ende_wmt32k.32768.subwords, from "
        "tensor2tensor's --data_dir; or both, such as "
        "vocab.translate_enzh_wmt32k.32768.subwords.en and .zh, with a file "
        "flags.txt that has the line --problem=translate_enzh_wmt32k."
    )


def _vocabularies(files: Sequence[pathlib.Path], divisor: int) -> Vocabularies:
    """Read the vocabularies, with empty subwords for ids without one."""
    loaded = []
    for file in files:
        vocabulary = T2TSubwords.load(file)
        missing = -vocabulary.size % divisor
        if missing:
            model = vocabulary.model.removesuffix(b"\n")
            vocabulary = T2TSubwords(model + b"\n''" * missing + b"\n")
        loaded.append(vocabulary)
    return Vocabularies(loaded[0], loaded[-1])


@dataclasses.dataclass
class _Reader:
    """Arrays of a checkpoint by their roles."""

    tensors: Tensors
    settings: Mapping[str, Any]
    changes: dict[str, Any]

    def __post_init__(self) -> None:
        suffix = "encoder/layer_0/self_attention/multihead_attention/q/kernel"
        found = self.tensors.names(rf"(?!.*training/).*\b{suffix}")
        self.body = (found or [f"transformer/body/{suffix}"])[0].removesuffix(
            suffix
        )
        self.size = self.settings["hidden_size"]

    def read(
        self, pair: Vocabularies, found: Mapping[str, Any], file: pathlib.Path
    ) -> weights.Weights:
        """Return all weights, and complete the changes of hparams."""
        source, target, softmax = self._matrices(pair)
        bias = None
        if self.changes["inputs_bias"]:
            bias = self._target_space(found, file)
        return weights.Weights(
            self._side("encoder", source),
            self._side("decoder", target),
            softmax,
            inputs_bias=bias,
        )

    def _matrices(self, pair):
        """Return the embeddings and the softmax [V, D]."""
        settings, kinds = self.settings, ("input_emb", "target_emb", "softmax")
        sizes = pair.source.size, pair.target.size, pair.target.size
        # T2TModel.__init__ ignores the setting where the sizes differ.
        is_tied = (
            settings["shared_embedding_and_softmax_weights"]
            and sizes[0] == sizes[1]
        )
        if settings["shared_embedding"]:
            kinds = "shared", "shared", "softmax"
        if is_tied:
            kinds = ("shared",) * 3
        arrays = [self._matrix(*k) for k in zip(sizes, kinds, strict=True)]
        self.changes |= imported.sharing(is_tied, pair.is_shared)
        return arrays

    def _matrix(self, vocab_size, kind):
        scope = f"symbol_modality_{vocab_size}_{self.size}/{kind}"
        found = self.tensors.names(rf"(?!.*training/)(.*/)?{scope}/weights_\d+")
        names = [name.rpartition("_")[0] for name in found]
        if len(set(names)) != 1:
            sizes = self.tensors.names(r".*symbol_modality_\d+_\d+/.*_0")
            raise errors.UserError(
                f"The checkpoint has {len(set(names))} matrices {scope}, for "
                f"the {vocab_size:,} subwords of the vocabulary; it has "
                f"{', '.join(sizes[:4]) or 'none at all'}. Use the vocabulary "
                "that the model was trained with."
            )
        shards = [
            self.tensors.take(f"{names[0]}_{i}", -1, self.size)
            for i in range(len(found))
        ]
        return np.concatenate(shards)

    def _target_space(self, found, file):
        """Return the vector that is added to all embeddings of inputs."""
        (name, *_) = self.tensors.names(
            r"(?!.*training/).*\btarget_space_embedding/kernel"
        ) or [f"{self.body}target_space_embedding/kernel"]
        table = self.tensors.take(name, -1, self.size)
        row = found.get("target_space_id")
        if row is None and "optimizer_adafactor_beta1" in found:
            row = 0
        trained = self._trained_rows(name, table.shape)
        if row is None and len(trained) == 1:
            (row,) = trained
        if not isinstance(row, int) or not 0 <= row < len(table):
            raise errors.UserError(
                "The files do not say which of the vectors of the "
                f"target-space embedding the model adds; got {row!r}. Add "
                f'"target_space_id" to {file}: 0 if tensor2tensor 1.5.3 or '
                "later trained the model; before, that of the problem's "
                "target_space_id: EN_TOK is 3, FR_TOK 6, DE_TOK 8."
            )
        if trained and row not in trained:
            raise errors.UserError(
                f"Vector {row} of the target-space embedding was never "
                f"trained, as Adam's moments show, but {trained} were. "
                f'Correct "target_space_id" in {file}.'
            )
        return table[row]

    def _trained_rows(self, name, shape):
        """Return the rows with moments of Adam; none if they are unknown."""
        moments = self.tensors.names(rf"(.*/)?{re.escape(name)}/Adam_1")
        if not moments:
            return []
        table = self.tensors.take(moments[0], *shape)
        return np.flatnonzero(table.any(axis=1)).tolist()

    def _side(self, side, embedding):
        count = (
            self.settings[f"num_{side}_layers"]
            or self.settings["num_hidden_layers"]
        )
        layers = [self._layer(side, i) for i in range(count)]
        final_norm, positions = None, None
        if self.settings["layer_preprocess_sequence"] == "n":
            final_norm = self._norm(f"{self.body}{side}")
        if self.settings["pos"] == "emb":
            kind = "inputs" if side == "encoder" else "targets"
            table = self.tensors.take(
                f"{self.body}{kind}_positional_embedding",
                self.settings["max_length"],
                self.size,
            )
            # Positions beyond tensor2tensor's table get zeros, beyond ours the
            # last row.
            missing = self.changes["max_length"] - len(table)
            positions = np.pad(table, ((0, missing), (0, 0)))
        return weights.Side(embedding, layers, final_norm, None, positions)

    def _layer(self, side, i):
        at = f"{self.body}{side}/layer_{i}"
        width, is_decoder = self.settings["filter_size"], side == "decoder"
        return weights.Layer(
            self._attention(f"{at}/self_attention"),
            self._norm(f"{at}/self_attention"),
            self._dense(f"{at}/ffn", "conv1", self.size, width),
            self._dense(f"{at}/ffn", "conv2", width, self.size),
            self._norm(f"{at}/ffn"),
            self._attention(f"{at}/encdec_attention") if is_decoder else None,
            self._norm(f"{at}/encdec_attention") if is_decoder else None,
        )

    def _attention(self, path):
        keys = self.settings["attention_key_channels"] or self.size
        values = self.settings["attention_value_channels"] or self.size
        return weights.Attention(
            *(
                weights.Dense(
                    self.tensors.take(
                        f"{path}/multihead_attention/{name}/kernel", *shape
                    ),
                    None,
                )
                for name, shape in (
                    ("q", (self.size, keys)),
                    ("k", (self.size, keys)),
                    ("v", (self.size, values)),
                    ("output_transform", (values, self.size)),
                )
            )
        )

    def _dense(self, path, name, inputs, outputs):
        """Read a layer; early versions had convolutions of width 1."""
        scope = f"{path}/conv_hidden_relu/{name}"
        if f"{scope}/kernel" in self.tensors:
            kernel = self.tensors.take(f"{scope}/kernel", 1, 1, inputs, outputs)
        else:
            scope = f"{path}/{name}"
            kernel = self.tensors.take(f"{scope}/kernel", inputs, outputs)
        return weights.Dense(
            kernel.reshape(inputs, outputs),
            self.tensors.take(f"{scope}/bias", outputs),
        )

    def _norm(self, path):
        pre_norm = self.settings["layer_preprocess_sequence"] == "n"
        kind = "layer_prepostprocess" if pre_norm else "layer_postprocess"
        scope = f"{path}/{kind}/layer_norm"
        return weights.Norm(
            self.tensors.take(f"{scope}/layer_norm_scale", self.size),
            self.tensors.take(f"{scope}/layer_norm_bias", self.size),
        )


# Settings of tensor2tensor's Transformers, in terms of our hparams.

HPARAMS, FLAGS = "hparams.json", "flags.txt"
_SHAPE = {
    "hidden_size": int,
    "filter_size": int,
    "num_heads": int,
    "num_hidden_layers": int,
    "layer_preprocess_sequence": str,
    "layer_postprocess_sequence": str,
}
# Values of transformer_base_v1 for what hparams.json lacks. All that the model
# reads is here; what must have this value is not in _FREE.
_DEFAULTS: dict[str, Any] = {
    "num_encoder_layers": 0,
    "num_decoder_layers": 0,
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "pos": "timing",
    "max_length": 256,
    "norm_epsilon": 1e-6,
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "shared_embedding_and_softmax_weights": True,
    "shared_embedding": False,
    "multiply_embedding_mode": "sqrt_depth",
    "vocab_divisor": 1,
    "use_target_space_embedding": True,
    "ffn_layer": "dense_relu_dense",
    "norm_type": "layer",
    "self_attention_type": "dot_product",
    "max_relative_position": 0,
    "attention_variables_3d": False,
    "proximity_bias": False,
    "causal_decoder_self_attention": True,
    "unidirectional_encoder": False,
    "hard_attention_k": 0,
    "num_area_layers": 0,
    "nbr_decoder_problems": 1,
    "prepend_mode": "none",
    "bottom": {},
    "top": {},
    "name": {},
}
_FREE = [*_DEFAULTS][:15]
_MAX_DIVISOR = 4096
_FFN_LAYERS = "dense_relu_dense", "conv_hidden_relu"
_PROBLEM = re.compile(
    r"^--problems?=['\"]?(\w*?translate_([a-z]{2})([a-z]{2})_\w+)", re.M
)


def read_settings(file: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what hparams.json has, and the settings that the model reads.

    Raises:
        UserError: it cannot be read, or a setting cannot be represented.
    """
    found = imported.read_json(file, _SHAPE)
    return found, _settings(found, file)


def _settings(found, file):
    """Return the settings that the model reads; refuse others' values."""
    settings = {**_DEFAULTS, **{key: found[key] for key in _SHAPE}}
    for name, default in _DEFAULTS.items():
        value = found.get(name, default)
        settings[name] = value
        if type(value) is not type(default) and not (
            isinstance(default, float | bool) and isinstance(value, int | float)
        ):
            raise imported.refuse(
                file, name, f"of type {type(default).__name__}", value
            )
        if name not in _FREE and value != default:
            if name == "ffn_layer" and value in _FFN_LAYERS:
                continue
            raise imported.refuse(file, name, repr(default), value)
    norms = (
        settings["layer_preprocess_sequence"],
        settings["layer_postprocess_sequence"],
    )
    for name, is_right, rule in (
        (
            "layer_postprocess_sequence",
            norms in (("none", "dan"), ("n", "da")),
            "'dan' after 'none' (post-norm) or 'da' after 'n' (pre-norm)",
        ),
        (
            "vocab_divisor",
            1 <= settings["vocab_divisor"] <= _MAX_DIVISOR,
            f"from 1 to {_MAX_DIVISOR:,}",
        ),
        (
            "pos",
            settings["pos"] in ("timing", "emb", "none"),
            "'timing', 'emb' or 'none'",
        ),
    ):
        if not is_right:
            raise imported.refuse(file, name, rule, settings[name])
    return settings


def hparams_changes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hparams that differ from those of fine_tuning."""
    same = (
        *_SHAPE,
        "num_encoder_layers",
        "num_decoder_layers",
        "attention_key_channels",
        "attention_value_channels",
        "pos",
        "norm_epsilon",
        "layer_prepostprocess_dropout",
        "attention_dropout",
        "relu_dropout",
    )
    scaled = settings["multiply_embedding_mode"] == "sqrt_depth"
    result = {name: settings[name] for name in same}
    if settings["pos"] == "emb":
        # A multiple of 8 that has a row for positions beyond the table.
        result["max_length"] = (settings["max_length"] // 8 + 1) * 8
    return result | {
        "multiply_embedding_mode": "sqrt_depth" if scaled else "none",
        "inputs_bias": bool(settings["use_target_space_embedding"]),
    }


def problem_languages(
    folder: pathlib.Path,
) -> tuple[tuple[str, str], tuple[pathlib.Path, ...]]:
    """Return the languages, by the problem in flags.txt, and the file."""
    file = folder / FLAGS
    if not file.is_file():
        return ("", ""), ()
    problem = _PROBLEM.search(file.read_text("utf-8", "replace"))
    if problem is None:
        return ("", ""), (file,)
    first, second = problem[2], problem[3]
    if "_rev" in problem[1]:
        first, second = second, first
    return (first, second), (file,)
