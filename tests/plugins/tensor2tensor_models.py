"""Small models of tensor2tensor, as its trainer writes them."""

import json

import numpy as np
import tensorflow as tf
from numpy_layers import Reference, timing

from t2t_repro.text.t2t_subwords import T2TSubwords

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


VOCABULARY = subwords()
SIZES = (T2TSubwords(VOCABULARY).size,) * 2


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


class Model(Reference):
    """Reference of settings().

    Sources: layers/transformer_layers.py, models/transformer.py, modalities.py.
    """

    final_norm = "{}"

    def __init__(self, hparams, sizes, arrays=None, seed=1, target_space=0):
        pre_norm = hparams["layer_preprocess_sequence"] == "n"
        super().__init__(pre_norm, arrays=arrays, seed=seed)
        self.hparams, self.sizes = hparams, sizes
        self.target_space = target_space
        self.keys = hparams.get("attention_key_channels") or SIZE
        self.values = hparams.get("attention_value_channels") or SIZE

    def get(self, name, *shape, mean=0.0):
        return super().get(f"transformer/{name}", *shape, mean=mean)

    def dense(self, path, inputs, outputs):
        kernel = self.get(f"body/{path}/kernel", inputs, outputs)
        if "/ffn/" not in path:
            return kernel, None
        return kernel, self.get(f"body/{path}/bias", outputs)

    def norm(self, path):
        kind = NORMS["pre" if self.pre_norm else "post"][2]
        path = f"body/{path}/{kind}/layer_norm/layer_norm_"
        gain = self.get(f"{path}scale", SIZE, mean=1)
        return gain, self.get(f"{path}bias", SIZE)

    def numbers(self, side):
        return range(self.hparams.get(f"num_{side}_layers") or LAYERS)

    def names(self, side, i, kind):
        word = {"self": "self_attention", "cross": "encdec_attention"}
        at = f"{side}/layer_{i}/{word.get(kind, kind)}"
        if kind == "ffn":
            return [f"{at}/conv1", f"{at}/conv2"], at
        words = ("q", "k", "v", "output_transform")
        return [f"{at}/multihead_attention/{one}" for one in words], at

    def matrix(self, kind):
        """Return the matrix of inputs, of targets or of the softmax."""
        rows = self.sizes[kind != "input_emb"]
        is_tied = self.hparams.get("shared_embedding_and_softmax_weights", True)
        if (is_tied and self.sizes[0] == self.sizes[1]) or (
            self.hparams.get("shared_embedding") and kind != "softmax"
        ):
            kind = "shared"
        scope = f"symbol_modality_{rows}_{SIZE}/{kind}"
        return np.concatenate(
            [
                self.get(f"{scope}/weights_{i}", len(part), SIZE)
                for i, part in enumerate(np.array_split(range(rows), SHARDS))
            ]
        )

    def embed(self, side, ids):
        hparams, is_encoder = self.hparams, side == "encoder"
        x = self.matrix("input_emb" if is_encoder else "target_emb")[[*ids]]
        if hparams.get("multiply_embedding_mode", "sqrt_depth") == "sqrt_depth":
            x = x * SIZE**0.5
        if not is_encoder:
            x = np.concatenate([np.zeros((1, SIZE)), x])
        elif hparams.get("use_target_space_embedding", True):
            table = self.get("body/target_space_embedding/kernel", 32, SIZE)
            x = x + table[self.target_space]
        pos = hparams.get("pos", "timing")
        if pos == "timing":
            x = x + timing(len(x), SIZE)
        if pos == "emb":
            # add_positional_embedding() pads a short table with zeros.
            name = "inputs" if is_encoder else "targets"
            name = f"body/{name}_positional_embedding"
            table = self.get(name, hparams["max_length"], SIZE)
            x = x + np.pad(table, ((0, len(x)), (0, 0)))[: len(x)]
        return x

    def softmax(self, y):
        return y @ self.matrix("softmax").T


def arrays(hparams, sizes=SIZES, seed=1):
    """Return random arrays by tensor2tensor's names, for sizes V."""
    return Model(hparams, sizes, seed=seed).drawn()


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
    """Write the files of a model, whose vocabularies are like subwords=…."""
    folder.mkdir(exist_ok=True)
    (folder / "hparams.json").write_text(json.dumps(hparams))
    save(folder / "model.ckpt-7", tensors)
    for name, content in vocabularies.items():
        (folder / f"vocab.translate_ende.{name}").write_bytes(content)
