"""Models in Marian's own format, .npz or .bin.

Names and shapes of weights are those of src/models/transformer.h, by which the
default type, transformer, is trained. marian_files describes the files.
"""

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_repro import errors
from t2t_repro.importing import arrays, imported, marian_files, weights
from t2t_repro.importing.arrays import Tensors
from t2t_repro.importing.imported import Imported
from t2t_repro.importing.marian_files import VocabularyFiles
from t2t_repro.text.sentence_piece import MappedModel, MappedSentencePiece
from t2t_repro.text.vocabulary import SpecialTokens
from t2t_repro.text.vocabulary_pair import Vocabularies

# Options of a Marian model, and the hparams that they stand for.
#
# Marian stores options of the model in its file, as the array special:model.yml
# (src/models/encoder_decoder.cpp, getModelParameters). An option that an older
# version did not store has the default of src/common/config_parser.cpp.

_DEFAULTS = {
    "type": "amun",
    "version": "",
    "dim-emb": "512",
    "enc-depth": "1",
    "dec-depth": "1",
    "tied-embeddings": "false",
    "tied-embeddings-src": "false",
    "tied-embeddings-all": "false",
    "transformer-heads": "8",
    "transformer-dim-ffn": "2048",
    "transformer-decoder-dim-ffn": "0",  # 0: transformer-dim-ffn
    "transformer-ffn-depth": "2",
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-tied-layers": [],
    "transformer-disable-position-embeddings": "false",
    "transformer-train-positions": "false",
    "transformer-train-position-embeddings": "false",
}
# The only values that can be represented, the default first.
_REQUIRED: dict[str, tuple[str, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-no-projection": ("false",),
    "transformer-pool": ("false",),
    "transformer-attention-mask": ("default",),
    "transformer-no-bias": ("false",),
    "transformer-no-affine": ("false",),
    "right-left": ("false",),
    "ulr": ("false",),
    "lemma-dim-emb": ("0",),
    "lemma-dependency": ("",),
    "factors-combine": ("sum", ""),
}
# Options without effect on a model that passes the check of the others.
_WITHOUT_EFFECT = (
    "transformer-aan-activation",
    "transformer-aan-depth",
    "transformer-aan-nogate",
    "transformer-alibi-shift",
    "transformer-alibi-trainable",
    "transformer-depth-scaling",  # of the first weights in training
    "transformer-dim-aan",
    "transformer-dropout",
    "transformer-dropout-attention",
    "transformer-dropout-ffn",
    "transformer-guided-alignment-layer",
    "transformer-rnn-projection",
)
_OFF: tuple[Any, ...] = ("false", "0", "", [])
_NULL = ("~", "null")
# Marian's gelu was swish(1.702 x) before (src/graph/node_operators_unary.h).
_EXACT_GELU = (1, 12, 3)
# Keys and values of self-attention were not normalized before where
# transformer-preprocess is n (src/models/transformer.h, LayerAttention).
_NORMALIZED_KEYS = (1, 11, 0)
_EPSILON = 1e-6  # src/layers/generic.h, layerNorm()


class Options:
    """Options of one model."""

    def __init__(self, values: Mapping[str, Any], file: pathlib.Path):
        """Store the options.

        Args:
            values: {name: text or list}, as YAML has them.
            file: path of the model, for errors.

        Raises:
            UserError: a value cannot be represented.
        """
        stored = {k: v for k, v in values.items() if v not in _NULL}
        self._values = _DEFAULTS | stored
        self._file = file
        for name, allowed in _REQUIRED.items():
            if self._values.get(name, allowed[0]) not in allowed:
                raise self._refuse(name, " or ".join(map(repr, allowed)))
        known = (*_DEFAULTS, *_REQUIRED, *_WITHOUT_EFFECT)
        for name, value in stored.items():
            is_unknown = name.startswith("transformer-") and name not in known
            if is_unknown and value not in _OFF:
                raise self._refuse(name, "off: it is unknown here")
        self._check_streams()

    def integer(self, name: str, lowest: int = 1) -> int:
        """Return the value of an option that is a number."""
        text = self.text(name)
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) < lowest:
            raise self._refuse(name, f"a number of at least {lowest}")
        return int(text)

    def flag(self, name: str) -> bool:
        """Return the value of an option that is true or false."""
        text = self.text(name)
        if text not in ("true", "false"):
            raise self._refuse(name, "true or false")
        return text == "true"

    def text(self, name: str) -> str:
        """Return the value of an option that is text."""
        value = self._values[name]
        if not isinstance(value, str):
            raise self._refuse(name, "a single value")
        return value

    @property
    def layer_numbers(self) -> dict[str, list[int]]:
        """Numbers in the names of the layers' weights, of both sides.

        Layers of the decoder with the same number share their weights.
        """
        depth = self.integer("dec-depth")
        decoder = list(range(1, depth + 1))
        name = "transformer-tied-layers"
        tied = self._values[name]
        if tied:
            numbers = {str(number): number for number in decoder}
            is_list = isinstance(tied, list) and len(tied) == depth
            if not is_list or not all(
                isinstance(one, str) and one in numbers for one in tied
            ):
                raise self._refuse(name, f"{depth} numbers of layers")
            decoder = [numbers[one] for one in tied]
        return {
            "encoder": list(range(1, self.integer("enc-depth") + 1)),
            "decoder": decoder,
        }

    @property
    def shares_embeddings(self) -> bool:
        """True if source and target have one embedding, Wemb.

        src/layers/embedding.cpp, createEmbeddingLayer().
        """
        return self.flag("tied-embeddings-src") or self.ties_all

    @property
    def ties_softmax(self) -> bool:
        """True if the softmax has the weights of the target's embedding.

        src/models/transformer.h, lazyCreateOutputLayer().
        """
        return self.flag("tied-embeddings") or self.ties_all

    @property
    def ties_all(self) -> bool:
        """True if there is one matrix for both embeddings and the softmax."""
        return self.flag("tied-embeddings-all")

    @property
    def trains_positions(self) -> bool:
        """True if positions are trained, where the model has their array.

        src/models/transformer.h reads the first name, and the command line has
        the second: with that alone, the model has sinusoids and no array.
        """
        return any(
            self.flag(f"transformer-train-{name}")
            for name in ("positions", "position-embeddings")
        )

    @property
    def is_pre_norm(self) -> bool:
        """True if the inputs of sublayers are normalized, not the outputs."""
        return "n" in self.text("transformer-preprocess")

    @property
    def has_embedding_norm(self) -> bool:
        """True if the sums of embeddings and positions are normalized."""
        return "n" in self.text("transformer-postprocess-emb")

    def hparams(self, has_positions: bool) -> dict[str, Any]:
        """Return the hparams that differ from those of fine_tuning.

        Args:
            has_positions: whether positions are trained.

        Raises:
            UserError: a value cannot be represented.
        """
        self._check_norms()
        layers = {side: len(n) for side, n in self.layer_numbers.items()}
        width = self.integer("transformer-dim-ffn")
        of_decoder = self.integer("transformer-decoder-dim-ffn", 0)
        if of_decoder not in (0, width):
            raise self._refuse(
                "transformer-decoder-dim-ffn", f"transformer-dim-ffn ({width})"
            )
        # src/models/transformer.h, addPositionalEmbeddings() and
        # addSpecialEmbeddings(): only sinusoids come with a factor.
        positions = "emb" if has_positions else "timing"
        if self.flag("transformer-disable-position-embeddings"):
            positions = "none"
        return {
            "hidden_size": self.integer("dim-emb"),
            "filter_size": width,
            "num_heads": self.integer("transformer-heads"),
            **imported.layer_counts(**layers),
            "attention_bias": True,
            "ffn_activation": self._activation(),
            "norm_epsilon": _EPSILON,
            "pos": positions,
            "multiply_embedding_mode": "sqrt_depth"
            if positions == "timing"
            else "none",
            "embedding_norm": self.has_embedding_norm,
            "softmax_bias": True,
            **imported.norm_order(self.is_pre_norm),
        }

    def _activation(self) -> str:
        gelu = "gelu" if self._version() >= _EXACT_GELU else "gelu_sigmoid"
        names = {"relu": "relu", "swish": "silu", "gelu": gelu}
        name = "transformer-ffn-activation"
        if self.text(name) not in names:
            raise self._refuse(name, " or ".join(names))
        return names[self.text(name)]

    def _check_norms(self) -> None:
        """Refuse sequences of operations that no hparam stands for.

        d, dropout, has no effect on a trained model.
        """
        before = self.text("transformer-preprocess").replace("d", "")
        after = {"": "an", "n": "a"}
        if before not in after:
            raise self._refuse("transformer-preprocess", "'' or 'n'")
        rules = {
            "transformer-postprocess": (after[before],),
            "transformer-postprocess-emb": ("", "n"),
            "transformer-postprocess-top": (before,),
        }
        for name, allowed in rules.items():
            if self.text(name).replace("d", "") not in allowed:
                meant = " or ".join(map(repr, allowed))
                raise self._refuse(
                    name,
                    f"{meant}, with d or without, where "
                    f"transformer-preprocess is {before!r}",
                )
        if before and self._version() < _NORMALIZED_KEYS:
            raise self._refuse(
                "transformer-preprocess",
                "'' in a model of Marian before 1.11, which did not normalize "
                "keys and values",
            )

    def _check_streams(self) -> None:
        """Refuse models that have not one source and one target."""
        sizes = self._values.get("dim-vocabs", ["0", "0"])
        if not isinstance(sizes, list) or len(sizes) != 2:
            raise self._refuse("dim-vocabs", "of one source and one target")
        kinds = self._values.get("input-types", [])
        if any(kind != "sequence" for kind in kinds):
            raise self._refuse("input-types", "'sequence'")

    def _version(self) -> tuple[int, ...]:
        """Return the version of Marian that wrote the model; (): unknown."""
        numbers = re.match(r"v?(\d+)\.(\d+)\.(\d+)", self.text("version"))
        return tuple(map(int, numbers.groups())) if numbers else ()

    def _refuse(self, name, rule):
        return imported.refuse(
            self._file, name, rule, self._values.get(name, "nothing")
        )


