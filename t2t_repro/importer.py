"""Import a trained Transformer of another system as a run.

t2t importer --from=huggingface --input=Helsinki-NLP/opus-mt-en-de \\
    --output_dir=run

All commands read such a run. To train it on, take its settings and weights:

t2t trainer --config=run/run.json --warm_start_from=run/checkpoints/ckpt-0 \\
    --raw_dir=text --output_dir=tuned
"""

import importlib
import inspect
import itertools

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import flag, one_of
from t2t_repro.io import files, storage

# Modules of importing/, and files by which a folder of a system is known.
_SIGNS = {
    "huggingface": ("*.safetensors", "pytorch_model*.bin"),
    "marian": ("*.npz", "*decoder.yml"),
    "ctranslate2": ("shared_vocabulary.*", "source*_vocabulary.*"),
    "tensor2tensor": ("hparams.json",),
    "fairseq": ("*.pt", "dict.*.txt"),
    "opennmt_tf": ("model_description.py",),
}


@common_flags.options
class Options:
    """Options of importer, each a flag of the same name."""

    from_: str | None = flag(None, "System of the model.", one_of(*_SIGNS))
    input: str | None = flag(
        None,
        "Folder of the model, or its file of weights; of huggingface also its "
        "name on the Hub, ORGANIZATION/MODEL or ORGANIZATION/MODEL@REVISION.",
    )
    languages: str | None = flag(
        None,
        "Source and target language, such as en-de, where no file names them.",
    )
    vocabularies: common_flags.Paths = flag(
        (),
        "Vocabulary files, where the model's files do not name them: one "
        "for both sides, or source,target. Files of ids and of SentencePiece "
        "models may be mixed: source.spm,target.spm,vocab.yml.",
    )
    keep_tokens_of: common_flags.Paths = flag(
        (),
        "Files of text: the model keeps the subwords that they use, and those "
        "that spell any other text, of a SentencePiece vocabulary.",
    )
    tokenizer: str | None = flag(
        None,
        "Tokenizer before the codes of a fairseq model, whose files do "
        "not name it.",
        one_of("none", "moses"),
    )


def main() -> None:
    if url := storage.url_of(common_flags.output_dir()):
        raise errors.UserError(
            f"A model is imported into a folder of this machine; got {url}. "
            "Name such a folder with --output_dir."
        )
    from t2t_repro.importing import imported, run_writer

    system = common_flags.required("from")
    name = common_flags.required("input")
    reader = importlib.import_module(f"t2t_repro.importing.{system}")
    options = common_flags.field_values(Options)
    arguments = _arguments(options, reader.read)
    run_writer.require_empty(common_flags.output_dir())
    path, origin = _open_input(system, name)
    found = reader.read(path, **arguments)
    if texts := [*map(files.expand_path, options.keep_tokens_of)]:
        size = found.vocabularies.pair.target.size
        found = imported.trim(found, texts)
        kept = f"{found.vocabularies.pair.target.size:,} of {size:,}"
        print(f"Kept {kept} subwords.")
        origin = (origin or {}) | {"kept_subwords": kept}
    languages = options.languages or imported.languages_of(found)
    path = run_writer.write(
        found,
        system,
        common_flags.output_dir(),
        languages,
        flags.FLAGS.hparams,
        origin,
    )
    print(f"Imported {path}.")
    if rest := found.left_over:
        more = f" and {len(rest) - 5:,} more" if rest[5:] else ""
        print(f"Not part of the model: {', '.join(rest[:5])}{more}.")
    common_flags.print_next("decoder")


def _open_input(system, text):
    """Return the path of a model, and its name and revision on the Hub.

    A folder here comes before a model of the Hub, unless hf:// names that.
    """
    from t2t_repro.importing import hub

    of_hub = system == "huggingface"
    if of_hub and text.startswith(hub.URL):
        return hub.download(hub.parse(text))
    path = files.expand_path(text)
    # The name of a checkpoint of TensorFlow is that of its files' beginning.
    if path.exists() or path.with_name(f"{path.name}.index").exists():
        _refuse_other_system(system, path)
        return path, None
    if of_hub and hub.is_name(text):
        return hub.download(hub.parse(text))
    advice = "Name the folder or the file of a model: --input=…."
    if hub.is_name(text):
        local = text.rpartition("/")[2]
        advice = (
            "If this is the name of a model on the Hugging Face Hub, "
            f"download it, and say --input={local}:\n"
            "    pip install huggingface_hub\n"
            f"    hf download {text} --local-dir {local}"
        )
    raise errors.UserError(f"There is no {path}. {advice}")


def _refuse_other_system(system, path):
    found = {
        other: sorted(itertools.chain(*map(path.glob, patterns)))
        for other, patterns in _SIGNS.items()
    }
    others = [other for other, signs in found.items() if signs]
    if others and system not in others:
        (other, *_), sign = others, found[others[0]][0].name
        raise errors.UserError(
            f"{path} is a model of {other}, by the file {sign}, and not of "
            f"{system}. Say --from={other}."
        )


def _arguments(options, read):
    """Return the options that are arguments of some readers only."""
    values = {
        "vocabularies": [*map(files.expand_path, options.vocabularies)],
        "tokenizer": options.tokenizer,
    }
    given = {name: value for name, value in values.items() if value}
    known = inspect.signature(read).parameters.keys()
    for name in given.keys() - known:
        raise errors.UserError(
            f"--{name} is not for --from={options.from_}: its files say so "
            "themselves. Omit it."
        )
    if options.languages and "languages" in known:
        given["languages"] = options.languages
    return given


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Required": ("from", "input", "output_dir"),
            "Settings": ("hparams",),
        },
    )
