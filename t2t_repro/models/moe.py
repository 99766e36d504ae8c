"""GNMT and the Transformer with mixtures of experts (arXiv 1701.06538).

The Transformer's mixtures are in place of feed-forward networks. Balancing
losses come first. A squared coefficient of variation is no sum over rows. It is
computed over what a device processes at once, as in the paper, and averaged
over these parts of a batch: over a single row it would forbid that a sentence's
tokens choose the same experts, and for the whole batch every device would need
the others' sums between its forward and its backward pass.

Here `hparams` are a RecurrentMoeHParams or TransformerMoeHParams of
hparams/moe.py.

Noisy top-k gating (section 2.1) chooses experts. A token's gates depend on this
token alone, so that a sentence's result is independent of its batch. (The
strictly balanced gates of appendix F are not.)

An expert gets any number of tokens, so that no token is dropped. Its tokens
fill whole blocks of static shape, and the last one in part:

    experts of 4 tokens  0 2 | 0 1 | 0 2 | 0 1       k = 2, E = 3
    blocks of 2          0: a c | 0: e g | 1: d h | 2: b f

Σ ceil(n_i / size) over the experts is at most A / size + E for A assignments,
a bound that does not depend on the choice. The operations are sorts, gathers
and scatters, which TensorFlow computes without XLA, too.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers import attention, dense, randomness
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.models import seq2seq
from t2t_repro.models.recurrent import Decoder, Encoder, Recurrent
from t2t_repro.models.transformer import Transformer, ffn_products
from t2t_repro.models.transformer_stack import DecoderLayer, EncoderLayer
from t2t_repro.runtime.keras_compat import Int, Tensor

# Smallest standard deviation of the noise: softplus underflows to 0, by which
# equation 9 divides. The paper states none; tensor2tensor adds this number.
MIN_NOISE = 1e-2

# Full blocks of an expert if all get the same: with 2, there are A / 2 empty
# rows. More blocks copy an expert's matrices more often. 2 was the fastest of
# 1, 2 and 4 for 8 experts, 128 wide, on a CPU.
_FULL_BLOCKS = 2


class BalanceLosses(NamedTuple):
    """Squared coefficients of variation over the experts, unweighted.

    Both are 0 if all experts get the same, and at most E - 1. They are not
    sums over tokens: those of a batch do not follow from those of its parts.
    """

    importance: Tensor  # [] float32, of the sums of gates: equation 7
    load: Tensor  # [] float32, of the expected numbers of tokens: equation 11


class Gates(NamedTuple):
    """The k chosen experts of each token."""

    values: Tensor  # […, k] float32, descending, sum 1; 0 for padding
    experts: Tensor  # […, k] int32; E, which is no expert, for padding
    losses: BalanceLosses


class NoisyTopKGating(keras.layers.Layer):
    """Choice of k of E experts for each token (section 2.1).

    Equations 3 to 5, for x of one token:

        G(x) = Softmax(KeepTopK(H(x), k))
        H(x) = x W_g + StandardNormal() * Softplus(x W_noise)

    Both matrices begin as zeros: no signal and some noise (appendix A). There
    is noise in training only.

    The layer computes in float32: its policy must be float32.
    """

    def __init__(
        self, num_experts: int, experts_per_token: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.num_experts = num_experts
        self.experts_per_token = experts_per_token

    def build(self, x_shape: tuple, *_: Any) -> None:
        shape = (x_shape[-1], self.num_experts)
        self.weight = self.add_weight(
            name="weight", shape=shape, initializer="zeros"
        )
        self.noise_weight = self.add_weight(
            name="noise_weight", shape=shape, initializer="zeros"
        )
        self._stream = randomness.stream_id(self.path)

    def call(
        self,
        x: Tensor,
        is_real: Tensor | None = None,
        rng: Rng | None = None,
    ) -> Gates:
        """Choose experts for x […, D], or [B, T, D] if there is an rng.

        `is_real` […] bool is False at padding; None: all are real.
        """
        k = self.experts_per_token
        clean = ops.matmul(x, self.weight)
        noise = ops.softplus(ops.matmul(x, self.noise_weight))
        noise = ops.maximum(noise, MIN_NOISE)
        logits = clean
        if rng is not None:
            normal = randomness.normal(rng, self._stream, ops.shape(clean))
            logits = clean + normal * noise
        # One more than k, for the load.
        top, experts = ops.top_k(logits, min(k + 1, self.num_experts))
        values = ops.softmax(top[..., :k])
        experts = ops.cast(experts[..., :k], "int32")
        load = self._load(clean, logits, noise, top)
        if is_real is not None:
            is_real = is_real[..., None]
            values = ops.where(is_real, values, 0.0)
            experts = ops.where(is_real, experts, self.num_experts)
            load = ops.where(is_real, load, 0.0)
        importance = ops.segment_sum(  # of each expert's gates: equation 6
            ops.reshape(values, (-1,)),
            ops.reshape(experts, (-1,)),
            self.num_experts + 1,
        )[:-1]
        losses = BalanceLosses(
            squared_variation(importance),
            squared_variation(
                ops.sum(ops.reshape(load, (-1, self.num_experts)), 0)
            ),
        )
        return Gates(values, experts, losses)

    def _load(
        self, clean: Tensor, logits: Tensor, noise: Tensor, top: Tensor
    ) -> Tensor:
        """Return P(x, i), equations 8 and 9: the smooth load of each token.

        That is the probability that expert i is chosen if its noise alone is
        drawn again: that it exceeds the k-th highest of the other logits.
        `clean` are logits without noise, `noise` is its standard deviation;
        these and the result are […, E]. `top` […, k + 1] are the highest
        logits, descending.
        """
        k = self.experts_per_token
        if k == self.num_experts:
            return ops.ones_like(clean)
        kth, next_one = top[..., k - 1 : k], top[..., k:]
        threshold = ops.where(logits > next_one, next_one, kth)
        normal = (clean - threshold) / noise
        return 0.5 * (1.0 + ops.erf(normal / math.sqrt(2.0)))


def squared_variation(x: Tensor) -> Tensor:
    """Return the squared coefficient of variation of x [E]; 0 for zeros.

    It is the variance, of the population, over the square of the mean.
    """
    squared_mean = ops.square(ops.mean(x))
    # Far below the least mean of one token: 1 / E.
    return ops.var(x) / ops.maximum(squared_mean, 1e-12)


class MixtureOfExperts(keras.layers.Layer):
    """Sum of the chosen experts of each token, weighted by its gates.

    Equation 1: y = Σ G(x)_i E_i(x), over the k experts with G(x)_i > 0. Each
    expert has one hidden layer: max(0, x W1 + b1) W2 + b2. Only chosen experts
    compute, and no token is dropped, however many choose the same expert.
    """

    def __init__(
        self,
        num_experts: int,
        experts_per_token: int,
        filter_size: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_experts = num_experts
        self.experts_per_token = experts_per_token
        self.filter_size = filter_size
        self.gating = NoisyTopKGating(
            num_experts, experts_per_token, name="gating", dtype="float32"
        )

    def build(self, x_shape: tuple, *_: Any) -> None:
        hidden, inner = x_shape[-1], self.filter_size
        # Glorot's, of each expert alone.
        limit = math.sqrt(6 / (hidden + inner))
        for name, shape in (
            ("filter_kernel", (hidden, inner)),
            ("filter_bias", (inner,)),
            ("output_kernel", (inner, hidden)),
            ("output_bias", (hidden,)),
        ):
            uniform = keras.initializers.RandomUniform(-limit, limit)
            weight = self.add_weight(
                name=name,
                shape=(self.num_experts, *shape),
                initializer="zeros" if name.endswith("bias") else uniform,
            )
            setattr(self, name, weight)

    def call(
        self, x: Tensor, is_real: Tensor | None = None, rng: Rng | None = None
    ) -> tuple[Tensor, BalanceLosses]:
        """Return y […, D] of x and losses; the arguments are the gating's.

        y is 0 at padding.
        """
        gates = self.gating(x, is_real, rng=rng)
        k = self.experts_per_token
        flat = ops.reshape(x, (-1, x.shape[-1]))  # [N, D]
        blocks = group_by_expert(
            ops.reshape(gates.experts, (-1,)), self.num_experts
        )
        tokens = ops.take(flat, blocks.assignments // k, axis=0)
        outputs = ops.reshape(
            self._run_experts(tokens, blocks.experts), (-1, x.shape[-1])
        )
        chosen = ops.reshape(
            ops.take(outputs, blocks.slots, axis=0), (-1, k, x.shape[-1])
        )
        values = ops.reshape(ops.cast(gates.values, x.dtype), (-1, k, 1))
        y = ops.sum(chosen * values, axis=1)
        return ops.reshape(y, ops.shape(x)), gates.losses

    def _run_experts(self, x: Tensor, experts: Tensor) -> Tensor:
        """Run one of experts [blocks] on each block of x [blocks, size, D]."""

        def linear(x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
            kernel, bias = (
                ops.take(w, experts, axis=0) for w in (kernel, bias)
            )
            return ops.matmul(x, kernel) + bias[:, None]

        hidden = ops.relu(linear(x, self.filter_kernel, self.filter_bias))
        return linear(hidden, self.output_kernel, self.output_bias)


class Blocks(NamedTuple):
    """Assignments of tokens to experts, in blocks of one expert each.

    An assignment is one of the A = N k choices of experts for N tokens; a slot
    is one of the rows of all blocks.
    """

    experts: Tensor  # [blocks] int32, the expert of each block
    assignments: Tensor  # [blocks, size] int32; 0 in empty slots
    slots: Tensor  # [A] int32, the slot of each assignment


def num_blocks_and_size(
    num_assignments: Int, num_experts: int
) -> tuple[Int, Int]:
    """Return how many blocks suffice for any A assignments, and their size."""
    size = num_assignments // (_FULL_BLOCKS * num_experts) + 1
    # Padding fills blocks as one more expert would.
    bound = num_assignments // size + num_experts + 1
    if isinstance(num_assignments, int):
        return min(num_assignments, bound), size
    return ops.minimum(num_assignments, bound), size


def group_by_expert(experts: Tensor, num_experts: int) -> Blocks:
    """Put assignments to `experts` [A] int32 into blocks; E is padding."""
    num_assignments = ops.shape(experts)[0]
    num_blocks, size = num_blocks_and_size(num_assignments, num_experts)
    order = ops.cast(ops.argsort(experts), "int32")
    counts = ops.segment_sum(ops.ones_like(experts), experts, num_experts + 1)
    last_blocks = ops.cumsum((counts + size - 1) // size)
    first_slots = (last_blocks - (counts + size - 1) // size) * size
    # The i-th assignment in the order of experts, minus those of experts before
    # its own, is its number among its expert's.
    offsets = first_slots - (ops.cumsum(counts) - counts)
    sorted_slots = ops.arange(num_assignments, dtype="int32") + ops.take(
        offsets, ops.take(experts, order)
    )
    block_experts = ops.searchsorted(
        last_blocks, ops.arange(num_blocks, dtype="int32"), side="right"
    )
    num_slots = num_blocks * size
    return Blocks(
        # Blocks of padding, and those after, compute what no token reads.
        ops.minimum(ops.cast(block_experts, "int32"), num_experts - 1),
        ops.reshape(
            ops.scatter(sorted_slots[:, None], order, (num_slots,)),
            (num_blocks, size),
        ),
        ops.scatter(order[:, None], sorted_slots, (num_assignments,)),
    )


BALANCE_NOTE = (
    "the balancing losses of experts are computed over the part of a batch "
    "that a device processes at once, so that updates depend on the number of "
    "these parts: replicas times accumulated parts."
)


class _BalancedModel:
    """Model that adds the balancing losses of its mixtures to the loss."""

    hparams: Any
    notes: tuple[str, ...] = (BALANCE_NOTE,)
    _run: Callable  # returns states, attention weights, and a list of losses

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> seq2seq.HiddenStates:
        """Run the model; a part of a batch counts by its target tokens."""
        x, *_, losses = self._run(batch, rng)
        tokens = ops.sum(ops.cast(batch["targets_segment"] > 0, "float32"))
        auxiliary = []
        kinds = BalanceLosses._fields
        for kind, *of_layers in zip(kinds, *losses, strict=True):
            weight = getattr(self.hparams, f"{kind}_loss_weight")
            total = tokens * weight * sum(of_layers)
            loss = seq2seq.AuxiliaryLoss(kind, total, "target_tokens")
            auxiliary.append(loss)
        return seq2seq.HiddenStates(x, tuple(auxiliary))


def _new_mixture(hparams: Any, parent: Any) -> MixtureOfExperts:
    return parent.new_layer(
        MixtureOfExperts,
        hparams.num_experts,
        hparams.experts_per_token,
        hparams.expert_filter_size,
        name="mixture_of_experts",
    )


class SigmoidMixture(dense.Composite):
    """x + Dropout(sigmoid(mixture(x))): the mixture between two LSTM layers."""

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mixture_of_experts = _new_mixture(hparams, self)
        self.dropout = self.new_layer(Dropout, hparams.dropout, name="dropout")

    def call(
        self, x: Tensor, is_real: Tensor | None = None, rng: Rng | None = None
    ) -> tuple[Tensor, BalanceLosses]:
        """Run the mixture and its residual; see MixtureOfExperts."""
        y, losses = self.mixture_of_experts(x, is_real, rng=rng)
        return x + self.dropout(ops.sigmoid(y), rng=rng), losses


class MoeEncoder(Encoder):
    """Encoder of GNMT with a mixture below its top layer.

    All layers have residuals whose input and output have the same width.
    """

    first_residual = 0

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.mixture = self.new_layer(SigmoidMixture, hparams, name="mixture")

    def call(
        self, x: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, BalanceLosses]:
        """Return the states of x as Encoder does, and losses."""
        top = len(self.layers) - 1
        for i in range(top):
            x = self.run_layer(i, x, mask, rng)
        x, losses = self.mixture(x, mask, rng=rng)
        return self.run_layer(top, x, mask, rng), losses


class MoeDecoder(Decoder):
    """Decoder of GNMT with a mixture above its bottom layer.

    All layers have residuals.
    """

    first_residual = 0

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.mixture = self.new_layer(SigmoidMixture, hparams, name="mixture")

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor,
        rng: Rng | None = None,
        targets_mask: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, BalanceLosses]]:
        """Decode as Decoder does, with targets_mask [B, T]; return losses."""
        h, contexts, weights = self.bottom(x, memory, mask, rng=rng)
        x, losses = self.mixture(x + h, targets_mask, rng=rng)

        def run(layer: Any, inputs: Tensor) -> Tensor:
            return layer(inputs, rng=rng)

        x = super().run_upper(x, x, contexts, run)
        return x, (weights, losses)

    def run_upper(
        self, x: Tensor, h: Tensor, contexts: Tensor, run: Callable
    ) -> Tensor:
        """Return the output of mixture and upper layers at one position."""
        return super().run_upper(x, self.mixture(x + h)[0], contexts, run)


class RecurrentMoe(_BalancedModel, Recurrent):
    """GNMT with a mixture of experts in the encoder and in the decoder."""

    default_name = "recurrent_moe"
    encoder_class = MoeEncoder
    decoder_class = MoeDecoder

    def _run(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> tuple[Tensor, Tensor, list[BalanceLosses]]:
        (memory, encoder_losses), mask = super().encode(batch["inputs"], rng)
        x = seq2seq.shift_right(self.targets_embedding(batch["targets"]))
        x, (weights, decoder_losses) = self.decoder(
            x, memory, mask, rng=rng, targets_mask=batch["targets_segment"] > 0
        )
        return x, weights, [encoder_losses, decoder_losses]

    def encode(
        self, inputs: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        (memory, _), mask = super().encode(inputs, rng)
        return memory, mask

    def flops(self, source_length: float, target_length: float) -> float:
        h = self.hparams
        # The mixture reads the layer below the top one.
        below_is_bidirectional = (
            h.num_bidirectional_layers == h.num_encoder_layers - 1
        )
        directions = 2 if below_is_bidirectional else 1
        # Products of a unit of width.
        unit = 2 * (h.num_experts + h.experts_per_token * h.expert_filter_size)
        widths = h.hidden_size * (directions * source_length + target_length)
        return super().flops(source_length, target_length) + 2.0 * unit * widths


class _MoeLayer:
    """The mixture of experts that ends a layer, and its losses."""

    ffn: Any

    def _new_ffn(self, hparams: Any, parts: Any) -> MixtureOfExperts:
        return _new_mixture(hparams, self)

    def _end(
        self, x: Tensor, self_mask: Tensor, weights: Any, rng: Rng | None
    ) -> tuple[Tensor, tuple[Any, BalanceLosses]]:
        x, losses = self.ffn(x, (attention.has_key(self_mask),), rng=rng)
        return x, (weights, losses)


class MoeEncoderLayer(_MoeLayer, EncoderLayer):
    """Self-attention and mixture of experts."""


class MoeDecoderLayer(_MoeLayer, DecoderLayer):
    """Self-attention, cross-attention and mixture of experts."""


class TransformerMoe(_BalancedModel, Transformer):
    """Transformer in which every n-th feed-forward network is a mixture."""

    default_name = "transformer_moe"
    recomputation = False  # it would have to return the balancing losses

    def _layer_class(self, plain: type, layer: int) -> type:
        if not self.hparams.is_mixture(layer):
            return plain
        return MoeEncoderLayer if plain is EncoderLayer else MoeDecoderLayer

    def _run(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> tuple[Tensor, list, list, list[BalanceLosses]]:
        x, encoder, decoder = super()._run(batch, rng)
        losses = []
        for outputs in (encoder, decoder):
            for i, output in enumerate(outputs):
                if self.hparams.is_mixture(i):
                    outputs[i], layer_losses = output
                    losses.append(layer_losses)
        return x, encoder, decoder, losses

    def flops(self, source_length: float, target_length: float) -> float:
        h = self.hparams
        # Gates and noise; k experts. Empty rows of blocks do not count.
        unit = 2 * (h.num_experts + h.experts_per_token * h.expert_filter_size)
        more = [h.hidden_size * unit - ffn for ffn in ffn_products(h)]
        encoder, decoder = (
            sum(map(h.is_mixture, range(layers)))
            for layers in (h.encoder_layers, h.decoder_layers)
        )
        products = source_length * encoder * more[0]
        products += target_length * decoder * more[1]
        return super().flops(source_length, target_length) + 2.0 * products
