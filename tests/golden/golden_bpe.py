"""Writer of tests/golden/bart and fsmt, computed with transformers.

    pip install torch==2.13.0 transformers sacremoses
    python -m tests.golden.golden_bpe FILE…

FILE… are lines of text, from which a few byte pairs are learned. Each folder
has a random model with 16-bit weights, the files of its tokenizer, and
expected.json, as golden_languages.py writes it.
"""

import json
import pathlib
import sys

import tokenizers
import torch
import transformers
from tokenizers import pre_tokenizers, trainers

from tests.golden.golden_huggingface import complete, store
from tests.golden.golden_languages import settings, varied

ROOT = pathlib.Path(__file__).parent
ROWS = 6  # of logits that are stored
_LINES = [
    "Two dogs aren't playing in the snow - I've seen 12.",
    "  a  tab\there,\u00a0two\u3000 spaces  ",
    "don't DON'T 's x's 1st ½ ⅷ ",
    "Две собаки 两只狗 कु 👩‍👧 e\u0301",
    "“Quotes” — “dashes”… state-of-the-art",
    "A man & a <b> woman's ladder.",
    "x",
]
_MERGES = 40
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
SEED = 5


def main(paths):
    text = [line for path in paths for line in open(path, encoding="utf-8")]
    for write in (write_bart, write_fsmt):
        write(text[:3000])


def learn(text, trained, first, **arguments):
    """Return {token: id}, the special ones first, and the merges."""
    trainer = trainers.BpeTrainer(
        initial_alphabet=first,
        vocab_size=(len(first) or 120) + _MERGES,
        limit_alphabet=max(len(first), 60),
        show_progress=False,
        **arguments,
    )
    trained.train_from_iterator(text, trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = [*_SPECIAL, *sorted(model["vocab"], key=model["vocab"].get)]
    return {token: i for i, token in enumerate(tokens)}, model["merges"]


def write_bart(text):
    """Write the folder of BART, without a row of the last token, as CNN's."""
    folder = ROOT / "bart"
    folder.mkdir(exist_ok=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = words
    ids, merges = learn(text, trained, pre_tokenizers.ByteLevel.alphabet())
    ids |= {name: len(ids) + i for i, name in enumerate(("madeup0", "<mask>"))}
    (folder / "vocab.json").write_text(json.dumps(ids) + "\n")
    lines = ["#version: 0.2", *map(" ".join, merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    tokenizer = transformers.BartTokenizer(
        vocab=ids, merges=[*map(tuple, merges)]
    )
    torch.manual_seed(SEED)
    small = settings(len(ids) - 1) | {"max_position_embeddings": 86}
    config = transformers.BartConfig(**small | {"encoder_layers": 1})
    model = transformers.BartForConditionalGeneration(config)
    model.final_logits_bias.normal_(0, 0.5)
    model.final_logits_bias[0, 2] = 3.0
    model.generation_config.update(
        num_beams=4,
        early_stopping=True,
        forced_bos_token_id=0,
        length_penalty=2.0,
        min_length=4,
        no_repeat_ngram_size=3,
    )
    write(folder, model, tokenizer, _LINES)


def write_fsmt(text):
    """Write the folder of FSMT."""
    folder = ROOT / "fsmt"
    folder.mkdir(exist_ok=True)
    trained = tokenizers.Tokenizer(
        tokenizers.models.BPE(end_of_word_suffix="</w>")
    )
    trained.pre_tokenizer = pre_tokenizers.Whitespace()
    ids, merges = learn(text, trained, [], end_of_word_suffix="</w>")
    (folder / "merges.txt").write_text(
        "".join(f"{' '.join(pair)}\n" for pair in merges), "utf-8"
    )
    sizes = {}
    for side, drop in (("src", 9), ("tgt", 11)):
        names = [x for i, x in enumerate(ids) if i < 4 or i % drop]
        sizes[f"{side}_vocab_size"] = len(names)
        listed = json.dumps({x: i for i, x in enumerate(names)})
        (folder / f"vocab-{side}.json").write_text(listed + "\n")
    langs = ["en", "ru"]
    (folder / "tokenizer_config.json").write_text(json.dumps({"langs": langs}))
    tokenizer = transformers.FSMTTokenizer(
        langs,
        *(str(folder / f"vocab-{side}.json") for side in ("src", "tgt")),
        str(folder / "merges.txt"),
    )
    torch.manual_seed(SEED)
    small = settings(0)
    del small["vocab_size"]
    small["encoder_layers"] = 1
    config = transformers.FSMTConfig(langs=langs, **small, **sizes)
    model = transformers.FSMTForConditionalGeneration(config)
    write(folder, model, tokenizer, _LINES)


def write(folder, model, tokenizer, lines):
    """Write the model and expected.json."""
    state = varied(model).state_dict()
    exact = {name: w.clone() for name, w in state.items() if "_pos" in name}
    model.half().save_pretrained(folder)
    model.float()
    if folder.name == "fsmt":  # a formula, which is not rounded
        model.load_state_dict(exact, strict=False)
    (folder / "model.safetensors").chmod(0o644)
    expected = {"lines": lines, "inputs": tokenizer(lines)["input_ids"]}
    top = getattr(model.config, "tgt_vocab_size", model.config.vocab_size)
    target = [i % top for i in expected["inputs"][1][:ROWS]]
    complete(expected, model, target)
    expected["texts"] = tokenizer.batch_decode(
        expected["beam"],
        skip_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    store(folder, expected)


if __name__ == "__main__":
    main(sys.argv[1:])
