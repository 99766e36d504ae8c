"""Marian models in Hugging Face's format, such as those of OPUS-MT.

    config.json                              sizes and special ids
    model.safetensors, pytorch_model.bin     one of them; or of their indices,
                                             NAME.index.json, with their parts
    vocab.json                               {token: id}
    target_vocab.json                        if the targets have their own ids
    source.spm, target.spm                   SentencePiece models
    generation_config.json                   search, if there is one

Hugging Face (transformers/models/marian/modeling_marian.py) computes positions
by the paper's formula with all sines first, while Marian, by which OPUS-MT's
models were trained, has tensor2tensor's: --hparams=pos=timing restores that.
"""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import (
    fairseq_layers,
    huggingface_settings,
    imported,
    mapped_ids,
    model_files,
    weights,
)
from t2t_repro.importing.imported import Imported
from t2t_repro.layers.position import SinesThenCosines
from t2t_repro.text.mapped_sentence_piece import MappedSentencePiece
from t2t_repro.text.token_lists import Special
from t2t_repro.text.vocabulary_pair import Vocabularies

_POSITIONS_TOLERANCE = 1e-5
_SHARED = "model.shared.weight"


def read(folder: pathlib.Path) -> Imported:
    """Read a model.

    Args:
        folder: folder of the files above.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    config = huggingface_settings.read(folder)
    names = "model.safetensors", "pytorch_model.bin"
    weights_file = model_files.find(
        folder, *names, *(f"{name}{model_files.INDEX}" for name in names)
    )
    tensors, weights_files = model_files.read(weights_file)
    pair, orders, vocabulary_files = read_vocabularies(folder, config)
    changes = huggingface_settings.hparams(
        config, "final_logits_bias" in tensors
    )
    token_files = [f for f in vocabulary_files if f.suffix == ".json"]
    model_weights = _weights(tensors, config, changes, orders, token_files)
    left_over = tensors.refuse_rest([re.escape(_SHARED)])
    search, search_files = huggingface_settings.search(folder, config)
    tokenizer = folder / "tokenizer_config.json"
    languages = (
        imported.read_json(tokenizer, dict) if tokenizer.is_file() else {}
    )
    return Imported(
        changes,
        model_weights,
        pair,
        "mapped_sentence_piece",
        search,
        (
            folder / huggingface_settings.CONFIG,
            *weights_files,
            *vocabulary_files,
            *search_files,
        ),
        (
            str(languages.get("source_lang") or ""),
            str(languages.get("target_lang") or ""),
        ),
        tokenizer,
        left_over,
    )


def read_vocabularies(
    folder: pathlib.Path, config: Mapping[str, Any]
) -> tuple[Vocabularies, list[list[int]], tuple[pathlib.Path, ...]]:
    """Return the vocabularies, their orders of ids, and the files."""
    files = [model_files.find(folder, "vocab.json")] * 2
    if (folder / "target_vocab.json").is_file():
        files[1] = folder / "target_vocab.json"
    pieces = [
        model_files.find(folder, f"{x}.spm") for x in ("source", "target")
    ]
    mapped = []
    for spm, vocab in zip(pieces, files, strict=True):
        tokens = _tokens(vocab)
        for name in ("eos_token_id", "pad_token_id", "decoder_start_token_id"):
            if not 0 <= config[name] < len(tokens):
                raise imported.refuse(
                    folder / huggingface_settings.CONFIG,
                    name,
                    f"below the number of tokens ({len(tokens):,})",
                    config[name],
                )
        special = Special(
            tokens[config["eos_token_id"]],
            "<unk>",
            tokens[config["pad_token_id"]],
        )
        mapped.append(mapped_ids.map_ids(spm, tokens, special, vocab, True))
    source, target = (MappedSentencePiece(m.model) for m in mapped)
    return (
        Vocabularies(source, target),
        [m.order for m in mapped],
        (*dict.fromkeys(files), *pieces),
    )


def _tokens(file: pathlib.Path) -> list[str]:
    """Return the tokens of a vocab.json by their ids."""
    ids = imported.read_json(file, {str: int})
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise errors.UserError(
            f"The ids in {file} must be 0, 1, 2, … {len(tokens) - 1:,}; some "
            "are missing or used twice."
        )
    return tokens


def _weights(tensors, config, changes, orders, token_files):
    """Return all weights by their roles."""
    size = config["d_model"]
    is_tied = config["tie_word_embeddings"]
    source, target, softmax = _matrices(tensors, config)
    bias = tensors.take_if_present("final_logits_bias", 1, len(target))
    imported.check_rows(
        {"encoder's embedding": source}, orders[0], token_files[0]
    )
    imported.check_rows(
        {"decoder's embedding": target, "softmax": softmax},
        orders[1],
        token_files[-1],
    )
    start = target[config["decoder_start_token_id"]]
    changes["learned_start"] = bool(start.any())
    for side in ("encoder", "decoder"):
        _check_positions(tensors, side, size)
    source, target, softmax = imported.reorder(source, target, softmax, orders)
    changes |= imported.sharing(
        is_tied,
        config["share_encoder_decoder_embeddings"]
        and np.array_equal(source, target),  # not with two lists of ids
    )
    return weights.Weights(
        weights.Side(source, _layers(tensors, "encoder", config)),
        weights.Side(target, _layers(tensors, "decoder", config)),
        softmax,
        None if bias is None else imported.rows(bias[0], orders[1]),
        start if changes["learned_start"] else None,
    )


def _matrices(tensors, config):
    """Return the embeddings of both sides, and the softmax.

    A file may have a shared matrix under several names. Without
    tie_word_embeddings, transformers 5 writes model.shared.weight and never
    reads it.
    """
    share, tie = "share_encoder_decoder_embeddings", "tie_word_embeddings"
    sides = [
        f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")
    ]
    head, size = "lm_head.weight", config["d_model"]
    if config[share] and (
        config[tie] or not all(side in tensors for side in sides)
    ):
        names = [_SHARED, *sides, *([head] if config[tie] else [])]
        source = target = tensors.take_one(
            names, f"{share} and {tie}", -1, size
        )
    else:
        source = tensors.take(sides[0], -1, size)
        names = [sides[1], *([head] if config[tie] else [])]
        target = tensors.take_one(names, tie, -1, size)
    if not config[tie] and head not in tensors:
        raise imported.refuse(
            "config.json", tie, f"true where the weights have no {head}", False
        )
    softmax = target if config[tie] else tensors.take(head, -1, size)
    return source, target, softmax


def _check_positions(tensors, side, size):
    """Compare stored positions with the formula: older files have them."""
    name = f"model.{side}.embed_positions.weight"
    stored = tensors.take_if_present(name, -1, size)
    if stored is None:
        return
    zeros = np.zeros((1, *stored.shape), np.float32)
    formula = SinesThenCosines()(zeros, np.arange(len(stored))[None])
    difference = np.abs(np.asarray(formula)[0] - stored).max()
    if difference > _POSITIONS_TOLERANCE * len(stored):
        raise imported.refuse(
            "the weights", name, "Hugging Face's sinusoids", difference
        )


def _layers(tensors, side, config):
    return [
        fairseq_layers.read(
            tensors,
            f"model.{side}.layers.{i}",
            side == "decoder",
            config["d_model"],
            config["encoder_ffn_dim"],
        )
        for i in range(config[f"{side}_layers"])
    ]
