"""Exports of a run to TensorFlow Serving or CTranslate2, with a model card."""

import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import yaml

from t2t_repro import errors, registry
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files, storage
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.models.transformer_ctranslate2 import MODEL_CARD, START
from t2t_repro.runs import checkpoint_files, run_json
from t2t_repro.runs.run import Checkpoints, Run
from t2t_repro.serving import saved_model, served_model, version_folders
from t2t_repro.text.vocabulary import EOS, PAD
from t2t_repro.text.vocabulary_pair import Vocabularies

# Format -> its default folder in the run.
FORMATS = {"saved_model": "export", "ctranslate2": "ctranslate2"}


def write(
    run: Run,
    export_dir: str | pathlib.Path | None = None,
    format: str = "saved_model",
    checkpoint_path: Checkpoints = None,
    decode_hparams: DecodeHParams | None = None,
    weights_dtype: str = "float32",
    max_beam_size: int = 0,
) -> pathlib.Path:
    """Export a run.

    Args:
        run: result of Run.open(), or of toward(), whose SavedModel translates
            lines without tags.
        export_dir: the folder of the SavedModel's versions, or of the
            CTranslate2 model; None: a folder in the run. At a URL, the model
            is stored when it is complete.
        format: one of FORMATS.
        checkpoint_path: argument of Run.checkpoints().
        decode_hparams: settings of the search; None: those of the problem.
        weights_dtype: one of serving.served_model.WEIGHTS_DTYPES.
        max_beam_size: argument of saved_model.export().

    Returns:
        The folder of the model.

    Raises:
        UserError: an argument is unknown; the problem, the model or the
            vocabulary cannot be exported; or the format needs a package that is
            not installed.
    """
    for name, value, known in (
        ("format", format, FORMATS),
        ("weights_dtype", weights_dtype, served_model.WEIGHTS_DTYPES),
    ):
        if value not in known:
            raise errors.UserError(
                f"{name} must be one of {', '.join(known)}; got {value!r}."
            )
    hparams = decode_hparams or run.search
    if format == "ctranslate2":
        _require_ctranslate2(run, hparams, weights_dtype, max_beam_size)
    _require_exportable(run, hparams)
    export_dir = export_dir or run.output_dir / FORMATS[format]
    export_dir = storage.local_path(export_dir)
    version_folders.require_no_version(export_dir)
    paths = run.checkpoints(checkpoint_path)
    models, card = run.models(paths), _card(run, paths, hparams)
    arguments = models, run.vocabularies, hparams, export_dir, card
    if format == "ctranslate2":
        folder = export_ctranslate2(*arguments)
    else:
        folder = saved_model.export(*arguments, weights_dtype, max_beam_size)
    # No program reads it, so that it may follow the published model.
    files.write_text(folder / CARD_FILE, card_markdown(card, format))
    storage.upload(folder)
    return folder


def _require_ctranslate2(run, hparams, weights_dtype, max_beam_size):
    """Refuse what CTranslate2 lacks, before the models are loaded."""
    import_specs()
    if weights_dtype != "float32":
        raise errors.UserError(
            "CTranslate2 rounds weights on loading (compute_type) and "
            f"reads float32; got --weights_dtype={weights_dtype}."
        )
    if max_beam_size:
        raise errors.UserError(
            "Calls of CTranslate2 name any beam size; got "
            f"--max_beam_size={max_beam_size}. Omit it."
        )
    lengths = {"max_input_length": 0, "extra_length": 0}
    search, own = (vars(each) | lengths for each in (hparams, run.search))
    if given := [name for name in search if search[name] != own[name]]:
        raise errors.UserError(
            "Calls of CTranslate2 have settings of the search of their own; "
            f"got --decode_hparams with {', '.join(given)}. Omit them."
        )
    if run.vocabularies.source.leads_outputs:  # as of NLLB, and of BART
        raise errors.UserError(
            "A token leads the outputs of this model, which CTranslate2's "
            "callers give. Convert the original model with CTranslate2's own "
            "converters."
        )
    if run.problem.tag:
        raise errors.UserError(
            "CTranslate2's callers give the languages, as tokens. Omit "
            "--target_language."
        )


