"""Exports to CTranslate2, a fast inference engine for Transformers on CPUs.

    model.bin, config.json, shared_vocabulary.json    CTranslate2 loads these
    vocab.model                                       copied from the run
    model_card.json

Separate vocabularies are source_vocabulary.json and target_vocabulary.json,
with vocab.inputs.model and vocab.targets.model.

CTranslate2 reads and returns subwords as text, without EOS, which it adds.
Its search is its own, with the settings of each call. Weights are float32;
``ctranslate2.Translator(folder, compute_type="int8")`` rounds them on loading.
"""

import pathlib
from collections.abc import Sequence
from types import ModuleType

from t2t_repro import errors
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import extras, files, storage
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.text.vocabulary import EOS, PAD
from t2t_repro.text.vocabulary_pair import Vocabularies

MODEL_CARD = "model_card.json"
# The decoder's first input: an additional row, which is never an output. No
# subword has its name: subwords have no spaces.
START = "<zero vector>"


def export(
    models: Sequence[Seq2Seq],
    vocabularies: Vocabularies,
    decode_hparams: DecodeHParams,
    export_dir: str | pathlib.Path,
    card: dict,
    weights_dtype: str = "float32",
) -> pathlib.Path:
    """Write a folder that ``ctranslate2.Translator`` loads.

    The folder is written under another name and renamed when it is complete.

    Args:
        models: one model; CTranslate2 has no ensembles.
        vocabularies: vocabularies of source and target.
        decode_hparams: settings whose lengths give the number of positions.
        export_dir: the folder, which is absent or empty.
        card: entries of the model card.
        weights_dtype: float32; CTranslate2 rounds weights on loading.

    Returns:
        The folder.

    Raises:
        UserError: the folder is not empty, another process writes to it, the
            package is not installed, or CTranslate2 does not support the model.
    """
    if weights_dtype != "float32":
        raise errors.UserError(
            "CTranslate2 rounds weights on loading (compute_type) and "
            f"reads float32; got --weights_dtype={weights_dtype}."
        )
    folder = files.expand_path(export_dir).absolute()
    if storage.names(folder) or (
        folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    ):
        raise errors.UserError(
            f"{storage.name_of(folder)} already exists. Remove it, or choose "
            "another --export_dir."
        )
    if len(models) > 1:
        raise errors.UserError(
            f"CTranslate2 has no ensembles; got {len(models)} checkpoints. "
            "Choose one, or average them with avg_checkpoints."
        )
    positions = decode_hparams.max_input_length + decode_hparams.extra_length
    spec = models[0].ctranslate2_spec(import_specs(), positions)
    _add_vocabularies(spec, vocabularies)
    spec.config.add_source_eos = models[0].hparams.encode_eos
    spec.validate()
    spec.optimize()  # a shared matrix is written once
    card = card | {"weights_dtype": weights_dtype}
    with files.locked(folder, beside=True):
        # Others may be of commands that write beside it at this moment.
        files.remove_leftovers(folder.parent, lambda name: name == folder.name)
        with files.atomic_folder(folder) as temporary:
            spec.save(str(temporary))
            vocabularies.write(temporary)
            files.write_json(temporary / MODEL_CARD, card)
    return folder


def import_specs() -> ModuleType:
    """Return the module ctranslate2.specs.

    Raises:
        UserError: the package is not installed.
    """
    with extras.needed("ctranslate2", "The format ctranslate2"):
        from ctranslate2 import specs
    return specs


def _add_vocabularies(spec, vocabularies):
    """Add the subwords by id, then START, and the names of special ones.

    Raises:
        UserError: two ids have the same text, or the sides have different
            special subwords, of which CTranslate2 has one set.
    """
    sides = [side.pieces(range(side.size)) for side in vocabularies]
    for pieces in sides:
        if len({*pieces, START}) <= len(pieces):
            raise errors.UserError(
                "CTranslate2 knows subwords by their text, and two of this "
                "vocabulary are the same. Export a SavedModel instead."
            )
    source, target = (
        (pieces[_unknown(side)], pieces[EOS])
        for side, pieces in zip(vocabularies, sides, strict=True)
    )
    if source != target:
        raise errors.UserError(
            "CTranslate2 has one name of unknown text and one of EOS for both "
            f"sides; got {source} of inputs and {target} of targets. Export a "
            "SavedModel instead."
        )
    spec.register_source_vocabulary([*sides[0], START])
    spec.register_target_vocabulary([*sides[1], START])
    spec.config.unk_token, spec.config.eos_token = target
    spec.config.bos_token = START
    spec.config.decoder_start_token = START


def _unknown(vocabulary):
    """Return the id of unknown text; without one PAD, which no text has."""
    return PAD if vocabulary.unknown is None else vocabulary.unknown
