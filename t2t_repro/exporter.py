"""Exports a trained model as a SavedModel for TF Serving.

python -m t2t_repro.exporter --output_dir=… --export_dir=…
"""

import dataclasses

from absl import flags

from t2t_repro import common_flags, runs
from t2t_repro.serving import export

common_flags.define_decoding_flags()
_EXPORT_DIR = flags.DEFINE_string(
    "export_dir",
    None,
    "Gets a folder per version; OUTPUT_DIR/export if left out.",
)
_FORMAT = flags.DEFINE_enum(
    "format", "saved_model", ["saved_model"], "What to write."
)
flags.adopt_module_key_flags(common_flags)


def main():
    run = runs.open_run(
        common_flags.output_dir(), common_flags.expected_settings()
    )
    models, paths = runs.load_models(run, common_flags.checkpoint_path())
    hparams = common_flags.decode_hparams(run.problem)
    card = run.settings | {
        "checkpoints": [path.name for path in paths],
        "decode_hparams": dataclasses.asdict(hparams),
        "exported_with": runs.versions(),
    }
    del card["data_dir"], card["command_lines"]  # paths of this machine
    folder = export.export(
        models,
        run.subwords,
        hparams,
        _EXPORT_DIR.value or run.output_dir / "export",
        card,
    )
    print(f"Exported {folder}.")


if __name__ == "__main__":
    common_flags.run(main)