OPTIONS = "special:model.yml"
# src/data/types.h: names of special tokens, and those of Nematus.
_EOS, _UNKNOWN = ("</s>", "eos"), ("<unk>", "UNK")


def read(
    path: pathlib.Path, vocabularies: Sequence[pathlib.Path] = ()
) -> Imported:
    """Read a model.

    Args:
        path: its folder, or its file of weights.
        vocabularies: vocabulary files, where the files do not name them.

    Raises:
        UserError: a file is missing or damaged, or the model has a setting
            that cannot be represented.
    """
    files = marian_files.find(path, vocabularies)
    stored = _read_arrays(files.weights)
    options = _options(stored, files.weights)
    tensors = Tensors(stored, str(files.weights))
    has_positions = _has_positions(tensors, options)
    changes = options.hparams(has_positions)
    matrices = _matrices(tensors, options)
    mapped = [
        _vocabulary(side, len(matrix))
        for side, matrix in zip(
            (files.source, files.target), matrices[:2], strict=True
        )
    ]
    model_weights = _weights(
        tensors, options, changes, matrices, [m.order for m in mapped]
    )
    tensors.refuse_rest([OPTIONS])
    return Imported(
        changes,
        model_weights,
        Vocabularies.of(*(MappedSentencePiece(m.model) for m in mapped)),
        "mapped_sentence_piece",
        files.search,
        files.all,
    )


