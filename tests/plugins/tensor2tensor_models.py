"""Small models of tensor2tensor, as its trainer writes them."""

import json

import numpy as np
import tensorflow as tf
from numpy_layers import Layers, timing

SIZE, WIDTH, HEADS, LAYERS, SHARDS = 8, 12, 2, 2, 3
NORMS = {
    "pre": ("n", "da", "layer_prepostprocess"),
    "post": ("none", "dan", "layer_postprocess"),
}
WORDS = ["the", "cat", "dog", "sat", "mat", "on", "_", "the_", "cat_", "at_"]
LETTERS = "\\_u;0123456789abcdeghmnopqrstxyz. -"


def subwords(*more):
    """Return a vocabulary file."""
    pieces = ["<pad>", "<EOS>", *WORDS, *more]
    letters = set(LETTERS) | set("".join(pieces))
    pieces += sorted(letters - set(pieces))
    return "".join(f"'{piece}'\n" for piece in pieces).encode()


def settings(norms="post", **changes):
    """Return the content of hparams.json."""
    before, after, _ = NORMS[norms]
    return {
        "hidden_size": SIZE,
        "filter_size": WIDTH,
        "num_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "layer_preprocess_sequence": before,
        "layer_postprocess_sequence": after,
        "optimizer_adafactor_beta1": 0.0,
        "symbol_modality_num_shards": SHARDS,
        "learning_rate_minimum": None,
    } | changes


