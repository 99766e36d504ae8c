"""Writer of expected.json in folders of tests/golden, by transformers.

    pip install torch==2.13.0 transformers==5.24.0
    pip install sentencepiece sacremoses protobuf
    python -m tests.golden.golden_transformers bart nllb

A folder has a random model, its tokenizer and in expected.json lines of text,
which stay as they are. This program computes the rest:

    inputs      ids of the tokenizer as source; targets: as target
    logits      [T, V / 7] of the first line with the second as target, of some
                rows; [4, T, V] of four lines by Marian
    greedy, beam    ids of generate() with 1 and 4 beams
    texts       those of `beam`
"""

import argparse
import json
import pathlib

import sentencepiece
import torch
import transformers
from torch.nn import utils

ROOT = pathlib.Path(__file__).parent
LANGUAGES = {"m2m_100": "__de__", "nllb": "deu_Latn", "mbart50": "de_DE"}
EVERY = 7  # logit that is stored
DIGITS = 5
PAIRS = 4  # lines whose logits are stored of Marian


def load_model(folder):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, dtype=torch.float32
    )
    for module in model.modules():
        if hasattr(module, "make_weight"):  # a formula, stored in 16 bits
            module.make_weight(*module.weight.shape, module.padding_idx)
    return model.eval()


def load_tokenizer(folder):
    if folder.name == "fsmt":
        files = "vocab-src.json", "vocab-tgt.json", "merges.txt"
        paths = (str(folder / file) for file in files)
        return transformers.FSMTTokenizer(["en", "ru"], *paths)
    if folder.name == "bart":
        return transformers.BartTokenizer.from_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def encode(folder, tokenizer, lines):
    if folder.name == "madlad":
        # T5Tokenizer reads its spaces, bytes and unknown text otherwise.
        path = str(folder / "spiece.model")
        pieces = sentencepiece.SentencePieceProcessor(path)
        return pieces.Encode(lines, add_eos=True)
    return tokenizer(lines)["input_ids"]


def logits(model, sources, targets):
    """Return logits [B, T, V] of rows of ids."""
    pad = model.config.pad_token_id
    start = model.config.decoder_start_token_id
    inputs, outputs = (
        utils.rnn.pad_sequence(list(map(torch.tensor, rows)), True, pad)
        for rows in (sources, [[start, *row] for row in targets])
    )
    return model(
        input_ids=inputs,
        attention_mask=(inputs != pad).long(),
        decoder_input_ids=outputs[:, :-1],
        use_cache=False,  # FSMT has no causal mask with it
    ).logits


def generate(model, ids, **settings):
    """Return the ids of an output, with EOS."""
    output = model.generate(input_ids=torch.tensor([ids]), **settings)
    found = output[0].tolist()[1:]
    return found[: found.index(model.config.eos_token_id) + 1]


def rounded(values):
    if isinstance(values, list):
        return [rounded(value) for value in values]
    return round(values, DIGITS)


def compute(folder, stored):
    """Compute what follows from a model and lines of text."""
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    config, family = model.config, folder.name
    inputs = encode(folder, tokenizer, stored["lines"])
    found, target, settings = {"inputs": inputs}, inputs[1], {}
    if family in LANGUAGES:
        first = tokenizer.convert_tokens_to_ids(LANGUAGES[family])
        target = [first, *target[1:]]
        settings = {"forced_bos_token_id": first, "forced_eos_token_id": 2}
    elif family in ("bart", "fsmt"):
        top = getattr(config, "tgt_vocab_size", config.vocab_size)
        target = [i % top for i in target[: len(stored["logits"])]]
    elif family != "huggingface":
        # Trained ones never have PAD.
        settings = {"bad_words_ids": [[config.pad_token_id]]}
        settings |= {"forced_eos_token_id": config.eos_token_id}
    if family == "huggingface":
        targets = tokenizer(text_target=stored["lines"])["input_ids"]
        found["targets"] = targets
        values = logits(model, inputs[:PAIRS], targets[PAIRS : 2 * PAIRS])
    else:
        values = logits(model, inputs[:1], [target])[0, :, ::EVERY]
        values = values[: len(stored["logits"])]
    found["logits"] = rounded(values.tolist())
    extra_length = 12 if family == "huggingface" else 8
    for name, beams in (("greedy", 1), ("beam", 4)):
        settings["num_beams"] = beams
        found[name] = [
            generate(
                model, ids, max_new_tokens=len(ids) + extra_length, **settings
            )
            for ids in inputs
        ]
    if "texts" in stored:
        found["texts"] = tokenizer.batch_decode(
            found["beam"],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
    return found


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+")
    for name in parser.parse_args().folders:
        file = ROOT / name / "expected.json"
        stored = json.loads(file.read_text("utf-8"))
        stored |= compute(file.parent, stored)
        text = json.dumps(stored, ensure_ascii=False)
        file.write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
