"""Small random models in Marian's format, for tests."""

import io
import json
import struct

import numpy as np
import sentencepiece
import yaml

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
