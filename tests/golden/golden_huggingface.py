"""Writer of tests/golden/huggingface, computed with transformers.

    pip install torch==2.13.0 transformers sentencepiece sacremoses
    python -m tests.golden.golden_huggingface

A small random MarianMTModel, with a tokenizer of two SentencePiece models and
one list of tokens, among them a language code and pieces that a model lacks.
expected.json has, by transformers:

    lines       sentences, on both sides
    inputs      ids of the tokenizer as source; targets: as target
    logits      [4, T, V] of the first 4 lines and their neighbours as targets
    greedy, beam    ids of generate() with 1 and 4 beams
"""

import io
import json
import pathlib
import random

import sentencepiece
import torch
import transformers
from torch.nn.utils import rnn

FOLDER = pathlib.Path(__file__).parent / "huggingface"
EXTRA_LENGTH = 12
_WORDS = {
    "source": "one two three four five six seven eight nine ten and".split(),
    "target": "eins zwei drei vier fünf sechs sieben acht neun zehn".split(),
}
_SETTINGS = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "activation_function": "swish",
    "scale_embedding": True,
    "init_std": 0.6,
    "max_position_embeddings": 64,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
}
_PAIRS = 4
_DIGITS = 5
EVERY = 7  # logit that the other writers store


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(7)
    lines = {
        side: [
            " ".join(numbers.choices(words, k=numbers.randint(1, 7)))
            for _ in range(200)
        ]
        for side, words in _WORDS.items()
    }
    tokens = write_tokenizer(lines)
    model = random_model(len(tokens))
    model.save_pretrained(FOLDER)
    tokenizer = transformers.MarianTokenizer.from_pretrained(FOLDER)
    text = [
        *lines["source"][:20],
        ">>de<< two zwei",
        "unknown: Ω € two",
        "  spaces   between ",
        ",",
    ]
    expected = {"lines": text}
    expected["inputs"] = tokenizer(text)["input_ids"]
    expected["targets"] = tokenizer(text_target=text)["input_ids"]
    expected["logits"] = logits(model, expected)
    for name, beams in (("greedy", 1), ("beam", 4)):
        expected[name] = [
            generate(model, ids, beams, EXTRA_LENGTH)
            for ids in expected["inputs"]
        ]
    store(FOLDER, expected)


def write_tokenizer(lines):
    """Write the SentencePiece models and vocab.json; return the tokens."""
    pieces = []
    for side, vocab_size in (("source", 60), ("target", 64)):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines[side]),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="unigram",
            hard_vocab_limit=False,
            normalization_rule_name="identity",  # the others have 240 KB
        )
        (FOLDER / f"{side}.spm").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(
            model_proto=model.getvalue()
        )
        pieces += [processor.IdToPiece(i) for i in range(3, len(processor))]
    pieces = sorted(set(pieces))
    # As in OPUS-MT: pieces that a SentencePiece model has are not in the list.
    del pieces[5::17]
    tokens = ["</s>", "<unk>", *pieces, ">>de<<", "<pad>"]
    text = json.dumps({t: i for i, t in enumerate(tokens)}, ensure_ascii=False)
    (FOLDER / "vocab.json").write_text(text + "\n", "utf-8")
    languages = {"source_lang": "en", "target_lang": "de"}
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(languages))
    return tokens


def logits(model, expected):
    """Return logits of the first lines, with later ones as targets."""
    start, pad = model.config.decoder_start_token_id, model.config.pad_token_id
    sources, targets = (
        rnn.pad_sequence(list(map(torch.tensor, rows)), True, pad)
        for rows in (
            expected["inputs"][:_PAIRS],
            expected["targets"][_PAIRS : 2 * _PAIRS],
        )
    )
    shifted = torch.cat([torch.full((_PAIRS, 1), start), targets[:, :-1]], 1)
    with torch.no_grad():
        found = model(
            input_ids=sources,
            attention_mask=(sources != pad).long(),
            decoder_input_ids=shifted,
        ).logits
    return [
        [[round(x, _DIGITS) for x in row] for row in sentence]
        for sentence in found.tolist()
    ]


def generate(model, ids, beams, extra_length=8, **settings):
    """Return the ids of an output, with EOS, by generate() with settings."""
    with torch.no_grad():
        output = model.generate(
            input_ids=torch.tensor([ids]),
            num_beams=beams,
            max_new_tokens=len(ids) + extra_length,
            **settings,
        )
    found = output[0].tolist()[1:]
    return found[: found.index(model.config.eos_token_id) + 1]


def complete(expected, model, target, rows=None, **settings):
    """Add logits of the first of the inputs, and outputs of all.

    Args:
        expected: lines, and their ids as inputs.
        model: as it is stored.
        target: ids of the output whose logits are stored.
        rows: number of the logits; None: all.
        **settings: of generate().
    """
    start = model.config.decoder_start_token_id
    with torch.no_grad():
        found = model(
            input_ids=torch.tensor(expected["inputs"][:1]),
            decoder_input_ids=torch.tensor([[start, *target[:-1]]]),
            use_cache=False,  # FSMT has no causal mask with it
        ).logits[0, :rows, ::EVERY]
    expected["logits"] = [
        [round(x, _DIGITS) for x in row] for row in found.tolist()
    ]
    for name, beams in (("greedy", 1), ("beam", 4)):
        expected[name] = [
            generate(model, ids, beams, **settings)
            for ids in expected["inputs"]
        ]


def store(folder, expected):
    """Write expected.json; print what shows whether outputs vary."""
    text = json.dumps(expected, ensure_ascii=False)
    (folder / "expected.json").write_text(text + "\n", "utf-8")
    lengths = {name: [*map(len, expected[name])] for name in ("inputs", "beam")}
    print(folder.name, lengths, [len(set(row)) for row in expected["beam"]])


def random_model(vocab_size):
    """Return a MarianMTModel whose last token is PAD, and the first EOS.

    The seed, and the bias of EOS's logit, are such that outputs differ in words
    and length.
    """
    config = transformers.MarianConfig(
        vocab_size=vocab_size,
        pad_token_id=vocab_size - 1,
        decoder_start_token_id=vocab_size - 1,
        bad_words_ids=[[vocab_size - 1]],
        **_SETTINGS,
    )
    torch.manual_seed(3)
    model = transformers.MarianMTModel(config).eval()
    model.generation_config.num_beams = 4
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if path.endswith("bias") or "layer_norm" in path:
                weight.add_(0.3 * torch.randn_like(weight))
        model.final_logits_bias.normal_(0, 0.5)
        model.final_logits_bias[0, 0] = 10.0
    return model


if __name__ == "__main__":
    main()
