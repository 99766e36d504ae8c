"""A model's folder for CTranslate2, a fast decoder of Transformers on CPUs.

    model.bin, config.json, shared_vocabulary.json    what CTranslate2 loads
    vocab.model                                       as in the run
    model_card.json

Separate vocabularies are source_vocabulary.json and target_vocabulary.json,
with vocab.inputs.model and vocab.targets.model.

CTranslate2 takes and gives vocabularies' pieces, without EOS, which it adds;
it searches in its own way, as each call asks. Weights are float32;
``ctranslate2.Translator(folder, compute_type="int8")`` rounds them as it loads.
"""

import pathlib

from t2t_repro import errors, files, json_files
from t2t_repro.text.vocabulary import EOS, PAD

MODEL_CARD = "model_card.json"
# The decoder's first input is a zero vector: one more row of zeros, which no
# output is. No piece has its name: pieces have no spaces.
START = "<zero vector>"


def export(
    models,
    vocabularies,
    decode_hparams,
    export_dir,
    card,
    weights_dtype="float32",
) -> pathlib.Path:
    """Writes a folder that ``ctranslate2.Translator`` loads.

    It is written under another name and renamed.

    Args:
        models: one; CTranslate2 has no ensembles.
        vocabularies: of source and target.
        decode_hparams: DecodeHParams, of which the lengths are kept: there are
            as many positions as these may need.
        export_dir: the folder; absent or empty.
        card: what the model card is to say.
        weights_dtype: float32; CTranslate2 rounds as it loads.

    Returns:
        The folder.

    Raises:
        UserError: the folder is taken, the package is not installed, or
            CTranslate2 has no such model.
    """
    if weights_dtype != "float32":
        raise errors.UserError(
            "CTranslate2 rounds weights as it loads them (compute_type), and "
            f"is given float32; got --weights_dtype={weights_dtype}."
        )
    folder = files.path(export_dir).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise errors.UserError(
            f"{folder} is there already. Remove it, or name another "
            "--export_dir."
        )
    if len(models) > 1:
        raise errors.UserError(
            f"CTranslate2 has no ensembles; got {len(models)} checkpoints. "
            "Name one, or average them with avg_checkpoints."
        )
    positions = decode_hparams.max_input_length + decode_hparams.extra_length
    spec = models[0].ctranslate2_spec(_specs(), positions)
    _add_vocabularies(spec, vocabularies)
    spec.validate()
    spec.optimize()  # a shared matrix is written once
    card = card | {"weights_dtype": weights_dtype}
    with files.making_folder(folder) as temporary:
        spec.save(str(temporary))
        vocabularies.write(temporary)
        json_files.write(temporary / MODEL_CARD, card)
    return folder


def _specs():
    try:
        from ctranslate2 import specs
    except ImportError as error:
        raise errors.UserError(
            f"CTranslate2's package is needed to write its format ({error}). "
            "Install it: pip install 't2t_repro[ctranslate2]'."
        ) from error
    return specs


def _add_vocabularies(spec, vocabularies):
    """Add pieces by id, then START, and tell which of them are special.

    Raises:
        UserError: pieces do not tell ids apart, or the sides differ in the
            pieces that CTranslate2 knows one of.
    """
    sides = [one.pieces(range(one.size)) for one in vocabularies]
    for pieces in sides:
        if len({*pieces, START}) <= len(pieces):
            raise errors.UserError(
                "CTranslate2 tells subwords apart by their text, and this "
                "vocabulary has two of the same. Export a SavedModel instead."
            )
    source, target = (
        (pieces[_unknown(one)], pieces[EOS])
        for one, pieces in zip(vocabularies, sides, strict=True)
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
    spec.config.add_source_eos = True


def _unknown(vocabulary):
    """Return the id of unknown text; PAD, which no text has, for none."""
    return PAD if vocabulary.unknown is None else vocabulary.unknown