def _read_arrays(file):
    if file.suffix == ".bin":
        return marian_files.read_binary(file)
    return arrays.read_npz(file)


def _options(stored, file):
    if OPTIONS not in stored:
        raise errors.UserError(
            f"{file} has no {OPTIONS}, the options of a Marian model. Name "
            "the file that Marian has written: --input=…."
        )
    return parse_options(np.asarray(stored[OPTIONS]).tobytes(), file)


def parse_options(content: bytes, file: pathlib.Path) -> Options:
    """Return the options in the text of an array, which ends in zeros.

    Raises:
        UserError: it is not YAML, or an option cannot be represented.
    """
    content = content.rstrip(b"\0")
    return Options(
        marian_files.parse_yaml(content, f"{OPTIONS} in {file}"), file
    )


def _has_positions(tensors: Tensors, options: Options) -> bool:
    """Return whether the model has trained positions.

    If the options do not say so, Wpos is an array without a place.
    """
    return "Wpos" in tensors and options.trains_positions


def _matrices(tensors: Tensors, options: Options) -> list[np.ndarray]:
    """Return embeddings of source and target, and weights of the softmax."""
    size = options.integer("dim-emb")
    if options.shares_embeddings:
        source = target = tensors.take("Wemb", -1, size)
    else:
        source, target = (
            tensors.take(f"{side}_Wemb", -1, size)
            for side in ("encoder", "decoder")
        )
    name = "decoder_ff_logit_out"
    if options.ties_softmax:
        softmax = target
    elif f"{name}_W" in tensors:  # of older versions: src/layers/output.cpp
        softmax = tensors.take(f"{name}_W", size, len(target)).T
    else:
        softmax = tensors.take(f"{name}_Wt", len(target), size)
    return [source, target, softmax]


