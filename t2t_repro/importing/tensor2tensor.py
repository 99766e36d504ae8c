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

import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import arrays, imported, model_files, weights
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported
from t2t_repro.importing.model_files import Setting
from t2t_repro.text.t2t_subwords import T2TSubwords
from t2t_repro.text.vocabulary_pair import Vocabularies

HPARAMS, FLAGS = "hparams.json", "flags.txt"
# After the scope of the body, which differs. Early versions had convolutions of
# width 1.
_NAMES = weights.Names(
    {"norm": "{side}/{order}/layer_norm/layer_norm_?"},
    {
        "self_attention/{query key value output_projection}": (
            "self_attention/multihead_attention/{q k v output_transform}/?"
        ),
        "self_attention/norm": "self_attention/{order}/layer_norm/layer_norm_?",
        "cross_attention/{query key value output_projection}": (
            "encdec_attention/multihead_attention/{q k v output_transform}/?"
        ),
        "cross_attention/norm": (
            "encdec_attention/{order}/layer_norm/layer_norm_?"
        ),
        "ffn/{filter output_projection}": (
            "ffn/{conv1 conv2}/?",
            "ffn/conv_hidden_relu/{conv1 conv2}/?",
        ),
        "ffn/norm": "ffn/{order}/layer_norm/layer_norm_?",
    },
    at="{side}/layer_{i}/",
    dense=("kernel", "bias"),
    norm=("scale", "bias"),
    order=("layer_postprocess", "layer_prepostprocess"),
)
# Optimizer's variables, and statistics.
_IGNORED = (
    r"(.*/)?(training|losses_avg|train_stats)/.*",
    r"(.*/)?(global_step|learning_rate|beta[12]_power|problem_\d+_steps)",
    r".*/(Adam|Adam_1|Adafactor|Momentum|ExponentialMovingAverage)",
)
# Settings that are hparams here, with values of transformer_base_v1 for what
# hparams.json lacks.
_SAME = {
    "hidden_size": int,
    "filter_size": int,
    "num_heads": int,
    "num_hidden_layers": int,
    "layer_preprocess_sequence": str,
    "layer_postprocess_sequence": str,
    "num_encoder_layers": 0,
    "num_decoder_layers": 0,
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "norm_epsilon": 1e-6,
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
}
_SETTINGS = {
    name: Setting(default, name) for name, default in _SAME.items()
} | {
    "pos": Setting("timing", "pos", ("timing", "emb", "none")),
    "max_length": Setting(256, below=math.inf),
    "shared_embedding_and_softmax_weights": Setting(True),
    "shared_embedding": Setting(False),
    "multiply_embedding_mode": Setting("sqrt_depth"),
    "vocab_divisor": Setting(1, lowest=1, below=4097),
    "use_target_space_embedding": Setting(True, "inputs_bias"),
    "ffn_layer": Setting(
        "dense_relu_dense", values=("dense_relu_dense", "conv_hidden_relu")
    ),
}
_FIXED = {
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
_PROBLEM = re.compile(
    r"^--problems?=['\"]?(\w*?translate_([a-z]{2})([a-z]{2})_\w+)", re.M
)


def read(path: pathlib.Path) -> Imported:
    """Read a model: a folder of these files, or a checkpoint in it."""
    prefix = arrays.find_checkpoint(path)
    folder = prefix.parent
    file = folder / HPARAMS
    stored, settings, hparams = read_settings(file)
    languages, flags_file = _problem_languages(folder)
    tensors = arrays.read_checkpoint_arrays(prefix)
    found = _vocabularies(folder, languages, settings["vocab_divisor"])
    # The scope of encoder and decoder.
    end = "encoder/layer_0/self_attention/multihead_attention/q/kernel"
    bodies = tensors.names(rf"(?!.*training/).*\b{end}")
    body = (bodies or [f"transformer/body/{end}"])[0].removesuffix(end)
    model_weights = _weights(tensors, settings, hparams, found.pair, body)
    if hparams["inputs_bias"]:
        model_weights["inputs_bias"] = _target_space(
            tensors, stored, hparams["hidden_size"], body, file
        )
    return Imported(
        hparams,
        model_weights,
        found,
        {},  # tensor2tensor's flags, not its files, have the search
        (*arrays.checkpoint_files(prefix), file, *found.files, *flags_file),
        tensors.refuse_rest(_IGNORED),
    )


def read_settings(
    file: pathlib.Path,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return what hparams.json has, settings of the model, and hparams of them.

    Raises:
        UserError: it cannot be read, or a setting cannot be represented.
    """
    found = model_files.read_json(file, dict)
    # null is the None of transformer_relative.
    pos = {"pos": found.get("pos", _SETTINGS["pos"].default) or "none"}
    settings, hparams = model_files.read_settings(found | pos, _SETTINGS, file)
    model_files.require_fixed(file, found, _FIXED)
    norms = [settings[f"layer_{x}process_sequence"] for x in ("pre", "post")]
    rule = "'dan' after 'none' (post-norm) or 'da' after 'n' (pre-norm)"
    is_right = norms in (["none", "dan"], ["n", "da"])
    name = "layer_postprocess_sequence"
    model_files.require(file, settings, name, is_right, rule)
    is_scaled = settings["multiply_embedding_mode"] == "sqrt_depth"
    hparams["multiply_embedding_mode"] = "sqrt_depth" if is_scaled else "none"
    if settings["pos"] == "emb":
        # A multiple of 8 that has a row for positions beyond the table.
        hparams["max_length"] = (settings["max_length"] // 8 + 1) * 8
    return found, settings, hparams


def _weights(
    tensors: Tensors,
    settings: Mapping[str, Any],
    hparams: dict[str, Any],
    pair: Vocabularies,
    body: str,
) -> dict[str, np.ndarray]:
    """Return the weights by path, and complete the hparams."""
    size = hparams["hidden_size"]
    sizes = pair.source.size, pair.target.size, pair.target.size
    # T2TModel.__init__ ignores the setting where the sizes differ.
    is_tied = (
        settings["shared_embedding_and_softmax_weights"]
        and sizes[0] == sizes[1]
    )
    kinds = ["input_emb", "target_emb", "softmax"]
    if settings["shared_embedding"]:
        kinds = ["shared", "shared", "softmax"]
    if is_tied:
        kinds = ["shared"] * 3
    result = {
        f"{name}/weight": _matrix(tensors, vocab_size, size, kind)
        for name, vocab_size, kind in zip(
            ("inputs_embedding", "targets_embedding", "softmax"),
            sizes,
            kinds,
            strict=True,
        )
    }
    hparams |= imported.sharing(result, pair)
    if hparams["pos"] == "emb":
        # Positions beyond tensor2tensor's table get zeros, beyond ours the
        # last row.
        rows = settings["max_length"]
        for kind in ("inputs", "targets"):
            name = f"{body}{kind}_positional_embedding"
            result[f"{kind}_positions/table"] = np.pad(
                tensors.take(name, rows, size),
                ((0, hparams["max_length"] - rows), (0, 0)),
            )
    names = _NAMES._replace(scope=body)
    return result | weights.read_stacks(tensors, names, hparams)


def _matrix(tensors, vocab_size, size, kind):
    """Return a matrix [V, D], which may be divided by rows."""
    scope = f"symbol_modality_{vocab_size}_{size}/{kind}"
    found = tensors.names(rf"(?!.*training/)(.*/)?{scope}/weights_\d+")
    names = [name.rpartition("_")[0] for name in found]
    if len(set(names)) != 1:
        sizes = tensors.names(r".*symbol_modality_\d+_\d+/.*_0")
        raise errors.UserError(
            f"The checkpoint has {len(set(names))} matrices {scope}, for "
            f"the {vocab_size:,} subwords of the vocabulary; it has "
            f"{', '.join(sizes[:4]) or 'none at all'}. Use the vocabulary "
            "that the model was trained with."
        )
    return np.concatenate(
        [tensors.take(f"{names[0]}_{i}", -1, size) for i in range(len(found))]
    )


def _target_space(tensors, stored, size, body, file):
    """Return the vector that is added to all embeddings of inputs."""
    (name, *_) = tensors.names(
        r"(?!.*training/).*\btarget_space_embedding/kernel"
    ) or [f"{body}target_space_embedding/kernel"]
    table = tensors.take(name, -1, size)
    row = stored.get("target_space_id")
    if row is None and "optimizer_adafactor_beta1" in stored:
        row = 0
    trained = []  # rows with moments of Adam; none if they are unknown
    if moments := tensors.names(rf"(.*/)?{re.escape(name)}/Adam_1"):
        of_rows = tensors.take(moments[0], *table.shape).any(axis=1)
        trained = np.flatnonzero(of_rows).tolist()
    if row is None and len(trained) == 1:
        (row,) = trained
    if not isinstance(row, int) or not 0 <= row < len(table):
        raise errors.UserError(
            "The files do not say which of the vectors of the target-space "
            f"embedding the model adds; got {errors.shown(row)}. Add "
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


def _vocabularies(
    folder: pathlib.Path, languages: tuple[str, str], divisor: int
) -> FoundVocabularies:
    """Read the vocabularies, with empty subwords for ids without one."""
    files, loaded = _vocabulary_files(folder, languages), []
    for file in files:
        vocabulary = T2TSubwords.load(file)
        missing = -vocabulary.size % divisor
        if missing:
            model = vocabulary.model.removesuffix(b"\n")
            vocabulary = T2TSubwords(model + b"\n''" * missing + b"\n")
        loaded.append(vocabulary)
    pair = Vocabularies(loaded[0], loaded[-1])
    orders = [list(range(side.size)) for side in pair]
    return FoundVocabularies(pair, orders, files, "t2t_subwords", languages)


def _problem_languages(
    folder: pathlib.Path,
) -> tuple[tuple[str, str], tuple[pathlib.Path, ...]]:
    """Return the languages, by the problem in flags.txt, and the file."""
    file = folder / FLAGS
    if not file.is_file():
        return ("", ""), ()
    problem = _PROBLEM.search(file.read_text("utf-8", "replace"))
    name, first, second = problem.groups() if problem else ("", "", "")
    # registry.parse_problem_name: the suffixes may follow each other.
    if name.removesuffix("_copy").endswith("_rev"):
        first, second = second, first
    return (first, second), (file,)
