"""Options of a Marian model, and the hparams that they stand for.

Marian stores options of the model in its file, as the array special:model.yml
(src/models/encoder_decoder.cpp, getModelParameters). An option that an older
version did not store has the default of src/common/config_parser.cpp.
"""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

from t2t_repro.importing import imported

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
