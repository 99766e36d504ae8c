"""Registries: the names of definitions, by kind.

A definition registers itself when its module is imported:

    @problems.register("multi30k_ende")
    @hparams_sets.register("big", parent="base")
    @models.register("gru", hparams=GruHParams)
    @search_rules.register("no_numerals")
    @vocabularies.register("characters")
    @metrics.register("word_accuracy")
    @callbacks.register("csv_tracker")
    @pair_filters.register("no_urls")

A built-in model is declared with its hparams instead, so that names and
settings are known without importing Keras; built-in metrics are declared, too.

Names are literals, so that ``git grep '"multi30k_ende"'`` finds the class.
"""

import importlib
import os
from typing import Any

from t2t_repro import user_definitions
from t2t_repro.io import files
from t2t_repro.registry_kinds import HParamsSets, Models, Registry

problems = Registry("problem")
hparams_sets = HParamsSets()
models = Models()
# Subclasses of decoding.rules.Rule, called with the vocabulary of outputs.
search_rules = Registry("search rule")
vocabularies = Registry("vocabulary type")
vocabularies.declare(
    "bpe",
    "t2t_repro.text.sentence_piece.Bpe",
    "Byte pair encoding, by SentencePiece.",
)
vocabularies.declare(
    "unigram",
    "t2t_repro.text.sentence_piece.Unigram",
    "Unigram model, by SentencePiece.",
)
vocabularies.declare(
    "char",
    "t2t_repro.text.sentence_piece.Characters",
    "Characters, by SentencePiece.",
)
vocabularies.declare(
    "mapped_sentence_piece",
    "t2t_repro.text.mapped_sentence_piece.MappedSentencePiece",
    "SentencePiece model with another program's ids, made by the importer.",
)
vocabularies.declare(
    "t2t_subwords",
    "t2t_repro.text.t2t_subwords.T2TSubwords",
    "tensor2tensor's SubwordTextEncoder, which the importer reads.",
)
vocabularies.declare(
    "bpe_codes",
    "t2t_repro.text.bpe_codes.BpeCodes",
    "Codes of subword-nmt or fastBPE, perhaps after Moses, by the importer.",
)
vocabularies.declare(
    "whitespace_tokens",
    "t2t_repro.text.whitespace_tokens.WhitespaceTokens",
    "Tokens of text that is tokenized already, separated by spaces.",
)
metrics = Registry("metric")
callbacks = Registry("callback")  # subclasses of training.callbacks.Callback

# Subclasses of text.pair_filters.PairFilter.
pair_filters = Registry("filter")
for _name, _class, _summary in (
    ("max_characters", "MaxCharacters", "Characters of a side: 1000."),
    ("max_words", "MaxWords", "Words of a side: 200."),
    ("character_ratio", "CharacterRatio", "Ratio of characters: 3."),
    ("word_ratio", "WordRatio", "Ratio of words: 3."),
    ("letters", "Letters", "Least share of letters: 0.5."),
    ("script", "Script", "Least share of the language's script: 0.5."),
    ("different", "Different", "Sides that differ."),
    ("language", "Language", "Sides in their language, by py3langid: 0.9."),
    ("unique", "Unique", "The first of equal pairs."),
):
    pair_filters.declare(
        _name, f"t2t_repro.text.pair_filters.{_class}", _summary
    )


def build_hparams(name: str) -> Any:
    """Build the HParams of a set: its function, applied to its parent's."""
    entry = hparams_sets[name]
    if entry.parent is None:
        return entry.value()
    return entry.value(build_hparams(entry.parent))


def load_definitions(
    usr_dir: str | os.PathLike | user_definitions.Definitions | None = None,
) -> None:
    """Import every definition: ours, installed ones, and those in `usr_dir`.

    Args:
        usr_dir: folder that a user names, or what was read from it.

    Raises:
        ImportError: from a definition, unchanged; nothing is skipped.
        UserError: `usr_dir` is not a folder.
    """
    for package in ("problems", "hparams"):
        user_definitions.import_modules(
            importlib.import_module(f"t2t_repro.{package}")
        )
    if isinstance(usr_dir, (str, os.PathLike)):
        path = files.expand_path(usr_dir)
        usr_dir = user_definitions.read(path) if str(usr_dir) else None
    user_definitions.load(usr_dir)


def summary() -> str:
    """Return a list of every definition, with its first line and its file."""
    lines = []
    for registry in (
        problems,
        hparams_sets,
        models,
        metrics,
        search_rules,
        vocabularies,
        callbacks,
        pair_filters,
    ):
        lines.append(f"{registry.kind}s:")
        for entry in registry:
            text = entry.summary or "(no description)"
            lines.append(f"  {entry.name:24} {text}")
            lines.append(f"  {'':24} {entry.file}")
    lines.append(
        "Each problem X of one direction also exists as X_rev, with its "
        "languages swapped."
    )
    return "\n".join(lines)
