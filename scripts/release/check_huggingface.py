"""Check the importer against Hugging Face's transformers.

    pip install torch==2.13.0 transformers
    python -m scripts.release.check_huggingface \\
        --tokenizer_dir=opus-mt-en-mg --text=test.en

Random MarianMTModels of several configurations, with the tokenizer of
https://github.com/radomd92/opus-mt-en-mg (its weights are not there), are
imported. Compared are logits of sentence pairs, ids of greedy and of beam
search (generate(), early_stopping=False), and of one configuration also the
translations of a SavedModel. Before that, the tokenizer's ids of all lines of
the text. The exit status is 1 if an id or a translation differs.

Weights are larger than transformers' initial ones, and the logit of EOS has a
bias, so that outputs differ in words and length. Two outputs whose scores
differ by at most 1e-4 are a tie.
"""

import contextlib
import io
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import tensorflow as tf
import torch
import transformers
from absl import app, flags, logging

from scripts.benchmarks import harness
from scripts.release import golden_huggingface
from t2t_repro import hparam, registry
from t2t_repro.data import batches
from t2t_repro.decoding import score, search, translate
from t2t_repro.importing import huggingface, run_writer
from t2t_repro.io import files
from t2t_repro.runs.run import Run
from t2t_repro.serving import exporting
from t2t_repro.serving.client import LocalClient

_TOKENIZER_DIR = flags.DEFINE_string(
    "tokenizer_dir", None, "Folder of the tokenizer's files.", required=True
)
_TEXT = flags.DEFINE_string(
    "text", None, "File with a sentence per line.", required=True
)
_SENTENCES = flags.DEFINE_integer("sentences", 200, "Sentences to translate.")

SHA256 = {
    "source.spm": "b3c9969a740c0bbbb06b2c793a40f9e6"
    "c4b56025e669f4b53724be401a3b0d8d",
    "target.spm": "a976a333f647cb28ed3702e1b73b0540"
    "b322c8d5a8d66d9b6abc2d36c956023f",
    "vocab.json": "929a21b5acfa0a89d7b86bd67986b64b"
    "261e4f7c4fbe640d2c8b8b591d44a2a8",
}
_SMALL = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "activation_function": "swish",
    "scale_embedding": True,
    "init_std": 0.4,
}
# Each with the bias of EOS.
CONFIGURATIONS = {
    "swish, tied, scaled": ({"init_std": 0.2}, 7.0),
    "relu, untied, 3 + 1 layers": (
        {
            "activation_function": "relu",
            "tie_word_embeddings": False,
            "encoder_layers": 3,
            "decoder_layers": 1,
            "scale_embedding": False,
        },
        11.0,
    ),
    "gelu, targets tied": (
        {
            "activation_function": "gelu",
            "share_encoder_decoder_embeddings": False,
            "scale_embedding": False,
            "init_std": 0.1,
        },
        3.0,
    ),
    "6 + 6 layers": (
        {"encoder_layers": 6, "decoder_layers": 6, "init_std": 0.1},
        3.0,
    ),
}
_EXTRA_LENGTH = 50
_PAIRS = 8  # of logits
_TIE = 1e-4  # of two outputs' scores


def main(_):
    logging.set_verbosity(logging.WARNING)
    harness.print_machine()
    registry.load_definitions()
    tokenizer_dir = pathlib.Path(_TOKENIZER_DIR.value)
    for name, sha256 in SHA256.items():
        if files.sha256(tokenizer_dir / name) != sha256:
            sys.exit(f"{tokenizer_dir / name} is not the file of {SHA256}.")
    lines = pathlib.Path(_TEXT.value).read_text("utf-8").splitlines()
    failed = 0
    for i, name in enumerate(CONFIGURATIONS):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            theirs = write_model(name, tokenizer_dir, folder / "model", seed=i)
            run = import_model(folder)
            tokenizer = transformers.MarianTokenizer.from_pretrained(
                folder / "model"
            )
            orders = read_orders(folder / "model")
            if i == 0:
                failed += compare_tokenizer(run, tokenizer, orders, lines)
            failed += compare_models(
                name, run, theirs, tokenizer, orders, lines[: _SENTENCES.value]
            )
            if i == 0:
                failed += compare_export(run, lines[: _SENTENCES.value])
    harness.print_json()
    sys.exit(bool(failed))


def write_model(name, tokenizer_dir, folder, seed):
    """Write a random model and its tokenizer; return the model."""
    shutil.copytree(tokenizer_dir, folder, ignore=lambda *_: {"config.json"})
    changes, eos_bias = CONFIGURATIONS[name]
    size = len(json.loads((folder / "vocab.json").read_text("utf-8")))
    model = golden_huggingface.random_model(
        size, seed, eos_bias, max_position_embeddings=512, **_SMALL | changes
    )
    with contextlib.redirect_stderr(io.StringIO()):
        model.save_pretrained(folder)
    return model


def import_model(folder):
    """Import folder/model to folder/run, and open the run."""
    found = huggingface.read(folder / "model")
    run_writer.write(found, "huggingface", folder / "run", "en-mg")
    return Run.open(folder / "run")


