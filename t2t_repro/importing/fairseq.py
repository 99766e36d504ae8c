"""Transformers of fairseq, as those of WMT that it publishes.

    model.pt, checkpoint_best.pt     weights and settings
    dict.en.txt, dict.de.txt         see fairseq_vocabularies.py
    bpecodes

Sources: models/transformer/, modules/transformer_layer.py,
modules/multihead_attention.py and sequence_generator.py of fairseq.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import (
    fairseq_layers,
    fairseq_settings,
    fairseq_vocabularies,
    imported,
    model_files,
    position_tables,
    weights,
)
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import FoundVocabularies, Imported

_NAMES = "model.pt", "checkpoint_best.pt", "checkpoint_last.pt"
# Tables of the formula of positions; copies that fairseq 0.12 makes of an
# encoder layer's weights when it loads them; numbers of versions.
_IGNORED = (
    r"(en|de)coder\.embed_positions\.(weights|_float_tensor)",
    r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)",
    r"(en|de)coder\.version",
)
_VERSION_WITH_FINAL_NORM = 3
_SIDES = "encoder", "decoder"


def read(
    path: pathlib.Path, tokenizer: str = "", languages: str = ""
) -> Imported:
    """Read a model.

    Args:
        path: folder of the files above, or the file of weights in it.
        tokenizer: "moses" or "none", what fairseq's --tokenizer was; "": as
            the settings say.
        languages: "en-de", where the settings name none.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    file = path
    if path.is_dir():
        found = sorted(path.glob("*.pt"))
        file = found[0] if len(found) == 1 else model_files.find(path, *_NAMES)
    checkpoint = model_files.read_checkpoint(file)
    return convert(checkpoint, file, tokenizer, languages)


def convert(
    checkpoint: Mapping[str, Any],
    file: pathlib.Path,
    tokenizer: str = "",
    languages: str = "",
) -> Imported:
    """Convert the content of a checkpoint.

    Args:
        checkpoint: result of model_files.read_checkpoint().
        file: its path, beside which the vocabularies are.
        tokenizer: as of read().
        languages: as of read().

    Raises:
        UserError: as of read().
    """
    settings = fairseq_settings.read(checkpoint, file, languages)
    state = checkpoint.get("model")
    if not isinstance(state, Mapping):
        raise errors.UserError(f"{file} has no weights under `model`.")
    tensors = Tensors(state, str(file))
    found = fairseq_vocabularies.read(file.parent, settings, tokenizer)
    changes = fairseq_settings.changes(settings)
    model_weights = _weights(tensors, settings, changes, found)
    left_over = tensors.refuse_rest(_IGNORED)
    return Imported(
        changes,
        model_weights,
        found.pair,
        found.kind,
        # Defaults of fairseq-generate, which no file has; its min_len=1 does
        # not count EOS.
        {
            "beam_size": 5,
            "alpha": 1.0,
            "length_penalty_offset": 0,
            "min_length": 2,
        },
        (file, *dict.fromkeys(found.files)),
        (settings["source_lang"], settings["target_lang"]),
        file,
        left_over,
    )


def _weights(
    tensors: Tensors,
    settings: Mapping[str, Any],
    changes: dict[str, Any],
    found: FoundVocabularies,
) -> weights.Weights:
    """Return all weights by their roles, and complete the changes."""
    source, target, softmax = _matrices(tensors, settings, found.orders)
    start = target[fairseq_vocabularies.EOS_ID]
    source, target, softmax = imported.reorder(
        source, target, softmax, found.orders
    )
    # fairseq stores the copies of what it shares.
    changes |= imported.sharing(
        np.array_equal(softmax, target),
        np.array_equal(source, target) and found.pair.have_same_ids,
    )
    tables: Sequence[np.ndarray | None] = [None, None]
    if (
        settings["encoder_learned_pos"]
        and not settings["no_token_positional_embeddings"]
    ):
        # fairseq refuses positions beyond its tables.
        tables = positions = position_tables.pad(
            [_positions(tensors, side, settings) for side in _SIDES]
        )
        changes["max_length"] = len(positions[0])
    return weights.Weights(
        _side(tensors, "encoder", source, settings, tables[0]),
        _side(tensors, "decoder", target, settings, tables[1]),
        softmax,
        start=start,
    )


def _matrices(tensors, settings, orders):
    """Return the embeddings of both sides, and the softmax.

    fairseq stores a shared matrix under each of its names.
    """
    size, rows = settings["encoder_embed_dim"], [len(o) for o in orders]
    everything, outputs = (
        "share_all_embeddings",
        "share_decoder_input_output_embed",
    )
    sides = [f"{side}.embed_tokens.weight" for side in _SIDES]
    heads = ["decoder.output_projection.weight", "decoder.embed_out"]
    if settings[everything]:
        one = tensors.take_one([*sides, *heads], everything, rows[0], size)
        return one, one, one
    source = tensors.take(sides[0], rows[0], size)
    if settings[outputs]:
        names = [sides[1], *heads]
        target = softmax = tensors.take_one(names, outputs, rows[1], size)
    else:
        target = tensors.take(sides[1], rows[1], size)
        reason = "their use: both are the softmax"
        softmax = tensors.take_one(heads, reason, rows[1], size)
    return source, target, softmax


def _positions(tensors, side, settings):
    """Return learned positions, from that of the first token on."""
    name = f"{side}.embed_positions.weight"
    table = tensors.take(name, -1, settings["encoder_embed_dim"])
    first = fairseq_vocabularies.PAD_ID + 1
    if len(table) <= first:
        raise imported.refuse(
            "the weights", name, f"of more than {first} rows", len(table)
        )
    return table[first:]


def _side(tensors, side, embedding, settings, positions):
    size = settings["encoder_embed_dim"]

    def norm(name):
        return weights.Norm(
            tensors.take(f"{side}.{name}.weight", size),
            tensors.take(f"{side}.{name}.bias", size),
        )

    final_norm = embedding_norm = None
    if settings["encoder_normalize_before"]:
        version = tensors.take_if_present(f"{side}.version", 1)
        if version is None or version[0] < _VERSION_WITH_FINAL_NORM:
            raise imported.refuse(
                "the weights",
                f"{side}.version",
                f"{_VERSION_WITH_FINAL_NORM} where layers are normalized "
                "before: earlier versions have no norm after them",
                None if version is None else float(version[0]),
            )
        final_norm = norm("layer_norm")
    if settings["layernorm_embedding"]:
        embedding_norm = norm("layernorm_embedding")
    layers = [
        fairseq_layers.read(
            tensors,
            f"{side}.layers.{i}",
            side == "decoder",
            size,
            settings["encoder_ffn_embed_dim"],
        )
        for i in range(settings[f"{side}_layers"])
    ]
    return weights.Side(
        embedding, layers, final_norm, embedding_norm, positions
    )
