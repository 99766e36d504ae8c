"""Interface of models to training, search, export and reports.

docs/models.md has the rules that hold for every model.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro import errors
from t2t_repro.layers import dense
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.randomness import Rng
from t2t_repro.runtime.keras_compat import Int, Tensor
from t2t_repro.text.vocabulary import PAD


class AuxiliaryLoss(NamedTuple):
    """Loss added to the cross-entropy: a sum and its denominator.

    The sum over all rows of a batch is divided once, by a count of the whole
    batch, so that the update is the same on any number of replicas. A model
    whose loss is no such sum says so in its `notes`.
    """

    name: str  # in TensorBoard: train/NAME
    total: Tensor  # [] float32, a sum over rows
    per: str  # one of data.batches.DENOMINATORS


class HiddenStates(NamedTuple):
    """Result of a forward pass, without the output layer."""

    states: Tensor  # [B, T, E]
    auxiliary_losses: tuple[AuxiliaryLoss, ...] = ()  # the same in every pass
    # Cross-attention weights [B, H, T, L] of each decoder layer, float32, for
    # losses of one's own; (): the model gives none.
    cross_attention: tuple[Tensor, ...] = ()


class AttentionWeights(NamedTuple):
    """Attention weights of every layer and head, float32.

    Rows sum to 1; rows of queries that are padding are undefined. Kinds that
    the model lacks are None.
    """

    cross: Tensor = None  # [layers, B, H, T, L], from targets to inputs
    encoder: Tensor = None  # [layers, B, H, L, L]
    decoder: Tensor = None  # [layers, B, H, T, T]


class DecodingState(NamedTuple):
    """State that a search carries from step to step."""

    constants: Any  # constant nest of tensors without a batch axis
    sentences: Any  # nest of tensors [B, …]
    hypotheses: Any  # nest of tensors [B, W, …]


class StepOutputs(NamedTuple):
    """Result of a step of decoding."""

    logits: Tensor  # [B, W, V] float32
    state: DecodingState
    # [B, W, L] float32, mean of cross-attention over layers and heads.
    attention: Tensor | None = None


class Seq2Seq(dense.Parent, keras.Model):
    """Base class of models that translate one sequence into another."""

    # Name of models that are created without one; None: that of the class.
    default_name: str | None = None
    # Whether a row may hold several sentences, distinguished by segments.
    packed_rows = False
    # Whether the model implements `recompute_grad`.
    recomputation = False
    # Sentences that `t2t show` prints: rules that do not hold for the model.
    notes: tuple[str, ...] = ()
    # Fields of AttentionWeights that attention_weights() fills. With "cross",
    # decode_step() returns attention, an export has the signature `attention`,
    # and a report has attention maps.
    attention_kinds: tuple[str, ...] = ()

    def __init__(
        self,
        hparams: Any,
        vocab_size: int,
        source_vocab_size: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Store the settings.

        Args:
            hparams: settings, of the dataclass that the model is registered
                with.
            vocab_size: V of the targets.
            source_vocab_size: V of the inputs; None: the same vocabulary.
            **kwargs: arguments of keras.Model. `name` is the first component of
                every path; None: the class's name.
        """
        name = kwargs.pop("name", self.default_name)
        super().__init__(name=name or type(self).__name__.lower(), **kwargs)
        self.hparams = hparams
        self.vocab_size = vocab_size
        self.source_vocab_size = source_vocab_size or vocab_size
        self.recompute_grad = False

    # Methods that every model implements.

    @property
    def output_layer(self) -> keras.layers.Layer:
        """Layer that computes logits.

        Like layers.embedding.Embedding it has `weight` [V, E], a variable or
        a tensor computed from variables, `bias` [V] or None, and logits(x).
        """
        raise self._missing("output_layer")

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> HiddenStates:
        """Run encoder and decoder on given targets.

        Args:
            batch: features of data/batches.py: inputs, targets and their
                segments and positions, [B, L] and [B, T] int32.
            rng: state of random numbers; None at inference.
        """
        raise self._missing("hidden_states")

    def start_decoding(
        self, inputs: Tensor, num_beams: Int, capacity: Int, constants: Any
    ) -> DecodingState:
        """Encode the inputs and return the state before the first step.

        Args:
            inputs: [B, L] int32, one sentence per row, 0 is padding.
            num_beams: W.
            capacity: number of steps before compact_state() is called, or of
                all steps.
            constants: result of decoding_constants().
        """
        raise self._missing("start_decoding")

    def decode_step(
        self, ids: Tensor, step: Tensor, state: DecodingState
    ) -> StepOutputs:
        """Compute the distribution of the next subword of every beam.

        Args:
            ids: [B, W] int32, the previous subwords; not read at step 0.
            step: [] int32, the position to predict, from 0.
            state: DecodingState, its hypotheses in the order of `ids`.
        """
        raise self._missing("decode_step")

    def flops(self, source_length: float, target_length: float) -> float:
        """Return multiplications and additions of one pair's forward pass.

        A matrix product of m x k and k x n costs 2 m k n. Lengths are in
        subwords with EOS.
        """
        raise self._missing("flops")

    # Optional features.

    def attention_weights(
        self, batch: Mapping[str, Tensor]
    ) -> AttentionWeights:
        """Return the attention weights of given targets."""
        raise self._missing("attention_weights")

    def decoding_constants(self) -> Any:
        """Return a nest of tensors that many searches share."""
        return ()

    def reorder_beams(
        self, state: DecodingState, parents: Tensor
    ) -> DecodingState:
        """Return the state with hypotheses taken from beams [B, W] int32."""
        hypotheses = keras.tree.map_structure(
            lambda leaf: gather_beams(leaf, parents), state.hypotheses
        )
        return state._replace(hypotheses=hypotheses)

    def compact_state(self, state: DecodingState) -> DecodingState:
        """Return a state with capacity for as many steps again.

        The sizes of its arrays may differ.
        """
        return state

    def max_output_lengths(self, input_lengths: Tensor) -> Tensor | None:
        """Return the maximum lengths [B] of outputs for those of inputs [B].

        EOS is included; None: the model has no bound of its own.
        """
        return None

    def ctranslate2_spec(self, specs: ModuleType, max_positions: int) -> Any:
        """Convert to a specification of `specs`, the module of CTranslate2.

        Inputs and outputs have at most `max_positions`.

        Raises:
            UserError: CTranslate2 does not support this model.
        """
        raise errors.UserError(
            f"CTranslate2 has no such model: {self.hparams.model!r}. Export a "
            "SavedModel instead."
        )

    # Methods that use the above.

    def build(self, batch_shape: Any) -> None:
        if not self.output_layer.built:  # hidden_states() may never call it
            self.output_layer.build()

    def call(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> Tensor:
        """Return logits [B, T, V] float32 of a batch's targets."""
        return self.output_layer.logits(self.hidden_states(batch, rng).states)

    def _missing(self, name: str) -> errors.UserError:
        return errors.UserError(
            f"The model {self.hparams.model!r} has no {name}: see the members "
            f"of models in {errors.page('models.md')}."
        )


def one_sentence_per_row(inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return a batch with one sentence per row: data.batches.ROW_FEATURES.

    `inputs` [B, L] and `targets` [B, T] are int32 ids with PAD after.
    """
    features = {}
    for side, ids in (("inputs", inputs), ("targets", targets)):
        shape = ops.shape(ids)
        features[side] = ids
        features[f"{side}_segment"] = ops.cast(ids != PAD, "int32")
        features[f"{side}_position"] = ops.broadcast_to(
            ops.arange(shape[1], dtype="int32"), shape
        )
    return features


def shift_right(x: Tensor) -> Tensor:
    """Return x [B, T, D] one position later: a zero vector comes first."""
    # Not [:, :-1], whose gradient TensorFlow computes slowly.
    padded = ops.pad(x, ((0, 0), (1, 0), (0, 0)))
    return ops.slice(padded, (0, 0, 0), ops.shape(x))


def gather_beams(x: Tensor, parents: Tensor) -> Tensor:
    """Return x [B, W, …] with beams in the order of parents [B, W]."""
    shape = ops.shape(x)
    rows = ops.arange(shape[0])[:, None] * shape[1] + parents
    return ops.take(ops.reshape(x, (-1, *shape[2:])), rows, axis=0)


class EmbeddingSeq2Seq(Seq2Seq):
    """Model with embeddings of both sides and a softmax, each an Embedding.

    hparams.shared_embedding_and_softmax_weights makes them one layer. If the
    model has these, shared_embedding makes the first two one layer, and
    shared_targets_embedding_and_softmax_weights the last two.
    """

    inputs_embedding: Embedding
    targets_embedding: Embedding
    softmax: Embedding

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        """Build the layers; see Seq2Seq.

        Raises:
            UserError: both sides should share one, and there are two
                vocabularies.
        """
        super().__init__(hparams, vocab_size, **kwargs)
        every = "shared_embedding_and_softmax_weights"
        is_tied = getattr(hparams, every)
        of_sides = every if is_tied else "shared_embedding"
        if getattr(hparams, of_sides, False):
            if self.source_vocab_size != vocab_size:
                raise errors.UserError(
                    "One embedding for both sides needs one vocabulary; inputs "
                    f"have {self.source_vocab_size:,} subwords and targets "
                    f"{vocab_size:,}. Say --hparams={of_sides}=false."
                )
            shared = self._new_embedding("embedding", vocab_size, is_tied)
            self.inputs_embedding = self.targets_embedding = shared
        else:
            shares = "shared_targets_embedding_and_softmax_weights"
            is_tied = getattr(hparams, shares, False)
            self.inputs_embedding = self._new_embedding(
                "inputs_embedding", self.source_vocab_size, False
            )
            self.targets_embedding = self._new_embedding(
                "targets_embedding", vocab_size, is_tied
            )
        self.softmax = (
            self.targets_embedding
            if is_tied
            else self._new_embedding("softmax", vocab_size, True)
        )

    def _new_embedding(
        self, name: str, vocab_size: int, gives_logits: bool
    ) -> Embedding:
        # Only the Transformer has the hparams of the bias and of the factor.
        bias = getattr(self.hparams, "softmax_bias", False)
        mode = getattr(self.hparams, "multiply_embedding_mode", "sqrt_depth")
        return self.new_layer(
            Embedding,
            vocab_size,
            self.hparams.hidden_size,
            use_bias=gives_logits and bias,
            multiply_mode=mode,
            name=name,
        )

    @property
    def output_layer(self) -> Embedding:
        return self.softmax

    def decoding_constants(self) -> Any:
        return self.softmax.step_kernel()

    def embed_previous(self, ids: Tensor, step: Tensor) -> Tensor:
        """Embed the previous subwords [B, W]: [B, W, D], zeros at step 0."""
        y = self.targets_embedding(ids)
        return y * ops.cast(step > 0, y.dtype)


# Training cost


class TrainingCost(NamedTuple):
    """Cost of a run so far; None is an unknown figure."""

    steps: int
    parameters: int
    counted_flops: float | None  # None: unknown lengths
    seconds: float | None  # time of the steps; None: not recorded
    sustained_flops_per_second: float | None  # None: not given

    @property
    def estimated_flops(self) -> float | None:
        """FLOPs as in Table 2: time x devices x sustained FLOP/s."""
        if self.seconds is None or self.sustained_flops_per_second is None:
            return None
        return self.seconds * self.sustained_flops_per_second

    @property
    def counted_flops_per_second(self) -> float | None:
        """Counted FLOPs in each second, of all devices together."""
        if not self.seconds or self.counted_flops is None:
            return None
        return self.counted_flops / self.seconds


def training_flops(
    model: Seq2Seq, tokens: float, source_length: float, target_length: float
) -> float:
    """Count the multiplications and additions of a run with so many tokens.

    The backward pass costs twice the forward pass. `tokens` are those of the
    targets, lengths are mean numbers of subwords with EOS, without padding.
    """
    pair = 3.0 * model.flops(source_length, target_length)
    return pair * tokens / target_length
