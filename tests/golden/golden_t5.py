"""Writer of tests/golden/t5, madlad and pegasus, by transformers.

    pip install torch==2.13.0 transformers sentencepiece protobuf
    python -m tests.golden.golden_t5 FILE…

FILE… are lines of text, from which small SentencePiece models are learned. The
folders have a random T5ForConditionalGeneration, of version 1.0 and 1.1, or a
Pegasus, with a vocabulary of its family, and expected.json:

    lines       sentences in several scripts; MADLAD's begin with a tag
    inputs      ids by the family's tokenizer; by SentencePiece of MADLAD, whose
                spaces, bytes and unknown text T5Tokenizer reads otherwise
    logits      [T, V / 7] of the first sentence and the second as a target
    greedy, beam    ids of generate() with 1 and 4 beams
"""

import io
import json
import pathlib
import sys

import sentencepiece
import torch
import transformers

from tests.golden.golden_huggingface import complete, store
from tests.golden.golden_languages import LINES as SENTENCES
from tests.golden.golden_languages import settings, varied

ROOT = pathlib.Path(__file__).parent
SEED = 1
LINES = [
    "translate English to German: Two dogs play in the snow.",
    *SENTENCES[1:8],
    "The <extra_id_0> walks in <extra_id_1> park .",
    "Ein Mann",
]
MADLAD = ["\n", "<2de>", "<2zh_Latn>", "<2en>"]
_VOCABULARIES = {
    "t5": {"vocab_size": 300, "pad_id": 0, "eos_id": 1, "unk_id": 2}
    | {"bos_id": -1},
    "madlad": {"vocab_size": 560, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    | {"user_defined_symbols": MADLAD, "byte_fallback": True}
    | {"remove_extra_whitespaces": False},
}
_VOCABULARIES["pegasus"] = _VOCABULARIES["t5"]
_CONFIGS = {
    # 100 sentinels, and 28 rows without tokens
    "t5": {"vocab_size": 428, "d_model": 16, "d_kv": 6, "num_heads": 3},
    "madlad": {"vocab_size": 560, "d_model": 10, "d_kv": 4, "num_heads": 4}
    | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    | {"pad_token_id": 1, "eos_token_id": 2},
}


def main(paths):
    text = [line for path in paths for line in open(path, encoding="utf-8")]
    for family in _VOCABULARIES:
        folder = ROOT / family
        folder.mkdir(exist_ok=True)
        learn(text, folder, _VOCABULARIES[family])
        write(family, folder, random_model(family))


def learn(text, folder, settings):
    """Learn a vocabulary from lines of text."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter([*text[:3000], *LINES[3:6] * 50]),
        model_writer=model,
        model_type="unigram",
        **{"normalization_rule_name": "identity"} | settings,  # small files
    )
    (folder / "spiece.model").write_bytes(model.getvalue())


def write(family, folder, model):
    """Write the model, and what it gives."""
    lines, path, config = LINES, folder / "spiece.model", model.config
    stored = {"tokenizer_class": "T5Tokenizer", "extra_ids": 100}
    if family == "madlad":
        lines = [f"<2de> {line}" for line in lines]
        tokenizer = sentencepiece.SentencePieceProcessor(str(path))
        stored["extra_ids"] = 0
        inputs = tokenizer.Encode(lines, add_eos=True)
    else:
        if family == "pegasus":  # SentencePiece alone removes such spaces
            lines = [" ".join(line.split()) for line in lines]
            stored = {"tokenizer_class": "PegasusTokenizer", "offset": 103}
        kind = getattr(transformers, stored["tokenizer_class"])
        inputs = kind.from_pretrained(folder)(lines)["input_ids"]
    (folder / "tokenizer_config.json").write_text(json.dumps(stored) + "\n")
    expected = {"lines": lines, "inputs": inputs}
    model.save_pretrained(folder)
    complete(
        expected,
        model,
        inputs[1],
        forced_eos_token_id=config.eos_token_id,
        # Trained ones never have it.
        bad_words_ids=[[config.pad_token_id]],
    )
    store(folder, expected)


def random_model(family):
    """Return a model whose outputs vary."""
    torch.manual_seed(SEED)
    if family == "pegasus":  # 103 tokens of pre-training, 2 rows without any
        config = transformers.PegasusConfig(
            scale_embedding=True, activation_function="relu", **settings(405)
        )
        model = transformers.PegasusForConditionalGeneration(config)
        model.final_logits_bias.normal_(0, 0.5)
        model.final_logits_bias[0, 1] = 3.0  # outputs differ in length
        with torch.no_grad():
            model.model.shared.weight.mul_(0.6)
            for path, weight in model.named_parameters():
                if "attn" in path and path.endswith("proj.weight"):
                    weight.mul_(1.8)
        return varied(model)
    config = transformers.T5Config(
        num_layers=2,
        num_decoder_layers=1,
        d_ff=20,
        decoder_start_token_id=0,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        **_CONFIGS[family],
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        if config.scale_decoder_outputs:  # version 1.0
            # A subword's own vector would be the most probable next one.
            model.shared.weight.mul_(0.05)
            model.decoder.final_layer_norm.weight.mul_(40)
        else:
            head = torch.randn_like(model.shared.weight)
            model.lm_head.weight = torch.nn.Parameter(head)
        for path, weight in model.named_parameters():
            if "layer_norm" in path:
                weight.add_(0.3 * torch.randn_like(weight))
            elif "relative_attention_bias" in path:
                weight.normal_()
            elif "Dense" in path or path.endswith("Attention.o.weight"):
                weight.mul_(2)
    return model


if __name__ == "__main__":
    main(sys.argv[1:])