def _vocabulary(files: VocabularyFiles, size: int) -> MappedModel:
    """Return a SentencePiece model with our ids, and their order."""
    if files.ids is None:
        mapped = imported.keep_ids(files.pieces)
        count = len(mapped.order) - 1  # without PAD
        if count != size:
            raise errors.UserError(
                f"{files.pieces} has {count:,} pieces and the model {size:,}. "
                "If a .yml or .json file has the ids, name it, too: "
                f"--vocabularies={files.pieces.name},vocab.yml."
            )
        return mapped
    tokens = _tokens(files.ids, size)
    special = SpecialTokens(_name(tokens, 0, _EOS), _name(tokens, 1, _UNKNOWN))
    return imported.map_ids(files.pieces, tokens, special, files.ids)


def _tokens(file: pathlib.Path, size: int) -> list[str]:
    """Return tokens by their ids; ids without a token have an unused name.

    Marian ignores tokens of higher ids (src/data/default_vocab.cpp, load()).
    """
    found: dict[int, str] = {}
    for token, number in marian_files.read_yaml(file).items():
        is_number = isinstance(number, str) and number.isdecimal()
        if not is_number or len(number) > 9 or int(number) in found:
            raise errors.UserError(
                f"The ids in {file} must be different numbers; got {number!r} "
                f"for {token!r}."
            )
        found[int(number)] = token
    return [found.get(i, "") or f"<unused {i}>" for i in range(size)]


def _name(tokens, number, names):
    """Return the name of a special token (addRequiredVocabulary() there)."""
    first = tokens[number] if number < len(tokens) else ""
    if first == names[1] or first.startswith("<unused "):
        return first
    return names[0]


def _weights(tensors, options, changes, matrices, orders):
    """Return all weights by their roles."""
    changes |= imported.sharing(
        options.ties_softmax,
        options.shares_embeddings and orders[0] == orders[1],
    )
    source, target, softmax = imported.reorder(*matrices, orders)
    rows = len(matrices[1])
    bias = np.zeros(rows, np.float32)
    # Absent with --output-omit-bias.
    stored = tensors.take_if_present("decoder_ff_logit_out_b", 1, rows)
    if stored is not None:
        bias = stored[0]
    bias = imported.rows(bias, orders[1])
    bias[np.asarray(orders[1]) < 0] = imported.PAD_BIAS
    positions = None
    if changes["pos"] == "emb":  # one table for both sides
        positions = tensors.take("Wpos", -1, options.integer("dim-emb"))
        # Positions beyond the table have its last row, there as here.
        (positions,) = weights.pad_positions([positions])
        changes["max_length"] = len(positions)
    sides = [
        _side(tensors, side, embedding, positions, options)
        for side, embedding in (("encoder", source), ("decoder", target))
    ]
    return weights.Weights(*sides, softmax, bias)


def _side(tensors, side, embedding, positions, options):
    numbers = options.layer_numbers[side]
    layers = {n: _layer(tensors, f"{side}_l{n}", options) for n in set(numbers)}
    size = options.integer("dim-emb")
    top = emb = None
    if options.is_pre_norm:  # postProcess() of the stack: no suffix
        top = _norm(tensors, f"{side}_top", "", size)
    if options.has_embedding_norm:  # preProcess()
        emb = _norm(tensors, f"{side}_emb", "_pre", size)
    return weights.Side(
        embedding, [layers[n] for n in numbers], top, emb, positions
    )


def _layer(tensors: Tensors, path: str, options: Options) -> weights.Layer:
    size = options.integer("dim-emb")
    width = options.integer("transformer-dim-ffn")
    suffix = "_pre" if options.is_pre_norm else ""

    def dense(name, inputs, outputs):
        kernel, bias = (f"{path}_{name}".replace("?", x) for x in "Wb")
        return weights.Dense(
            tensors.take(kernel, inputs, outputs),
            tensors.take(bias, 1, outputs)[0],
        )

    def attention(name):  # MultiHead()
        return weights.Attention(
            *(dense(f"{name}_?{one}", size, size) for one in "qkvo")
        )

    def norm(name):
        return _norm(tensors, f"{path}_{name}", suffix, size)

    is_decoder = path.startswith("decoder")
    return weights.Layer(
        attention("self"),
        norm("self_Wo"),
        dense("ffn_?1", size, width),
        dense("ffn_?2", width, size),
        norm("ffn_ffn"),
        attention("context") if is_decoder else None,
        norm("context_Wo") if is_decoder else None,
    )


def _norm(tensors: Tensors, path: str, suffix: str, size: int) -> Any:
    """Return the layer normalization of layerNorm(), src/layers/generic.h."""
    return weights.Norm(
        *(
            tensors.take(f"{path}_ln_{name}{suffix}", 1, size)[0]
            for name in ("scale", "bias")
        )
    )
