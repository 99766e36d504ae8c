"""The paper's models (arXiv 1706.03762)."""

import dataclasses
import sys
from typing import Any

from t2t_repro.hparam import (
    MAX_INNER_WIDTH,
    MAX_LAYERS,
    MAX_POSITIONS,
    MAX_WIDTH,
    HParams,
)
from t2t_repro.io.fields import above, at_least, fraction, one_of, setting
from t2t_repro.registry import hparams_sets, models, norms

_NO_FORMULA = ("emb", "none", "rotary", "buckets")  # of positions


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerHParams(HParams):
    """Settings of the Transformer and its variants."""

    filter_size: int = setting(
        at_least(1),
        MAX_INNER_WIDTH,
        help="Width F of the feed-forward network's hidden layer.",
    )
    decoder_filter_size: int = setting(
        at_least(0),
        MAX_INNER_WIDTH,
        default=0,
        help="F of the decoder; 0: filter_size.",
    )
    num_heads: int = setting(at_least(1), MAX_WIDTH, help="Attention heads H.")
    num_key_value_heads: int = setting(
        at_least(0),
        MAX_WIDTH,
        default=0,
        help="Heads of keys and values, which groups of query heads share; 0: "
        "num_heads.",
    )
    num_hidden_layers: int = setting(
        at_least(1),
        MAX_LAYERS,
        help="Layers of the encoder, and of the decoder.",
    )
    num_encoder_layers: int = setting(
        at_least(0),
        MAX_LAYERS,
        default=0,
        help="Layers of the encoder; 0: num_hidden_layers.",
    )
    num_decoder_layers: int = setting(
        at_least(0),
        MAX_LAYERS,
        default=0,
        help="Layers of the decoder; 0: num_hidden_layers.",
    )
    attention_key_channels: int = setting(
        at_least(0),
        MAX_INNER_WIDTH,
        help="Width of the queries of all heads together, and of the keys "
        "without grouped queries; 0: hidden_size.",
    )
    attention_value_channels: int = setting(
        at_least(0),
        MAX_INNER_WIDTH,
        help="Width of the outputs of all heads together, and of the values "
        "without grouped queries; 0: hidden_size.",
    )
    attention_type: str = setting(
        one_of("dot_product", "dot_product_unscaled", "additive"),
        help="How a query and a key become a logit.",
    )
    attention_bias: bool = setting(
        default=False,
        help="Add biases to the projections of queries, keys, values and "
        "outputs.",
    )
    max_relative_position: int = setting(
        at_least(0),
        MAX_POSITIONS,
        help="Clipping distance of relative positions in self-attention; 0: "
        "absolute positions only.",
    )
    restricted_attention: int = setting(
        at_least(0),
        help="Self-attention of position i sees j where |i - j| is below "
        "this; 0: all positions.",
    )
    pos: str = setting(
        one_of(
            "sinusoids",
            "sines_then_cosines",
            "timing",
            "emb",
            "none",
            "rotary",
            "buckets",
        ),
        help="Positional encoding: the paper's sinusoids, interleaved or all "
        "sines first; tensor2tensor's; a learned one; none; rotary: "
        "self-attention rotates queries and keys; or buckets: it adds a "
        "learned bias of each bucket of distances, as T5.",
    )
    position_buckets: int = setting(
        at_least(4),
        MAX_POSITIONS,
        default=32,  # T5's (arXiv 1910.10683, section 2.1)
        help="Buckets of distances where pos is buckets, an even number.",
    )
    max_bucket_distance: int = setting(
        at_least(3),
        MAX_POSITIONS,
        default=128,  # T5's
        help="Distance from which on all are in one bucket.",
    )
    first_position: int = setting(
        at_least(0),
        MAX_POSITIONS,
        default=0,
        help="Number of the first position in formulas of positions.",
    )
    shared_embedding_and_softmax_weights: bool = setting(
        help="Use one matrix for the embeddings of inputs and targets and for "
        "the softmax."
    )
    shared_embedding: bool = setting(
        default=False,
        help="Where that is false: use one matrix for the embeddings of inputs "
        "and targets.",
    )
    shared_targets_embedding_and_softmax_weights: bool = setting(
        default=False,
        help="Where both are false: use one matrix for the embedding of "
        "targets and for the softmax.",
    )
    softmax_bias: bool = setting(
        default=False, help="Add a bias to the logits of the subwords."
    )
    multiply_embedding_mode: str = setting(
        one_of("sqrt_depth", "none"),
        default="sqrt_depth",  # section 3.4
        help="Factor of embeddings: the square root of hidden_size, or none.",
    )
    embedding_norm: bool = setting(
        default=False, help="Normalize the sums of embeddings and positions."
    )
    inputs_bias: bool = setting(
        default=False,
        help="Add a learned vector to all embeddings of inputs, as "
        "tensor2tensor adds that of the target language.",
    )
    encode_eos: bool = setting(
        default=True,
        help="Let attention see EOS of the inputs; false: only in an empty "
        "input, as in OpenNMT.",
    )
    learned_start: bool = setting(
        default=False,
        help="Start the decoder with a learned vector; false: with zeros, as "
        "tensor2tensor.",
    )
    # The last five are gated (arXiv 2002.05202).
    ffn_activation: str = setting(
        one_of(
            "relu",
            "gelu",
            "gelu_tanh",
            "gelu_sigmoid",
            "silu",
            "glu",
            "reglu",
            "geglu",
            "geglu_tanh",
            "swiglu",
        ),
        default="relu",
        help="Activation of the feed-forward network; gelu_tanh and "
        "gelu_sigmoid approximate gelu, and those with glu are gated.",
    )
    layer_preprocess_sequence: str = setting(
        one_of("none", "n"), help="Before a sublayer; n: normalization."
    )
    layer_postprocess_sequence: str = setting(
        one_of("dan", "da"),
        help="After a sublayer; d: dropout, a: addition of the residual, n: "
        "normalization.",
    )
    norm: str = setting(
        default="layer",  # section 3.1
        help="Normalization: layer, rms (without mean and bias), or a class of "
        "your own, perhaps with arguments, name:key=value; --registry_help "
        "lists them.",
    )
    norm_epsilon: float = setting(
        above(0),
        default=1e-6,  # tensor2tensor's
        help="epsilon of normalization.",
    )
    layer_prepostprocess_dropout: float = setting(
        fraction(),
        help="Dropout of sublayer outputs, and of the sums of embeddings and "
        "positions.",
    )
    attention_dropout: float = setting(
        fraction(), help="Dropout of attention weights."
    )
    relu_dropout: float = setting(
        fraction(), help="Dropout of the feed-forward network's hidden layer."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        channels = "attention_key_channels", "attention_value_channels"
        if all(getattr(self, name) for name in channels):
            is_right, rule = self.hidden_size % 2 == 0, "even"
        else:
            is_right = self.hidden_size % (2 * self.num_heads) == 0
            rule = f"an even multiple of num_heads ({self.num_heads})"
        self.require("hidden_size", is_right, rule)
        for name in channels:
            self.require(
                name,
                getattr(self, name) % self.num_heads == 0,
                f"a multiple of num_heads ({self.num_heads})",
            )
        self.require(
            "num_key_value_heads",
            self.num_heads % (self.num_key_value_heads or 1) == 0,
            f"0 or a divisor of num_heads ({self.num_heads})",
        )
        ties = "shared_targets_embedding_and_softmax_weights"
        self.require(
            ties,
            not (self.shared_embedding and getattr(self, ties)),
            "false where shared_embedding is true; one matrix for all is "
            "shared_embedding_and_softmax_weights",
        )
        norms[self.norm.partition(":")[0]]  # suggests near names
        self.require(
            "first_position",
            not self.first_position or self.pos not in _NO_FORMULA,
            f"0 where pos is {self.pos}: it has no formula",
        )
        self._check_positions()
        self.require(
            "max_relative_position",
            not self.max_relative_position or self.attention_type != "additive",
            "0 where attention_type is additive: it is of dot products",
        )

    def _check_positions(self) -> None:
        channels = self.attention_key_channels or self.hidden_size
        is_even = channels // self.num_heads % 2 == 0
        is_product = self.attention_type != "additive"
        half = self.position_buckets // 2
        relative = "max_relative_position", not self.max_relative_position, "0"
        rules = {
            "rotary": (
                ("attention_key_channels", is_even, "even for each head"),
                ("attention_type", is_product, "a dot product"),
                relative,
            ),
            "buckets": (
                ("position_buckets", self.position_buckets == 2 * half, "even"),
                (
                    "max_bucket_distance",
                    self.max_bucket_distance > half,
                    f"above half of position_buckets ({half})",
                ),
                relative,
            ),
        }
        for name, is_possible, rule in rules.get(self.pos, ()):
            self.require(name, is_possible, f"{rule} where pos is {self.pos}")

    @property
    def filter_sizes(self) -> tuple[int, int]:
        """Widths F of encoder and decoder."""
        return self.filter_size, self.decoder_filter_size or self.filter_size

    @property
    def encoder_layers(self) -> int:
        """Number of layers of the encoder."""
        return self.num_encoder_layers or self.num_hidden_layers

    @property
    def decoder_layers(self) -> int:
        """Number of layers of the decoder."""
        return self.num_decoder_layers or self.num_hidden_layers


models.declare(
    "transformer",
    "t2t_repro.models.transformer.Transformer",
    TransformerHParams,
)


# Pairs of a corpus: WMT14 has 4.5 million in en-de, 36 million in en-fr.
_MANY_PAIRS = range(1_000_000, sys.maxsize)


@hparams_sets.register("base", corpus_pairs=_MANY_PAIRS)
def base() -> TransformerHParams:
    """The paper's base model: 6 + 6 layers, 512 wide, 100,000 steps."""
    return TransformerHParams(
        model="transformer",
        hidden_size=512,  # section 3.1
        filter_size=2048,  # section 3.3
        num_heads=8,  # section 3.2.2
        num_hidden_layers=6,  # section 3.1
        attention_key_channels=0,  # h d_k = d_model: section 3.2.2
        attention_value_channels=0,  # h d_v = d_model: section 3.2.2
        attention_type="dot_product",  # scaled: section 3.2.1, equation 1
        max_relative_position=0,
        restricted_attention=0,  # section 4 only proposes it
        pos="sinusoids",  # section 3.5
        shared_embedding_and_softmax_weights=True,  # section 3.4
        layer_preprocess_sequence="none",  # section 3.1
        # Sections 3.1 and 5.4: LayerNorm(x + Dropout(Sublayer(x))).
        layer_postprocess_sequence="dan",
        layer_prepostprocess_dropout=0.1,  # section 5.4
        attention_dropout=0.0,  # section 5.4 names no other dropout
        relu_dropout=0.0,
        label_smoothing=0.1,  # section 5.4
        optimizer="adam",  # section 5.3
        optimizer_adam_beta1=0.9,  # section 5.3
        optimizer_adam_beta2=0.98,  # section 5.3
        optimizer_adam_epsilon=1e-9,  # section 5.3
        weight_decay=0.0,  # section 5.4 names no other regularization
        clip_grad_norm=0.0,  # section 5.3 names none
        ema_decay=0.0,  # section 6.1 averages checkpoints instead
        learning_rate_schedule="noam",  # section 5.3, equation 3
        learning_rate_constant=1.0,
        learning_rate_warmup_steps=4000,  # section 5.3
        batching="bucketed",  # section 5.1: "by approximate sequence length"
        reshuffle_buckets=True,
        proportional_rows=True,
        batch_tokens=25_000,  # section 5.1
        batch_unit="real_tokens",
        max_length=256,  # tensor2tensor; the paper does not say
        train_steps=100_000,  # section 5.2
        save_checkpoints_steps=1_500,  # 10 minutes (6.1) of 0.4 s steps (5.2)
        num_averaged_checkpoints=5,  # section 6.1
    )


@hparams_sets.register("big", parent="base", corpus_pairs=_MANY_PAIRS)
def big(parent: TransformerHParams) -> TransformerHParams:
    """The paper's big model (en-de): 1024 wide, 16 heads, 300,000 steps."""
    return dataclasses.replace(
        parent,
        hidden_size=1024,  # Table 3, last row
        filter_size=4096,  # Table 3, last row
        num_heads=16,  # Table 3, last row
        layer_prepostprocess_dropout=0.3,  # Table 3, last row
        train_steps=300_000,  # section 5.2
        save_checkpoints_steps=600,  # 10 minutes (6.1) of 1.0 s steps (5.2)
        num_averaged_checkpoints=20,  # section 6.1
    )


@hparams_sets.register("big_enfr", parent="big")
def big_enfr(parent: TransformerHParams) -> TransformerHParams:
    """The paper's big model for en-fr: less dropout."""
    return dataclasses.replace(parent, layer_prepostprocess_dropout=0.1)  # 6.1


@hparams_sets.register("parsing", parent="base")
def parsing(parent: TransformerHParams) -> TransformerHParams:
    """The paper's parser: 4 + 4 layers, 1024 wide."""
    return dataclasses.replace(
        parent,
        num_hidden_layers=4,  # section 6.3
        hidden_size=1024,  # section 6.3
        # Section 6.3 chose dropout, "both attention and residual", and the
        # learning rate on section 22, and states neither. These dropouts are
        # tensor2tensor's (transformer_parsing_base); the rate is base's.
        attention_dropout=0.2,
        layer_prepostprocess_dropout=0.2,
        max_length=512,  # tensor2tensor; the paper does not say
    )


# Small models, for CPUs and corpora of up to a million pairs.


@hparams_sets.register("tiny", parent="base")
def tiny(parent: TransformerHParams) -> TransformerHParams:
    """Two layers, 128 wide: learns number words on a laptop's CPU."""
    return dataclasses.replace(
        parent,
        hidden_size=128,
        filter_size=512,
        num_heads=4,
        num_hidden_layers=2,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.06,  # peak 0.06 / sqrt(400) = 0.003
        learning_rate_warmup_steps=400,
        batching="packed",
        batch_tokens=2_048,
        max_length=64,
        train_steps=600,
        save_checkpoints_steps=50,
    )


@hparams_sets.register("multi30k_tiny", parent="base")
def multi30k_tiny(parent: TransformerHParams) -> TransformerHParams:
    """The small Multi30k model of Wu et al. 2021 (arXiv 2105.14462)."""
    return dataclasses.replace(
        parent,
        hidden_size=128,
        filter_size=256,
        num_heads=4,
        num_hidden_layers=4,
        layer_prepostprocess_dropout=0.3,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.2236,  # peak 0.005 * sqrt(2000 steps)
        learning_rate_warmup_steps=2_000,
        batching="packed",
        batch_tokens=8_192,  # two GPUs of at most 4,096 tokens each
        max_length=128,
        train_steps=8_000,
        save_checkpoints_steps=200,
        num_averaged_checkpoints=10,
    )


@hparams_sets.register(
    "small", parent="multi30k_tiny", corpus_pairs=range(80_000)
)
def small(parent: TransformerHParams) -> TransformerHParams:
    """Four layers, 128 wide: about 30,000 pairs in half an hour on a CPU."""
    # A fifth of the tokens of multi30k_tiny: a shorter warm-up, a lower peak of
    # the learning rate and less dropout. Batches of 4,096 tokens are 1.2 BLEU
    # worse after as many epochs (scripts/results/recipes_multi30k).
    return dataclasses.replace(
        parent,
        layer_prepostprocess_dropout=0.1,
        learning_rate_constant=0.1,  # peak 0.1 / sqrt(1000) = 0.0032
        learning_rate_warmup_steps=1_000,
        batch_tokens=2_048,
        train_steps=6_000,
    )


@hparams_sets.register(
    "medium", parent="small", corpus_pairs=range(80_000, 1_000_000)
)
def medium(parent: TransformerHParams) -> TransformerHParams:
    """`small` for twice as many steps: about 200,000 pairs in an hour."""
    # In half an hour a model 256 wide is far behind the narrow one, and both
    # still improve (scripts/results/recipes_tatoeba).
    return dataclasses.replace(parent, train_steps=12_000)


# Variants that the paper mentions, later ones, and fine-tuning.


@hparams_sets.register("base_prenorm", parent="base")
def base_prenorm(parent: TransformerHParams) -> TransformerHParams:
    """Base with pre-norm: trains without warm-up (Xiong et al. 2020)."""
    return dataclasses.replace(
        parent,
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        # Base's peak, 512^-0.5 * 4000^-0.5, from the first update to the
        # 4,000th; then base's decay.
        learning_rate_schedule="rsqrt_decay*rsqrt_hidden_size",
    )


@hparams_sets.register("base_additive", parent="base")
def base_additive(parent: TransformerHParams) -> TransformerHParams:
    """Base with additive attention (section 3.2.1; Bahdanau et al. 2014)."""
    return dataclasses.replace(parent, attention_type="additive")


@hparams_sets.register("base_unscaled", parent="base")
def base_unscaled(parent: TransformerHParams) -> TransformerHParams:
    """Base without 1 / sqrt(d_k): section 3.2.1, footnote 4."""
    return dataclasses.replace(parent, attention_type="dot_product_unscaled")


@hparams_sets.register("base_restricted", parent="base")
def base_restricted(parent: TransformerHParams) -> TransformerHParams:
    """Base with self-attention at distances below 8 (section 4)."""
    # Seven positions to each side, so r = 15 in the paper's terms: half a
    # sentence of WMT14, which has about 30 subwords. 6 layers reach 42
    # positions, across most sentences (paths of O(n / r)).
    return dataclasses.replace(parent, restricted_attention=8)


@hparams_sets.register("base_adafactor", parent="base")
def base_adafactor(parent: TransformerHParams) -> TransformerHParams:
    """Base with Adafactor, as Shazeer and Stern trained it (1804.04235)."""
    return dataclasses.replace(
        parent,
        optimizer="adafactor",
        # min(0.01, step^-0.5), relative to a weight's size: section 8; so T2T.
        learning_rate_schedule="rsqrt_decay",
        learning_rate_warmup_steps=10_000,
    )


@hparams_sets.register("base_adamw", parent="base")
def base_adamw(parent: TransformerHParams) -> TransformerHParams:
    """Base with AdamW (Loshchilov and Hutter, arXiv 1711.05101)."""
    return dataclasses.replace(
        parent,
        optimizer="adamw",
        weight_decay=0.01,  # BERT's (arXiv 1810.04805, A.2)
    )


@hparams_sets.register("base_lion", parent="base")
def base_lion(parent: TransformerHParams) -> TransformerHParams:
    """Base with Lion (Chen et al., arXiv 2302.06675)."""
    # Section 5: a rate 3 to 10 times lower than AdamW's, and a weight decay as
    # many times higher; beta2 as in algorithm 2.
    return dataclasses.replace(
        parent,
        optimizer="lion",
        optimizer_adam_beta2=0.99,
        weight_decay=0.05,
        learning_rate_constant=0.2,
    )


# Training of a model that is trained already, such as an imported one.


@hparams_sets.register("fine_tuning", parent="base")
def fine_tuning(parent: TransformerHParams) -> TransformerHParams:
    """A small constant learning rate; the importer sets the model's hparams."""
    return dataclasses.replace(
        parent,
        learning_rate_schedule="constant*linear_warmup",
        # The default of Hugging Face's run_translation.py; here with Adam of
        # section 5.3, and warm-up, since its moments start at zero.
        learning_rate_constant=5e-5,
        learning_rate_warmup_steps=100,
        batch_tokens=4_096,
        max_length=512,  # OPUS-MT's max_position_embeddings
        train_steps=2_000,
        save_checkpoints_steps=200,
    )


# Table 3: the base model with one thing changed, row by row. "Unlisted values
# are identical to those of the base model." It scores newstest2013, the
# development set (``evaluate --split=validation``), "but no checkpoint
# averaging" (section 6.2): the last checkpoint alone counts.


def _row(name: str, summary: str, parent: str = "base", **changes: Any) -> None:
    """Register a row with some changes of the parent."""

    def row(values: TransformerHParams) -> TransformerHParams:
        return dataclasses.replace(
            values, num_averaged_checkpoints=1, **changes
        )

    row.__doc__ = f"Table 3{summary}."
    hparams_sets.register(name, parent=parent)(row)


_row("table3_base", ", first row: the base model, without averaging")
_row("table3_a_h1", " (A): one head, d_k = d_v = 512", num_heads=1)
_row("table3_a_h4", " (A): 4 heads, d_k = d_v = 128", num_heads=4)
_row("table3_a_h16", " (A): 16 heads, d_k = d_v = 32", num_heads=16)
_row("table3_a_h32", " (A): 32 heads, d_k = d_v = 16", num_heads=32)
# 8 heads of 16 and of 32.
_row("table3_b_dk16", " (B): keys of d_k = 16", attention_key_channels=128)
_row("table3_b_dk32", " (B): keys of d_k = 32", attention_key_channels=256)
_row("table3_c_n2", " (C): 2 + 2 layers", num_hidden_layers=2)
_row("table3_c_n4", " (C): 4 + 4 layers", num_hidden_layers=4)
_row("table3_c_n8", " (C): 8 + 8 layers", num_hidden_layers=8)
_row("table3_c_d256", " (C): d_model = 256, d_k = d_v = 32", hidden_size=256)
_row(
    "table3_c_d1024", " (C): d_model = 1024, d_k = d_v = 128", hidden_size=1024
)
_row("table3_c_dff1024", " (C): d_ff = 1024", filter_size=1024)
_row("table3_c_dff4096", " (C): d_ff = 4096", filter_size=4096)
_row("table3_d_dropout0", " (D): no dropout", layer_prepostprocess_dropout=0.0)
_row(
    "table3_d_dropout02", " (D): dropout 0.2", layer_prepostprocess_dropout=0.2
)
_row("table3_d_smoothing0", " (D): no label smoothing", label_smoothing=0.0)
_row("table3_d_smoothing02", " (D): label smoothing 0.2", label_smoothing=0.2)
_row(
    "table3_e_learned_positions",
    " (E): learned positions instead of sinusoids",
    pos="emb",
)
_row("table3_big", ", last row: the big model, without averaging", parent="big")
