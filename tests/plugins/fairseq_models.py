"""Small checkpoints of fairseq, as arrays.read_checkpoint() has them."""

import math

import numpy as np
from numpy_layers import Reference, gelu, gelu_tanh, relu, silu, timing

SIZE, WIDTH, HEADS = 8, 12, 2
ACTIVATIONS = {
    "relu": relu,
    "gelu": gelu,
    "gelu_accurate": gelu_tanh,
    "swish": silu,
}
CODES = "#version: 0.2\nt h\nth e</w>\nc a\nca t</w>\no n</w>\n"
BEGINNINGS = [f"{letter}@@" for letter in "acdest"]
SUBWORDS = ["the", "cat", "ca@@", *BEGINNINGS, *"acdest.", "on"]
OTHERS = [*SUBWORDS, "x", "madeupword0000"]
SIZES = 4 + len(SUBWORDS), 4 + len(OTHERS)


def write_vocabularies(folder, shared=False):
    """Write the dictionaries of both sides, and the codes."""
    others = SUBWORDS if shared else OTHERS
    for language, tokens in (("en", SUBWORDS), ("de", others)):
        text = "".join(f"{token} 7\n" for token in tokens)
        (folder / f"dict.{language}.txt").write_text(text)
    (folder / "bpecodes").write_text(CODES)


def arguments(**changes):
    """Return what a namespace of fairseq-train has."""
    return {
        "arch": "transformer_iwslt_de_en",
        "source_lang": "en",
        "target_lang": "de",
        "encoder_embed_dim": SIZE,
        "decoder_embed_dim": SIZE,
        "encoder_ffn_embed_dim": WIDTH,
        "decoder_ffn_embed_dim": WIDTH,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_layers": 2,
        "decoder_layers": 1,
    } | changes


def both(**changes):
    """Return settings of encoder and decoder."""
    return {
        f"{side}_{key}": value
        for key, value in changes.items()
        for side in ("encoder", "decoder")
    }


class Model(Reference):
    """Reference of arguments(), whose names are those of 2018 if it is old."""

    final_norm, epsilon = "{}.layer_norm", 1e-5

    def __init__(self, args, arrays=None, sizes=(0, 0), old=False):
        pre_norm = bool(args.get("encoder_normalize_before"))
        activation = ACTIVATIONS[args.get("activation_fn", "relu")]
        super().__init__(pre_norm, activation, arrays)
        self.args, self.sizes, self.old = args, sizes, old
        self.decoder_width = args.get("decoder_ffn_embed_dim")
        self.output = "embed_out" if old else "output_projection.weight"

    def dense(self, path, inputs, outputs):
        kernel = self.get(f"{path}.weight", outputs, inputs).T
        return kernel, self.get(f"{path}.bias", outputs)

    def norm(self, path):
        gain = self.get(f"{path}.weight", SIZE, mean=1)
        return gain, self.get(f"{path}.bias", SIZE)

    def numbers(self, side):
        return range(self.args[f"{side}_layers"])

    def names(self, side, i, kind):
        at = f"{side}.layers.{i}"
        word = {"self": "self_attn", "cross": "encoder_attn", "ffn": "final"}
        norm = f"{at}.{word[kind]}_layer_norm"
        if self.old:
            kinds = ["self", *(["cross"] if side == "decoder" else []), "ffn"]
            norm = f"{at}.layer_norms.{kinds.index(kind)}"
        if kind == "ffn":
            return [f"{at}.fc1", f"{at}.fc2"], norm
        words = ("q", "k", "v", "out")
        return [f"{at}.{word[kind]}.{k}_proj" for k in words], norm

    def weights(self, side, i, kind):
        if kind == "ffn" or not self.old:
            return super().weights(side, i, kind)
        (*_, output), norm = self.names(side, i, kind)
        path = output.removesuffix("out_proj")
        kernel = self.get(f"{path}in_proj_weight", 3 * SIZE, SIZE)
        bias = self.get(f"{path}in_proj_bias", 3 * SIZE)
        pairs = zip(np.split(kernel.T, 3, 1), np.split(bias, 3), strict=True)
        return [*pairs, self.dense(output, SIZE, SIZE)], self.norm(norm)

    def embed(self, side, ids):
        args, is_decoder = self.args, side == "decoder"
        rows = self.sizes[is_decoder]
        x = self.get(f"{side}.embed_tokens.weight", rows, SIZE)
        x = x[[2, *ids] if is_decoder else ids]
        x = x * (1 if args.get("no_scale_embedding") else math.sqrt(SIZE))
        if args.get("encoder_learned_pos"):
            table = self.get(f"{side}.embed_positions.weight", 2 + 20, SIZE)
            x = x + table[2 : 2 + len(x)]
        elif not args.get("no_token_positional_embeddings"):
            x = x + timing(len(x), SIZE, first=2)
        if args.get("layernorm_embedding"):
            x = self.normalize(x, self.norm(f"{side}.layernorm_embedding"))
        return x

    def softmax(self, y):
        return y @ self.get(f"decoder.{self.output}", self.sizes[1], SIZE).T


def state(args, sizes=SIZES, tied="", old=False):
    """Return random weights by fairseq's names, or those of 2018 if `old`.

    All embeddings of `sizes` rows are tied, those of "targets", or none.
    """
    model = Model(args, None, sizes, old)
    found = model.drawn()
    for side in ("encoder", "decoder"):
        found[f"{side}.version"] = np.array([3], np.float32)
        found[f"{side}.embed_positions._float_tensor"] = np.zeros(1, np.float32)
    embeddings = [f"{x}.embed_tokens.weight" for x in ("encoder", "decoder")]
    if tied == "all":
        found[embeddings[1]] = found[embeddings[0]]
    if tied:
        found[f"decoder.{model.output}"] = found[embeddings[1]]
    return found
