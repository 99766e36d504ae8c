"""Import a trained Transformer of another system as a run.

t2t importer --from=huggingface --input=opus-mt-en-de --output_dir=run

All commands read such a run. To train it on, take its settings and weights:

t2t trainer --config=run/run.json --warm_start_from=run/checkpoints/ckpt-0 \\
    --raw_dir=text --output_dir=tuned
"""

import importlib
import inspect
import itertools
import re

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import files, storage

# System -> module of t2t_repro/importing/ that reads its models.
SYSTEMS = (  # modules of importing/
    "huggingface",
    "marian",
    "ctranslate2",
    "tensor2tensor",
    "fairseq",
    "opennmt_tf",
)
# Files by which a folder of a system is known.
_SIGNS = {
    "huggingface": ("*.safetensors", "pytorch_model*.bin"),
    "marian": ("*.npz", "*decoder.yml"),
    "ctranslate2": ("shared_vocabulary.*", "source*_vocabulary.*"),
    "tensor2tensor": ("hparams.json",),
    "fairseq": ("*.pt", "dict.*.txt"),
    "opennmt_tf": ("model_description.py",),
}
_FROM = flags.DEFINE_enum("from", None, SYSTEMS, "System of the model.")
_INPUT = flags.DEFINE_string(
    "input", None, "Folder of the model, or its file of weights."
)
_LANGUAGES = flags.DEFINE_string(
    "languages",
    None,
    "Source and target language, such as en-de, where no file names them.",
)
_VOCABULARIES = common_flags.define_list(
    "vocabularies",
    "Vocabulary files, where the model's files do not name them: one for both "
    "sides, or source,target. Files of ids and of SentencePiece models may be "
    "mixed: source.spm,target.spm,vocab.yml.",
    of_paths=True,
)
_TOKENIZER = flags.DEFINE_enum(
    "tokenizer",
    None,
    ["none", "moses"],
    "Tokenizer before the codes of a fairseq model, whose files do not name "
    "it.",
)


def main() -> None:
    if url := storage.url_of(common_flags.output_dir()):
        raise errors.UserError(
            f"A model is imported into a folder of this machine; got {url}. "
            "Name such a folder with --output_dir."
        )
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.importing import imported, run_writer

    system = common_flags.required(_FROM)
    reader = importlib.import_module(f"t2t_repro.importing.{system}")
    path = files.expand_path(common_flags.required(_INPUT))
    options = _options(system, reader.read)
    _check_input(system, path)
    found = reader.read(path, **options)
    languages = _LANGUAGES.value or imported.languages_of(found)
    path = run_writer.write(
        found,
        system,
        common_flags.output_dir(),
        languages,
        flags.FLAGS.hparams,
    )
    print(f"Imported {path}.")
    if rest := found.left_over:
        more = f" and {len(rest) - 5:,} more" if rest[5:] else ""
        print(f"Not part of the model: {', '.join(rest[:5])}{more}.")


def _check_input(system, path):
    """Refuse a path that is absent, or the folder of another system."""
    name = _INPUT.value
    # The name of a checkpoint of TensorFlow is that of its files' beginning.
    if not path.exists() and not path.with_name(f"{path.name}.index").exists():
        advice = "Name the folder or the file of a model: --input=…."
        if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name):
            local = name.rpartition("/")[2]
            advice = (
                "If this is the name of a model on the Hugging Face Hub, "
                f"download it, and say --input={local}:\n"
                "    pip install huggingface_hub\n"
                f"    hf download {name} --local-dir {local}"
            )
        raise errors.UserError(f"There is no {path}. {advice}")
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


def _options(system, read):
    """Return the flags that are arguments of some readers only."""
    paths = _VOCABULARIES.value and map(files.expand_path, _VOCABULARIES.value)
    values = {
        "vocabularies": paths and list(paths),
        "tokenizer": _TOKENIZER.value,
    }
    given = {name: value for name, value in values.items() if value}
    known = inspect.signature(read).parameters.keys()
    for name in given.keys() - known:
        raise errors.UserError(
            f"--{name} is not for --from={system}: its files say so "
            "themselves. Omit it."
        )
    if _LANGUAGES.value and "languages" in known:
        given["languages"] = _LANGUAGES.value
    return given


if __name__ == "__main__":
    command_line.run(
        main,
        {
            "Required": ("from", "input", "output_dir"),
            "Settings": ("hparams",),
        },
    )