def _require_exportable(run, hparams):
    """Refuse what no export has."""
    if run.problem.normalizes:
        raise errors.UserError(
            f"{run.problem.registered_name} changes its text before the model "
            "reads it, which an exported graph cannot do: it would translate "
            "raw text badly. Translate with decoder, or train on the text as "
            "it is."
        )
    if hparams.rerank:
        raise errors.UserError(
            "The graph of an export has a search without reranking; got "
            f"rerank={hparams.rerank}. Say --decode_hparams=rerank= to export "
            "without it, or translate with decoder."
        )


# The folder has CTranslate2's files model.bin, config.json and
# shared_vocabulary.json, the run's vocab.model, and model_card.json. Separate
# vocabularies are source_vocabulary.json and target_vocabulary.json, with
# vocab.inputs.model and vocab.targets.model. CTranslate2 reads and returns
# subwords as text, without EOS, which it adds. Its search is its own, with the
# settings of each call. Weights are float32: compute_type="int8" rounds them on
# loading.


def export_ctranslate2(
    models: Sequence[Seq2Seq],
    vocabularies: Vocabularies,
    decode_hparams: DecodeHParams,
    export_dir: str | pathlib.Path,
    card: dict,
) -> pathlib.Path:
    """Write a folder that ``ctranslate2.Translator`` loads; return its path.

    The folder, absent or empty, is written under another name and renamed when
    it is complete. The arguments are those of saved_model.export(): one model,
    since CTranslate2 has no ensembles, and settings whose lengths give the
    number of positions.

    Raises:
        UserError: the folder is not empty, another process writes to it, the
            package is not installed, or CTranslate2 does not support the model.
    """
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
    card = card | {"weights_dtype": "float32"}
    with files.locked(folder, beside=True):
        # Others may be of commands that write beside it at this moment.
        files.remove_leftovers_of(folder)
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
    with errors.needed("ctranslate2", "The format ctranslate2"):
        from ctranslate2 import specs
    return specs


