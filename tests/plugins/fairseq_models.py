"""Small checkpoints of fairseq, as arrays.read_checkpoint() has them."""

import math

import numpy as np
from numpy_layers import Layers, gelu, gelu_tanh, relu, silu, timing

SIZE, WIDTH, HEADS = 8, 12, 2
ACTIVATIONS = {
    "relu": relu,
    "gelu": gelu,
    "gelu_accurate": gelu_tanh,
    "swish": silu,
}
CODES = "#version: 0.2\nt h\nth e</w>\nc a\nca t</w>\no n</w>\n"
SUBWORDS = [
    "the",
    "cat",
    "ca@@",
    *(f"{c}@@" for c in "acdest"),
    *"acdest.",
    "on",
]
OTHERS = [*SUBWORDS, "x", "madeupword0000"]


def dictionary(tokens):
    return "".join(f"{token} 7\n" for token in tokens)


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


def state(args, sizes, tied="", old=False):
    """Return random weights by fairseq's names.

    Args:
        args: result of arguments().
        sizes: rows of the embeddings of source and target.
        tied: "all", "targets" or "".
        old: whether names are those of 2018.
    """
    rng, found = np.random.default_rng(2), {}

    def put(name, *shape):
        found[name] = rng.normal(size=shape).astype(np.float32) / 2

    def norm(name):
        put(f"{name}.weight", SIZE)
        put(f"{name}.bias", SIZE)

    def dense(name, inputs, outputs):
        put(f"{name}.weight", outputs, inputs)
        put(f"{name}.bias", outputs)

    def attention(path):
        if old:
            put(f"{path}.in_proj_weight", 3 * SIZE, SIZE)
            put(f"{path}.in_proj_bias", 3 * SIZE)
        for name in ("out",) if old else ("q", "k", "v", "out"):
            dense(f"{path}.{name}_proj", SIZE, SIZE)

    for side, names in (
        ("encoder", ["self_attn", "final"]),
        ("decoder", ["self_attn", "encoder_attn", "final"]),
    ):
        found[f"{side}.version"] = np.array([3], np.float32)
        found[f"{side}.embed_positions._float_tensor"] = np.zeros(1, np.float32)
        put(f"{side}.embed_tokens.weight", sizes[side == "decoder"], SIZE)
        if args.get("encoder_learned_pos"):
            put(f"{side}.embed_positions.weight", 2 + 20, SIZE)
        if args.get("encoder_normalize_before"):
            norm(f"{side}.layer_norm")
        if args.get("layernorm_embedding"):
            norm(f"{side}.layernorm_embedding")
        for i in range(args[f"{side}_layers"]):
            at = f"{side}.layers.{i}"
            for number, name in enumerate(names):
                norm(
                    f"{at}.layer_norms.{number}"
                    if old
                    else f"{at}.{name}_layer_norm"
                )
                if name != "final":
                    attention(f"{at}.{name}")
            dense(f"{at}.fc1", SIZE, WIDTH)
            dense(f"{at}.fc2", WIDTH, SIZE)
    if tied == "all":
        found["decoder.embed_tokens.weight"] = found[
            "encoder.embed_tokens.weight"
        ]
    softmax = "decoder.embed_out" if old else "decoder.output_projection.weight"
    put(softmax, sizes[1], SIZE)
    if tied:
        found[softmax] = found["decoder.embed_tokens.weight"]
    return found


def logits(args, weights, inputs, targets, old=False):
    """Compute logits [T, V] of fairseq's ids by its formulas."""
    pre_norm = bool(args.get("encoder_normalize_before"))
    activation = ACTIVATIONS[args.get("activation_fn", "relu")]
    layers = Layers(HEADS, 1e-5, pre_norm, activation)

    def get(name):
        return weights[name].astype(float)

    def dense(name):
        return get(f"{name}.weight").T, get(f"{name}.bias")

    def norm(name):
        return get(f"{name}.weight"), get(f"{name}.bias")

    def layer_norm(at, number, name):
        return norm(f"{at}.layer_norms.{number}" if old else f"{at}.{name}")

    def attention(path):
        if not old:
            return [dense(f"{path}.{k}_proj") for k in ("q", "k", "v", "out")]
        kernels = np.split(get(f"{path}.in_proj_weight"), 3)
        biases = np.split(get(f"{path}.in_proj_bias"), 3)
        inner = [(k.T, b) for k, b in zip(kernels, biases, strict=True)]
        return [*inner, dense(f"{path}.out_proj")]

    def embed(side, ids):
        x = get(f"{side}.embed_tokens.weight")[ids]
        x = x * (1 if args.get("no_scale_embedding") else math.sqrt(SIZE))
        if args.get("encoder_learned_pos"):
            x = x + get(f"{side}.embed_positions.weight")[2 : 2 + len(x)]
        elif not args.get("no_token_positional_embeddings"):
            x = x + timing(len(x), SIZE, first=2)
        if args.get("layernorm_embedding"):
            x = layers.norm(x, norm(f"{side}.layernorm_embedding"))
        return x

    def ffn(x, at, number):
        weights = dense(f"{at}.fc1"), dense(f"{at}.fc2")
        name = layer_norm(at, number, "final_layer_norm")
        return layers.feed_forward(x, weights, name)

    x = embed("encoder", inputs)
    for i in range(args["encoder_layers"]):
        at = f"encoder.layers.{i}"
        name = layer_norm(at, 0, "self_attn_layer_norm")
        x = layers.self_attention(x, attention(f"{at}.self_attn"), name)
        x = ffn(x, at, 1)
    x = layers.norm(x, norm("encoder.layer_norm")) if pre_norm else x
    y = embed("decoder", [2, *targets[:-1]])
    for i in range(args["decoder_layers"]):
        at = f"decoder.layers.{i}"
        name = layer_norm(at, 0, "self_attn_layer_norm")
        y = layers.self_attention(y, attention(f"{at}.self_attn"), name, True)
        name = layer_norm(at, 1, "encoder_attn_layer_norm")
        y = layers.cross_attention(y, x, attention(f"{at}.encoder_attn"), name)
        y = ffn(y, at, 2)
    y = layers.norm(y, norm("decoder.layer_norm")) if pre_norm else y
    name = "decoder.embed_out" if old else "decoder.output_projection.weight"
    return y @ get(name).T