def arrays(hparams, sizes, seed=1):
    """Return random arrays by tensor2tensor's names.

    Args:
        hparams: result of settings().
        sizes: rows of the matrices of inputs and of targets.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    body, found = "transformer/body", {}

    def put(name, *shape):
        found[f"{body}/{name}"] = rng.normal(size=shape).astype(np.float32) / 2

    def norm(path):
        kind = NORMS["pre" if _is_pre(hparams) else "post"][2]
        for name in ("scale", "bias"):
            put(f"{path}/{kind}/layer_norm/layer_norm_{name}", SIZE)

    keys = hparams.get("attention_key_channels") or SIZE
    values = hparams.get("attention_value_channels") or SIZE
    for side, attentions in (
        ("encoder", ["self_attention"]),
        ("decoder", ["self_attention", "encdec_attention"]),
    ):
        for i in range(_count(hparams, side)):
            for name in attentions:
                at = f"{side}/layer_{i}/{name}"
                for letter, shape in (
                    ("q", (SIZE, keys)),
                    ("k", (SIZE, keys)),
                    ("v", (SIZE, values)),
                    ("output_transform", (values, SIZE)),
                ):
                    put(f"{at}/multihead_attention/{letter}/kernel", *shape)
                norm(at)
            at = f"{side}/layer_{i}/ffn"
            put(f"{at}/conv1/kernel", SIZE, WIDTH)
            put(f"{at}/conv1/bias", WIDTH)
            put(f"{at}/conv2/kernel", WIDTH, SIZE)
            put(f"{at}/conv2/bias", SIZE)
            norm(at)
        if _is_pre(hparams):
            norm(side)
    if hparams.get("use_target_space_embedding", True):
        put("target_space_embedding/kernel", 32, SIZE)
    if hparams.get("pos") == "emb":
        for side in ("inputs", "targets"):
            put(f"{side}_positional_embedding", hparams["max_length"], SIZE)
    for kind, rows in zip(
        _kinds(hparams, sizes), (*sizes, sizes[1]), strict=True
    ):
        scope = f"transformer/symbol_modality_{rows}_{SIZE}/{kind}"
        matrix = rng.normal(size=(rows, SIZE)).astype(np.float32)
        for i, shard in enumerate(np.array_split(matrix, SHARDS)):
            found.setdefault(f"{scope}/weights_{i}", shard)
    return found


def _is_pre(hparams):
    return hparams["layer_preprocess_sequence"] == "n"


def _count(hparams, side):
    return hparams.get(f"num_{side}_layers") or LAYERS


def _kinds(hparams, sizes):
    """Return the scopes of embeddings of inputs and targets, and softmax."""
    is_tied = hparams.get("shared_embedding_and_softmax_weights", True)
    if is_tied and sizes[0] == sizes[1]:
        return ("shared",) * 3
    if hparams.get("shared_embedding"):
        return "shared", "shared", "softmax"
    return "input_emb", "target_emb", "softmax"


def save(path, tensors):
    """Write a checkpoint as TensorFlow 1 does."""
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(path),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tf.constant(tensors[name]) for name in names],
    )


def write(folder, hparams, tensors, **vocabularies):
    """Write the files of a model.

    Args:
        folder: where.
        hparams: content of hparams.json.
        tensors: arrays by name.
        **vocabularies: contents by the last part of the name: subwords=….
    """
    folder.mkdir(exist_ok=True)
    (folder / "hparams.json").write_text(json.dumps(hparams))
    save(folder / "model.ckpt-7", tensors)
    for name, content in vocabularies.items():
        (folder / f"vocab.translate_ende.{name}").write_bytes(content)


def logits(hparams, tensors, sizes, inputs, targets, target_space=0):
    """Compute logits [T, V] by tensor2tensor's formulas.

    Sources: layers/transformer_layers.py, models/transformer.py, modalities.py.
    """
    layers = Layers(HEADS, 1e-6, _is_pre(hparams))
    kind = NORMS["pre" if _is_pre(hparams) else "post"][2]

    def get(name):
        return tensors[f"transformer/body/{name}"].astype(float)

    def norm(path):
        path = f"{path}/{kind}/layer_norm/layer_norm_"
        return get(f"{path}scale"), get(f"{path}bias")

    def attention(path):
        return [
            (get(f"{path}/multihead_attention/{name}/kernel"), None)
            for name in ("q", "k", "v", "output_transform")
        ]

    def ffn(path):
        return [
            (get(f"{path}/{name}/kernel"), get(f"{path}/{name}/bias"))
            for name in ("conv1", "conv2")
        ]

    source, target, softmax = (
        np.concatenate(
            [
                tensors[
                    f"transformer/symbol_modality_{n}_{SIZE}/{k}/weights_{i}"
                ]
                for i in range(SHARDS)
            ]
        )
        for k, n in zip(_kinds(hparams, sizes), (*sizes, sizes[1]), strict=True)
    )
    mode = hparams.get("multiply_embedding_mode", "sqrt_depth")
    scale = SIZE**0.5 if mode == "sqrt_depth" else 1
    x = source[inputs] * scale
    y = np.concatenate([np.zeros((1, SIZE)), target[targets[:-1]] * scale])
    if hparams.get("use_target_space_embedding", True):
        x = x + get("target_space_embedding/kernel")[target_space]
    pos = hparams.get("pos", "timing")
    if pos == "timing":
        x, y = x + timing(len(x), SIZE), y + timing(len(y), SIZE)
    if pos == "emb":
        # add_positional_embedding() pads a short table with zeros.
        rows = len(x) + len(y)
        tables = (
            np.pad(get(f"{side}_positional_embedding"), ((0, rows), (0, 0)))
            for side in ("inputs", "targets")
        )
        x, y = (
            z + table[: len(z)] for z, table in zip((x, y), tables, strict=True)
        )
    for i in range(_count(hparams, "encoder")):
        at = f"encoder/layer_{i}"
        name = f"{at}/self_attention"
        x = layers.self_attention(x, attention(name), norm(name))
        x = layers.feed_forward(x, ffn(f"{at}/ffn"), norm(f"{at}/ffn"))
    x = layers.norm(x, norm("encoder")) if layers.pre_norm else x
    for i in range(_count(hparams, "decoder")):
        at = f"decoder/layer_{i}"
        name = f"{at}/self_attention"
        y = layers.self_attention(y, attention(name), norm(name), causal=True)
        name = f"{at}/encdec_attention"
        y = layers.cross_attention(y, x, attention(name), norm(name))
        y = layers.feed_forward(y, ffn(f"{at}/ffn"), norm(f"{at}/ffn"))
    y = layers.norm(y, norm("decoder")) if layers.pre_norm else y
    return y @ softmax.T
