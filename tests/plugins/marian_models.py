"""Small random models in Marian's format, for tests."""

import json
import struct

import numpy as np
import sentence_pieces
import yaml
from numpy_layers import Reference, gelu, relu, silu, timing

LINES = ["two birds sing", "the cat sat on the mat", "a dog ran in the park"]
SIZE, WIDTH = 16, 24
# As Marian 1.12 stores them.
OPTIONS = {
    "type": "transformer",
    "dim-vocabs": [0, 0],
    "dim-emb": SIZE,
    "enc-depth": 2,
    "dec-depth": 1,
    "input-types": [],
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "tied-embeddings-all": True,
    "transformer-heads": 2,
    "transformer-dim-ffn": WIDTH,
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-tied-layers": [],
    "ulr": False,
    "ulr-dim-emb": None,
    "version": "v1.12.0 65bf82ff 2023-02-21 09:56:29 -0800",
}
PRE_NORM = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}


def sentence_piece(vocab_size=40, **settings):
    """Return a SentencePiece model as Marian learns it."""
    settings |= {"bos_id": -1, "eos_id": 0, "unk_id": 1}
    return sentence_pieces.learn(LINES * 9, vocab_size=vocab_size, **settings)


class Model(Reference):
    """Reference of options.

    Sources: src/models/transformer.h, src/models/decoder.h,
    src/layers/embedding.cpp, src/layers/output.cpp, src/layers/generic.h.
    """

    size = keys = values = SIZE
    width = WIDTH
    final_norm = "{}_top"

    def __init__(self, options, arrays=None, sizes=(0, 0)):
        self.options, self.sizes = options, sizes
        is_old = options["version"] < "v1.12.3"
        activations = {
            "relu": relu,
            "swish": silu,
            "gelu": (lambda x: silu(1.702 * x) / 1.702) if is_old else gelu,
        }
        self.heads = options["transformer-heads"]
        self.decoder_width = options.get("transformer-decoder-dim-ffn")
        super().__init__(
            options["transformer-preprocess"] == "n",
            activations[options["transformer-ffn-activation"]],
            arrays,
        )
        ties_all = options["tied-embeddings-all"]
        shared = options["tied-embeddings-src"] or ties_all
        sides = ("encoder", "decoder")
        self.embeddings = {x: "Wemb" if shared else f"{x}_Wemb" for x in sides}
        self.is_tied = options["tied-embeddings"] or ties_all

    def dense(self, path, inputs, outputs):
        path, letter = path[:-1], path[-1]
        kernel = self.get(f"{path}W{letter}", inputs, outputs)
        return kernel, self.get(f"{path}b{letter}", 1, outputs)[0]

    def norm(self, path):
        is_before = self.pre_norm and not path.endswith("_top")
        suffix = "_pre" if is_before or path.endswith("_emb") else ""
        gain = self.get(f"{path}_ln_scale{suffix}", 1, SIZE, mean=1)[0]
        return gain, self.get(f"{path}_ln_bias{suffix}", 1, SIZE)[0]

    def numbers(self, side):
        tied = self.options["transformer-tied-layers"]
        if side == "decoder" and tied:
            return tied
        return range(1, self.options[f"{side[:3]}-depth"] + 1)

    def names(self, side, i, kind):
        at = f"{side}_l{i}_{'context' if kind == 'cross' else kind}"
        letters, norm = ("12", "ffn") if kind == "ffn" else ("qkvo", "Wo")
        return [f"{at}_{letter}" for letter in letters], f"{at}_{norm}"

    def embedding(self, side):
        rows = self.sizes[side == "decoder"]
        return self.get(self.embeddings[side], rows, SIZE)

    def embed(self, side, ids):
        x = self.embedding(side)[[*ids]]
        if side == "decoder":
            x = np.concatenate([np.zeros((1, SIZE)), x])
        if self.options.get("transformer-train-positions"):
            table = self.get("Wpos", 12, SIZE)
            x = x + table[np.minimum(np.arange(len(x)), len(table) - 1)]
        elif not self.options.get("transformer-disable-position-embeddings"):
            x = x * SIZE**0.5 + timing(len(x), SIZE)
        if "n" in self.options["transformer-postprocess-emb"]:
            return self.normalize(x, self.norm(f"{side}_emb"))
        return x

    def softmax(self, y):
        out, rows = "decoder_ff_logit_out", self.sizes[1]
        matrix = self.embedding("decoder")
        if not self.is_tied:
            matrix = self.get(f"{out}_Wt", rows, SIZE)
        has_bias = not self.options.get("output-omit-bias")
        return y @ matrix.T + (self.get(f"{out}_b", 1, rows) if has_bias else 0)


def special(options):
    """Return special:model.yml, bytes that end in a zero."""
    # PyYAML writes null, and Marian ~.
    text = yaml.safe_dump(options).replace(": null\n", ": ~\n")
    return np.frombuffer(text.encode() + b"\0", np.int8)


def write(folder, options, arrays, **files):
    """Write model.npz and other files {name: bytes or value of YAML}."""
    folder.mkdir(exist_ok=True, parents=True)
    stored = arrays | {"special:model.yml": special(options)}
    np.savez(folder / "model.npz", **stored)
    for name, content in files.items():
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        (folder / name).write_bytes(content)
    return folder


_TYPES = {"float32": 0x404, "float16": 0x402, "int8": 0x101}


def binary(arrays, version=1, kinds=()):
    """Return the bytes of a .bin, as src/common/binary.cpp writes it."""
    kinds = dict(kinds)
    headers = names = shapes = data = b""
    for name, array in arrays.items():
        entries = array.tobytes()
        entries += bytes(-len(entries) % 256)
        kind = kinds.get(name, _TYPES[array.dtype.name])
        headers += struct.pack(
            "<4Q", len(name) + 1, kind, array.ndim, len(entries)
        )
        names += name.encode() + b"\0"
        shapes += np.array(array.shape, np.int32).tobytes()
        data += entries
    start = struct.pack("<2Q", version, len(arrays)) + headers + names + shapes
    offset = ((len(start) + 8) // 256 + 1) * 256 - len(start) - 8
    return start + struct.pack("<Q", offset) + bytes(offset) + data


SPM = sentence_piece()
TOKENS = sentence_pieces.pieces(SPM)


def random_model(folder, changes=None, **files):
    """Write a random model with vocab.spm or other files into folder/model.

    Return its folder, arrays and options.
    """
    sizes = [len(TOKENS)] * 2
    options = OPTIONS | {"dim-vocabs": sizes} | (changes or {})
    arrays = Model(options, None, sizes).drawn()
    files = files or {"vocab.spm": SPM}
    return write(folder / "model", options, arrays, **files), arrays, options


def ids_by_token(tokens):
    """Return {token: id} in Marian's order."""
    return {token: i for i, token in enumerate(tokens)}
