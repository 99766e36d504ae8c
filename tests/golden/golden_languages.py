"""Writer of tests/golden/m2m_100, nllb and mbart50, by transformers.

    pip install torch==2.13.0 transformers sentencepiece protobuf
    python -m tests.golden.golden_languages FILE…

FILE… are lines of text, from which a small SentencePiece model is learned.
Each folder has a random model, a tokenizer of its family, and expected.json, by
transformers:

    lines       sentences in several scripts
    inputs      ids of the tokenizer as sources in `source`
    logits      [T, V / 7] of the first sentence and the second as a target
    greedy, beam    ids of generate() with 1 and 4 beams, into `target`
"""

import io
import json
import pathlib
import sys

import sentencepiece
import torch
import transformers

from tests.golden.golden_huggingface import complete, store

ROOT = pathlib.Path(__file__).parent
ROWS = 6  # of logits that are stored
DIRECTIONS = {
    "m2m_100": ("en", "de"),
    "nllb": ("eng_Latn", "deu_Latn"),
    "mbart50": ("en_XX", "de_DE"),
}
LINES = [
    "Two dogs play in the snow.",
    "Zwei Hunde spielen im Schnee.",
    "Deux chiens jouent dans la neige.",
    "Две собаки играют в снегу.",
    "两只狗在雪地里玩耍。",
    "كلبان يلعبان في الثلج",
    "unknown: Ω€ and ☃ ☃☃ x",
    "  spaces   between ",
    "A man in a blue shirt is standing on a ladder.",
    "Ein Mann",
]
_PIECES = 300
SEED = 1
# Rows that the length of a tokenizer leaves out: 100 languages, and those
# without a token.
_MORE_ROWS = {"m2m_100": 108, "nllb": 2, "mbart50": 0}


def main(paths):
    text = [line for path in paths for line in open(path, encoding="utf-8")]
    text = [*text[:3000], *LINES[3:6] * 50]
    byte_pairs, unigrams = (learn(text, x) for x in ("bpe", "unigram"))
    for family in DIRECTIONS:
        write(family, unigrams if family == "mbart50" else byte_pairs)


def learn(text, model_type):
    """Return a SentencePiece model of lines."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(text),
        model_writer=model,
        vocab_size=_PIECES,
        model_type=model_type,
        normalization_rule_name="identity",  # the others have 240 KB
    )
    return model.getvalue()


def write(family, pieces):
    """Write the folder of a family."""
    folder = ROOT / family
    folder.mkdir(exist_ok=True)
    (folder / "sentencepiece.bpe.model").write_bytes(pieces)
    source, target = DIRECTIONS[family]
    write_tokenizer = {
        "m2m_100": write_m2m_100,
        "nllb": write_nllb,
        "mbart50": write_mbart50,
    }[family]
    tokenizer = write_tokenizer(folder, source)
    size = len(tokenizer) + _MORE_ROWS[family]
    model = random_mbart(size) if family == "mbart50" else random_model(size)
    if family == "mbart50":  # 16 bits: a smaller file
        model.half()
    model.save_pretrained(folder)
    model.float()
    lines = LINES
    if family != "m2m_100":  # SentencePiece alone removes such spaces
        lines = [" ".join(line.split()) for line in lines]
    expected = {"lines": lines, "inputs": tokenizer(lines)["input_ids"]}
    token = f"__{target}__" if family == "m2m_100" else target
    first = tokenizer.convert_tokens_to_ids(token)
    complete(
        expected,
        model,
        [first, *expected["inputs"][1][1:]],
        ROWS,
        forced_bos_token_id=first,
        forced_eos_token_id=2,
    )
    store(folder, expected)


def write_m2m_100(folder, source):
    """Write vocab.json, with ids of fairseq; return the tokenizer."""
    path = folder / "sentencepiece.bpe.model"
    pieces = sentencepiece.SentencePieceProcessor(str(path))
    tokens = ["<s>", "<pad>", "</s>", "<unk>"]
    tokens += [pieces.IdToPiece(i) for i in range(3, len(pieces))]
    del tokens[100::90]  # pieces that the list lacks
    tokens += ["☃", "▁Ω"]  # the second is never read
    listing = folder / "vocab.json"
    listing.write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    made = transformers.M2M100Tokenizer(
        str(listing), str(path), src_lang=source
    )
    made.save_pretrained(folder)
    return made


def write_nllb(folder, source):
    """Write tokenizer.json; return the tokenizer."""
    from transformers.models.nllb import tokenization_nllb

    made = transformers.NllbTokenizer.from_pretrained(
        folder,
        src_lang=source,
        extra_special_tokens=tokenization_nllb.FAIRSEQ_LANGUAGE_CODES,
    )
    made.save_pretrained(folder)
    return made


def write_mbart50(folder, source):
    """Write tokenizer_config.json alone, as published; return the tokenizer."""
    made = transformers.MBart50Tokenizer.from_pretrained(folder)
    made.src_lang = source
    settings = {"tokenizer_class": "MBart50Tokenizer", "src_lang": source}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")
    return made


def settings(vocab_size):
    """Return settings of a small model."""
    return {
        "vocab_size": vocab_size,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 64,
        "init_std": 0.6,
    }


def random_model(vocab_size):
    """Return a model whose outputs vary."""
    torch.manual_seed(SEED)
    config = transformers.M2M100Config(**settings(vocab_size))
    return varied(transformers.M2M100ForConditionalGeneration(config))


def random_mbart(vocab_size):
    """Return the same of mBART-50, with scaled embeddings and a bias."""
    torch.manual_seed(SEED)
    config = transformers.MBartConfig(
        scale_embedding=True,
        decoder_start_token_id=2,
        **settings(vocab_size) | {"encoder_layers": 1},
    )
    model = transformers.MBartForConditionalGeneration(config)
    model.final_logits_bias.normal_(0, 0.5)
    model.final_logits_bias[0, 2] = 5.0  # outputs differ in length
    return varied(model)


def varied(model):
    """Return a model whose biases and norms differ from those of new ones."""
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if path.endswith("bias") or "norm" in path:
                weight.add_(0.3 * torch.randn_like(weight))
            # A subword's own vector would be the most probable next one.
            if path.endswith(("fc2.weight", "out_proj.weight")):
                weight.mul_(4)
    return model.eval()


if __name__ == "__main__":
    main(sys.argv[1:])