def _add_vocabularies(spec, vocabularies):
    """Add the subwords by id, then START, and the names of special ones."""
    sides = [side.pieces(range(side.size)) for side in vocabularies]
    for pieces in sides:
        if len({*pieces, START}) <= len(pieces):
            raise errors.UserError(
                "CTranslate2 knows subwords by their text, and two of this "
                "vocabulary are the same. Export a SavedModel instead."
            )
    # Unknown text is PAD, which no text has, if it has no id of its own.
    unknown = [PAD if v.unknown is None else v.unknown for v in vocabularies]
    source, target = (
        (pieces[i], pieces[EOS])
        for i, pieces in zip(unknown, sides, strict=True)
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


def _card(run, paths, hparams):
    """Return the model card: what an export is, and how it was made."""
    # Of models of several runs, the names of checkpoints say which are others.
    settings, folder = run.settings, run.output_dir
    owners = [run.settings_of(path) for path in paths]
    if owners[0] is not settings and owners.count(owners[0]) == len(owners):
        settings, folder = owners[0], checkpoint_files.run_of(paths[0])
    card = settings | {
        "run": folder.name,
        "checkpoints": checkpoint_files.names(paths, run.output_dir),
        "decode_hparams": dataclasses.asdict(hparams),
        "scores": run.scores_of(paths, hparams),
        "exported_with": run_json.versions(),
        "data": run.problem.card,
    }
    for name in ("data_dir", "usr_dir", "command_lines"):
        card.pop(name, None)  # paths of this machine
    arguments = card["problem_arguments"] | {"vocabulary": ""}
    if file := arguments.get("file"):
        arguments["file"] = pathlib.PurePath(file).name
    card["problem_arguments"] = arguments
    if start := card.get("options", {}).get("warm_start_from"):
        (name,) = checkpoint_files.names([pathlib.Path(start)], folder)
        card["options"] = card["options"] | {"warm_start_from": name}
    if tag := run.problem.tag:  # which the graph adds to all sources
        card["tag"] = tag
        card["data"] |= {"target_languages": [], "source_languages": []}
    return card


# Model card in Markdown, whose header has the keys of
# https://huggingface.co/docs/hub/model-cards.

CARD_FILE = "README.md"
_UNKNOWN = "not stated"
_BCP_47 = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")
# Metric -> its name on the Hub; others are in the table only.
_HUB_METRICS = {"bleu": "bleu", "chrf": "chrf", "ter": "ter"}
_TEMPLATE = """\
---
{header}---

# {title}

{sentence}

## Use

{use}

## Scores

{scores}

{sections}
All settings are in `model_card.json`.
"""
_LICENSE = """
The licence of this model is not stated. Whoever publishes it chooses one that
the licence of the data permits, and writes it into the header.
"""
_ORIGINAL_LICENSE = """
The licence of this model is that of the original model{stated}. Its training
data is described there.
"""
_SYSTEMS = {
    "huggingface": "Hugging Face",
    "marian": "Marian",
    "ctranslate2": "CTranslate2",
    "opennmt_tf": "OpenNMT-tf",
}
_USE = {
    "saved_model": """\
```python
import t2t_repro

print(t2t_repro.load("FOLDER").translate(["…"]))
```

The folder is a version of a SavedModel for TensorFlow Serving, which takes and
returns text. A model of several languages also needs `target_language="…"`, and
rules of the search that read side inputs `side=["…"]`.""",
    "ctranslate2": """\
The folder has a model for CTranslate2. Its vocabularies are those of the run:
SentencePiece models, other lists of subwords, or JSON lists of words between
spaces; sentences end with `</s>`. A code of a language, such as `>>de<<`, is a
token of its own before the others.""",
}


def card_markdown(card: Mapping[str, Any], format: str) -> str:
    """Return model_card.json, of an export in one of FORMATS, as Markdown."""
    source = card["data"]
    languages = source["source_language"], source["target_language"]
    inputs = source.get("input_languages", [])
    targets = source.get("target_languages", [])
    task = source.get("task", "translation")
    header: dict[str, Any] = {
        **_languages([*languages, *inputs, *targets]),
        "license": "unknown",
        "pipeline_tag": task,
        "tags": [task, card["hparams"]["model"], "tensorflow"],
    }
    if results := list(_results(card)):
        index = {"name": card["run"], "results": results}
        header["model-index"] = [index]
    into = languages[1] or ", ".join(targets)
    # The last step of checkpoints such as averaged/ckpt-1500.
    steps = max(int(n.rpartition("-")[2]) for n in card["checkpoints"])
    sections = []
    maker = f"t2t_repro {card['versions']['t2t_repro']}"
    sentence, title = f"trained with {maker}", card["problem"]
    if origin := card.get("imported_from"):
        header["license"] = origin.get("license") or "unknown"
        if "revision" in origin:  # the name of a model on the Hub
            header["base_model"] = origin["name"]
        sections.append(_origin(card, origin))
        title = origin.get("name") or title
        first = f"imported from {_system(origin)} with {maker}"
        sentence = f"{first}, then {sentence}" if steps else first
    if steps or not origin:
        sections += [_data(card, source), _training(card, steps)]
    return _TEMPLATE.format(
        header=yaml.safe_dump(header, sort_keys=False, allow_unicode=True),
        title=f"{title}: {languages[0] or 'text'} to {into or 'text'}",
        sentence=f"Model `{card['hparams']['model']}`, {sentence}.",
        use=_USE[format],
        scores=_scores(card["scores"]),
        sections="\n".join(sections),
    )


def _section(title, rows, text=""):
    table = "".join(f"| {name} | {value} |\n" for name, value in rows.items())
    return f"## {title}\n\n| | |\n|---|---|\n{table}{text}"


def _data(card, source):
    arguments = _listed(card["problem_arguments"])
    rows = {
        "problem": f"`{card['problem']}`, {arguments}",
        "page": source["page"] or _UNKNOWN,
        "licence": source["license"] or _UNKNOWN,
        "citation": source["citation"] or _UNKNOWN,
    }
    return _section("Data", rows, _LICENSE)


def _training(card, steps):
    tokens = card["hparams"]["batch_tokens"]
    rows = {
        "hparams set": f"`{card['hparams_set']}`",
        **_changes(card),
        "options of the trainer": _listed(card.get("options", {})) or "none",
        "steps": f"{steps:,} of {tokens:,} tokens",
        "random seed": card["random_seed"],
        "hardware": "; ".join(card["hardware"]),
        "versions": _listed(card["versions"]),
        "checkpoints": ", ".join(card["checkpoints"]),
        "search": _listed(card["decode_hparams"]),
    }
    return _section("Training", rows)


def _changes(card):
    """Return the row of hparams that are not those of a known set."""
    if card["hparams_set"] not in registry.hparams_sets:
        return {}
    before = vars(registry.build_hparams(card["hparams_set"]))
    given = {k: v for k, v in card["hparams"].items() if before.get(k) != v}
    return {"differences from it": _listed(given) or "none"}


def _system(origin):
    return _SYSTEMS.get(origin["system"], origin["system"])


def _origin(card, origin):
    """Return where the weights of an imported model are from."""
    licence, files = origin.get("license"), origin["sha256"]
    rows = {
        "system": _system(origin),
        "model": f"`{origin.get('name') or _UNKNOWN}`",
        **({"revision": origin["revision"]} if "revision" in origin else {}),
        "licence": licence or _UNKNOWN,
        **({"subwords": kept} if (kept := origin.get("kept_subwords")) else {}),
        "files, sha256": ", ".join(f"`{k}` {v}" for k, v in files.items()),
        "imported with": _listed(card["versions"]),
        "search": _listed(card["decode_hparams"]),
    }
    stated = ", which its files do not name: write it into the header"
    text = _ORIGINAL_LICENSE.format(stated="" if licence else stated)
    return _section("Origin", rows, text)


def _languages(names):
    """Return the languages of the header, as the Hub admits them.

    It refuses a card whose `language` has other names than ISO's; those of
    BCP 47, such as zh-Hans, have a key of their own.
    """
    codes = list(filter(_BCP_47.fullmatch, dict.fromkeys(filter(None, names))))
    parts = [re.split("[-_]", code) for code in codes]
    header = {"language": [*dict.fromkeys(first for first, *_ in parts)]}
    if longer := ["-".join(part) for part in parts if part[1:]]:
        header["language_bcp47"] = longer
    return header


def _results(card):
    """Yield the results of a model-index, one for each test set."""
    for split, stored in card["scores"].items():
        metrics = [
            {
                "type": hub_name,
                "value": round(stored[name], 2),
                "name": f"{name} ({stored['signatures'][name]})",
            }
            for name, hub_name in _HUB_METRICS.items()
            if name in stored and name in stored.get("signatures", {})
        ]
        if metrics:
            yield {
                "task": {"type": card["data"].get("task", "translation")},
                "dataset": {
                    "name": f"{card['problem']} {split}",
                    "type": card["problem"],
                    "split": split,
                },
                "metrics": metrics,
            }


def _scores(scores):
    rows = [
        # A bar would end the cell.
        f"| {split} | {name} | {stored[name]:.2f} | "
        f"`{signature.replace('|', ' ')}` |"
        for split, stored in scores.items()
        for name, signature in stored.get("signatures", {}).items()
        if name in stored
    ]
    if not rows:
        return "This checkpoint has not been scored: see `t2t evaluate`."
    heading = "| test set | metric | score | signature |\n|---|---|---|---|"
    return "\n".join([heading, *rows])


def _listed(values):
    """Return "key value, key value" of those that are not empty."""
    return ", ".join(
        f"{key} {value}"
        for key, value in values.items()
        if value not in ("", None)
    )
