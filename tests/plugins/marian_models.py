"""Small random models in Marian's format, for tests."""

import io
import json
import struct

import numpy as np
import sentencepiece
import yaml
from numpy_layers import Layers, gelu, relu, silu, timing

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
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(LINES * 9),
        model_writer=written,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        minloglevel=2,
        **settings,
    )
    return written.getvalue()


def pieces(model):
    """Return the pieces of a SentencePiece model by their ids."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.IdToPiece(i) for i in range(processor.GetPieceSize())]


def random_arrays(options, sizes, seed=1):
    """Return random weights {Marian's name: array} for options.

    Args:
        options: as OPTIONS.
        sizes: V of source and target.
        seed: seed of the numbers.
    """
    numbers = np.random.default_rng(seed)
    arrays = {}

    def add(name, *shape, scale=0.5, mean=0.0):
        array = mean + scale * numbers.standard_normal(shape)
        arrays[name] = array.astype(np.float32)

    def norm(path, suffix):
        add(f"{path}_ln_scale{suffix}", 1, SIZE, mean=1, scale=0.2)
        add(f"{path}_ln_bias{suffix}", 1, SIZE, scale=0.2)

    def norms(path):
        if "n" in options["transformer-preprocess"]:
            norm(path, "_pre")
        if "n" in options["transformer-postprocess"]:
            norm(path, "")

    ties_all = options["tied-embeddings-all"]
    if ties_all or options["tied-embeddings-src"]:
        add("Wemb", sizes[0], SIZE, scale=0.3)
    else:
        add("encoder_Wemb", sizes[0], SIZE, scale=0.3)
        add("decoder_Wemb", sizes[1], SIZE, scale=0.3)
    out = "decoder_ff_logit_out"
    if not ties_all and not options["tied-embeddings"]:
        add(f"{out}_Wt", sizes[1], SIZE)
    if not options.get("output-omit-bias"):
        add(f"{out}_b", 1, sizes[1])
    if options.get("transformer-train-positions"):
        add("Wpos", 12, SIZE)
    for side in ("encoder", "decoder"):
        if "n" in options["transformer-postprocess-emb"]:
            norm(f"{side}_emb", "_pre")
        if "n" in options["transformer-postprocess-top"]:
            norm(f"{side}_top", "")
        count = options[f"{side[:3]}-depth"]
        tied = options["transformer-tied-layers"]
        numbers_of_layers = set(range(1, count + 1))
        if side == "decoder" and tied:
            numbers_of_layers = set(tied)
        for i in numbers_of_layers:
            kinds = ["self"] + (["context"] if side == "decoder" else [])
            for kind in kinds:
                path = f"{side}_l{i}_{kind}"
                for one in "qkvo":
                    add(f"{path}_W{one}", SIZE, SIZE)
                    add(f"{path}_b{one}", 1, SIZE, scale=0.2)
                norms(f"{path}_Wo")
            path = f"{side}_l{i}_ffn"
            add(f"{path}_W1", SIZE, WIDTH)
            add(f"{path}_b1", 1, WIDTH, scale=0.2)
            add(f"{path}_W2", WIDTH, SIZE)
            add(f"{path}_b2", 1, SIZE, scale=0.2)
            norms(f"{path}_ffn")
    return arrays


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
TOKENS = pieces(SPM)


def random_model(folder, changes=None, **files):
    """Write a random model into folder/model, with vocab.spm or other files.

    Returns:
        Its folder, arrays and options.
    """
    sizes = [len(TOKENS)] * 2
    options = OPTIONS | {"dim-vocabs": sizes} | (changes or {})
    arrays = random_arrays(options, sizes)
    files = files or {"vocab.spm": SPM}
    return write(folder / "model", options, arrays, **files), arrays, options


def ids_by_token(tokens):
    """Return {token: id} in Marian's order."""
    return {token: i for i, token in enumerate(tokens)}


def logits(options, arrays, source, target):
    """Compute logits [T + 1, V] of Marian's ids by its formulas.

    Sources: src/models/transformer.h, src/models/decoder.h,
    src/layers/embedding.cpp, src/layers/output.cpp, src/layers/generic.h.

    Args:
        options: as OPTIONS.
        arrays: weights by Marian's names.
        source: ids of a sentence with EOS.
        target: T ids of an output, after which the decoder is asked for more.
    """
    arrays = {name: array.astype(float) for name, array in arrays.items()}
    pre_norm = options["transformer-preprocess"] == "n"
    is_old = options["version"] < "v1.12.3"
    activations = {
        "relu": relu,
        "swish": silu,
        "gelu": (lambda x: silu(1.702 * x) / 1.702) if is_old else gelu,
    }
    layers = Layers(
        options["transformer-heads"],
        1e-6,
        pre_norm,
        activations[options["transformer-ffn-activation"]],
    )

    def dense(path, name):
        return arrays[f"{path}_W{name}"], arrays[f"{path}_b{name}"][0]

    def norm(path, suffix="_pre" if pre_norm else ""):
        parts = "scale", "bias"
        return [arrays[f"{path}_ln_{part}{suffix}"][0] for part in parts]

    def attention(path):
        return [dense(path, name) for name in "qkvo"], norm(f"{path}_Wo")

    def positions(x, side):
        if options.get("transformer-train-positions"):
            table = arrays["Wpos"]
            x = x + table[np.minimum(np.arange(len(x)), len(table) - 1)]
        elif not options.get("transformer-disable-position-embeddings"):
            x = x * SIZE**0.5 + timing(len(x), SIZE)
        if "n" in options["transformer-postprocess-emb"]:
            return layers.norm(x, norm(f"{side}_emb", "_pre"))
        return x

    def ffn(x, path):
        weights = dense(path, "1"), dense(path, "2")
        return layers.feed_forward(x, weights, norm(f"{path}_ffn"))

    ties_all = options["tied-embeddings-all"]
    shared = options["tied-embeddings-src"] or ties_all
    names = ["Wemb"] * 2 if shared else ["encoder_Wemb", "decoder_Wemb"]
    x = positions(arrays[names[0]][source], "encoder")
    for i in range(1, options["enc-depth"] + 1):
        x = layers.self_attention(x, *attention(f"encoder_l{i}_self"))
        x = ffn(x, f"encoder_l{i}_ffn")
    if pre_norm:
        x = layers.norm(x, norm("encoder_top", ""))
    y = np.concatenate([np.zeros((1, SIZE)), arrays[names[1]][target]])
    y = positions(y, "decoder")
    depth = options["dec-depth"]
    for i in options["transformer-tied-layers"] or range(1, depth + 1):
        path = f"decoder_l{i}"
        y = layers.self_attention(y, *attention(f"{path}_self"), causal=True)
        y = layers.cross_attention(y, x, *attention(f"{path}_context"))
        y = ffn(y, f"{path}_ffn")
    if pre_norm:
        y = layers.norm(y, norm("decoder_top", ""))
    out = "decoder_ff_logit_out"
    is_tied = options["tied-embeddings"] or ties_all
    y = y @ arrays[names[1] if is_tied else f"{out}_Wt"].T
    return y + (arrays[f"{out}_b"] if f"{out}_b" in arrays else 0)
