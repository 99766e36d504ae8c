"""Import a trained Transformer of another system as a run.

t2t importer --from=huggingface --input=opus-mt-en-de --output_dir=run

All commands read such a run. To train it on, take its settings and weights:

t2t trainer --config=run/run.json --warm_start_from=run/checkpoints/ckpt-0 \\
    --raw_dir=text --output_dir=tuned
"""

import inspect

from absl import flags

from t2t_repro import common_flags, errors, files

# System -> module of t2t_repro/importing/ that reads its models.
SYSTEMS = {
    "huggingface": "huggingface",
    "marian": "marian",
    "ctranslate2": "ctranslate2_folder",
}
_FROM = flags.DEFINE_enum("from", None, list(SYSTEMS), "System of the model.")
_INPUT = flags.DEFINE_string(
    "input", None, "Folder of the model, or its file of weights."
)
_LANGUAGES = flags.DEFINE_string(
    "languages",
    None,
    "Source and target language, as en-de, where the files do not name them.",
)
_VOCABULARIES = flags.DEFINE_list(
    "vocabularies",
    [],
    "Vocabulary files, where the model's files do not name them: one for both "
    "sides, or source,target. Files of ids and of SentencePiece models may be "
    "mixed: source.spm,target.spm,vocab.yml.",
)


def main() -> None:
    # Imported here, so that --help needs no TensorFlow.
    import importlib

    from t2t_repro.importing import run_writer

    system = common_flags.required(_FROM)
    reader = importlib.import_module(f"t2t_repro.importing.{SYSTEMS[system]}")
    path = files.expand_path(common_flags.required(_INPUT))
    found = reader.read(path, **_vocabularies(system, reader.read))
    languages = _LANGUAGES.value or "-".join(found.languages)
    if languages == "-":
        raise errors.UserError(
            "The files do not name the languages. Say --languages=en-de."
        )
    path = run_writer.write(
        found,
        system,
        common_flags.output_dir(),
        languages,
        flags.FLAGS.hparams,
    )
    print(f"Imported {path}.")


def _vocabularies(system, read):
    """Return --vocabularies as an argument of a reader that has it."""
    if not _VOCABULARIES.value:
        return {}
    if "vocabularies" not in inspect.signature(read).parameters:
        raise errors.UserError(
            f"--from={system} finds its vocabularies itself. Remove "
            "--vocabularies."
        )
    paths = [files.expand_path(name) for name in _VOCABULARIES.value]
    return {"vocabularies": paths}


if __name__ == "__main__":
    common_flags.run(main, {"Required": ("from", "input", "output_dir")})