def read_orders(folder):
    """Return their id of each of our ids, for source and target."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return huggingface.read_vocabularies(folder, config)[1]


def compare_tokenizer(run, tokenizer, orders, lines):
    """Compare ids of all lines on both sides; return how many differ."""
    count = 0
    for side, order in zip(("source", "target"), orders, strict=True):
        ours = getattr(run.vocabularies, side).encode(lines)
        key = "text" if side == "source" else "text_target"
        theirs = tokenizer(**{key: lines})["input_ids"]
        different = sum(
            [order[i] for i in row] != other
            for row, other in zip(ours, theirs, strict=True)
        )
        harness.report(
            f"{side}: lines with other ids, of {len(lines):,}", different, ""
        )
        count += different
    return count


def compare_models(name, run, theirs, tokenizer, orders, lines):
    """Compare logits and searches; return how many outputs differ."""
    (model,) = run.models()
    report_logits(name, model, theirs, tokenizer, orders, lines)
    count = 0
    for beams in (1, 4):
        ours = search_ours(run, model, beams, lines)
        lengths, gaps = [], []
        for line, ids in zip(lines, ours, strict=True):
            expected = generate(theirs, tokenizer, line, beams)
            lengths.append(len(expected))
            if [orders[1][i] for i in ids] != expected:
                other = [orders[1].index(i) for i in expected]
                gaps.append(score_gap(run, model, line, ids, other))
        different = sum(gap > _TIE for gap in gaps)
        harness.report(
            f"{name}, {beams} beams: other outputs of {len(lines)} "
            f"({len(set(lengths))} lengths), without {len(gaps) - different} "
            "ties",
            different,
            "",
        )
        count += different
    return count


def report_logits(name, model, theirs, tokenizer, orders, lines):
    """Report the largest difference of logits of real tokens."""
    sources, targets = (
        tokenizer(
            **{key: lines[start : start + _PAIRS]},
            return_tensors="pt",
            padding=True,
        )
        for key, start in (("text", 0), ("text_target", _PAIRS))
    )
    start = torch.full((_PAIRS, 1), theirs.config.decoder_start_token_id)
    ids = targets["input_ids"]
    with torch.no_grad():
        expected = theirs(
            **sources,
            decoder_input_ids=torch.cat([start, ids[:, :-1]], 1),
        ).logits.numpy()
    our_ids = [
        tf.constant(np.argsort(order)[rows.numpy()], tf.int32)
        for order, rows in zip(orders, (sources["input_ids"], ids), strict=True)
    ]
    found = np.asarray(model(batches.one_sentence_per_row(*our_ids)))
    real = targets["attention_mask"].numpy() > 0
    difference = np.abs(found - expected[..., orders[1]])[real].max()
    harness.report(
        f"{name}: largest difference of logits", float(difference), ""
    )
    harness.report(
        f"{name}: largest logit", float(np.abs(expected[real]).max()), ""
    )


def search_ours(run, model, beams, lines):
    """Return the ids of our outputs, with EOS."""
    hparams = hparam.DecodeHParams(
        beam_size=beams,
        alpha=1.0,
        length_penalty_offset=0,
        beam_search="huggingface",
        extra_length=_EXTRA_LENGTH,
    )
    find = tf.function(
        lambda ids: search.search([model], ids, hparams),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )
    outputs = []
    for ids in run.vocabularies.source.encode(lines):
        best = find(score.pad_rows([ids])).ids[0, 0].numpy()
        outputs.append(best[best > 0].tolist())
    return outputs


def score_gap(run, model, line, ids, other):
    """Return the difference of two outputs' scores by our model."""
    (source,) = run.vocabularies.source.encode([line])
    log_probs = score.sentence_log_probs(
        [model],
        tf.constant([source] * 2),
        tf.constant(score.pad_rows([ids, other])),
    ).numpy()
    scores = log_probs / [len(ids), len(other)]
    return abs(scores[0] - scores[1])


def generate(model, tokenizer, line, beams):
    """Return the ids of transformers' output, with EOS."""
    inputs = tokenizer([line], return_tensors="pt")
    limit = inputs["input_ids"].shape[1] + _EXTRA_LENGTH
    with torch.no_grad():
        output = model.generate(**inputs, num_beams=beams, max_new_tokens=limit)
    ids = output[0].tolist()[1:]
    return ids[: ids.index(0) + 1] if 0 in ids else ids


def compare_export(run, lines):
    """Compare a SavedModel with the decoder; return how many lines differ."""
    folder = exporting.write(run, run.output_dir / "export")
    client = LocalClient(folder.parent)
    exported = [found.text for found in client.translate(lines)]
    translator = translate.Translator(
        run.models(), run.vocabularies, run.search
    )
    expected = [found.text for found in translator.translate(lines)]
    different = sum(
        ours != theirs for ours, theirs in zip(exported, expected, strict=True)
    )
    harness.report(
        f"SavedModel: other translations of {len(lines)}", different, ""
    )
    return different


if __name__ == "__main__":
    app.run(main)
