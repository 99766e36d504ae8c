"""The contract of a model with all that trains, searches, exports and reports.

What a model owes:

    hidden_states(batch, rng)            states for the loss, [B, T, E]
    output_layer                         weight [V, E], bias [V] or None
    start_decoding(inputs, …)            the state before the first step
    decode_step(ids, step, state)        logits of the next subword
    flops(source_length, target_length)  of one pair, forward

What it may offer, and says so by class attributes: packed rows
(`packed_rows`), recomputation (`recomputation`), attention weights
(`attention_kinds`), CTranslate2's format (`ctranslate2_spec`), auxiliary
losses, and a bound on the length of outputs.

Rules that hold for every model:

- A sentence's result never depends on the other sentences of its batch, nor
  on padding.
- Random numbers come from layers/counter_rng.py alone, as a function of the
  row. build() refuses Keras's own seed generators.
- Each layer with weights or dropout has a name of its own: paths name weights
  in checkpoints and places of dropout. build() refuses paths that are used
  twice or numbered by Keras.
"""

from typing import NamedTuple

import keras
from keras import ops

from t2t_repro import errors
from t2t_repro.types import Tensor

# What an auxiliary loss may be divided by: counts of the whole batch.
DENOMINATORS = ("target_tokens", "source_tokens", "sentences")


class AuxiliaryLoss(NamedTuple):
    """A loss beside the cross-entropy: a sum, and what divides it.

    The sum over all rows of a batch is divided once, by the count of the whole
    batch, so that the update is the same on any number of replicas.
    """

    name: str  # in TensorBoard: train/NAME
    total: object  # [] float32, a sum over rows
    per: str  # one of DENOMINATORS


class HiddenStates(NamedTuple):
    """Result of a forward pass, without the output layer."""

    states: object  # [B, T, E]
    auxiliary_losses: tuple = ()  # of AuxiliaryLoss, the same in every pass


class AttentionWeights(NamedTuple):
    """Attention weights of every layer and head, float32.

    Rows sum to 1; rows of queries that are padding mean nothing. A kind that
    the model does not have is None.
    """

    cross: Tensor = None  # [layers, B, H, T, L], from targets to inputs
    encoder: Tensor = None  # [layers, B, H, L, L]
    decoder: Tensor = None  # [layers, B, H, T, T]


class DecodingState(NamedTuple):
    """State of a search, which carries it from step to step."""

    constants: object  # nest of tensors without a batch axis: never changes
    sentences: object  # nest of tensors [B, …]
    hypotheses: object  # nest of tensors [B, W, …]


class StepOutputs(NamedTuple):
    """Result of a step of decoding."""

    logits: object  # [B, W, V] float32
    state: DecodingState
    # [B, W, L] float32, cross-attention, the mean of all heads; or None.
    attention: object = None


class Seq2Seq(keras.Model):
    """Base class of models that translate one sequence into another."""

    # Whether a row may hold several sentences, told apart by segments.
    packed_rows = False
    # Whether build(recompute_grad=True) makes a difference: `recompute_grad`.
    recomputation = False
    # Fields of AttentionWeights that attention_weights() fills. With "cross",
    # decode_step() returns attention, an export has the signature `attention`,
    # and a report has pictures.
    attention_kinds = ()

    def __init__(
        self, hparams, vocab_size, source_vocab_size=None, name=None, **kwargs
    ):
        """Keep the settings.

        Args:
            hparams: of the dataclass that the model is registered with.
            vocab_size: V of the targets.
            source_vocab_size: V of the inputs; None: the same vocabulary.
            name: first part of every path; by default the class's name.
        """
        super().__init__(name=name or type(self).__name__.lower(), **kwargs)
        self.hparams = hparams
        self.vocab_size = vocab_size
        self.source_vocab_size = source_vocab_size or vocab_size
        self.recompute_grad = False

    # What every model owes.

    @property
    def output_layer(self):
        """Return the layer that makes logits, as layers.embedding.Embedding.

        It has `weight` [V, E], `bias` [V] or None, and logits(x).
        """
        raise self._lacks("output_layer")

    def hidden_states(self, batch, rng=None) -> HiddenStates:
        """Run encoder and decoder on given targets.

        Args:
            batch: features of data/batches.py: inputs, targets and their
                segments and positions, [B, L] and [B, T] int32.
            rng: layers.counter_rng.Rng; None: inference, nothing is drawn.
        """
        raise self._lacks("hidden_states")

    def start_decoding(
        self, inputs, num_beams, capacity, constants=None
    ) -> DecodingState:
        """Encode the inputs and make the state before the first step.

        Args:
            inputs: [B, L] int32, a sentence a row, 0 is padding.
            num_beams: W.
            capacity: number of steps before compact_state() is called, or
                of all steps.
            constants: of decoding_constants(); None: made here.
        """
        raise self._lacks("start_decoding")

    def decode_step(self, ids, step, state) -> StepOutputs:
        """Compute the distribution of the next subword of every beam.

        Args:
            ids: [B, W] int32, the subword before; not read at step 0.
            step: [] int32, the position to predict, from 0.
            state: DecodingState, its hypotheses in the order of `ids`.
        """
        raise self._lacks("decode_step")

    def flops(self, source_length: float, target_length: float) -> float:
        """Count multiplications and additions of one pair, forward.

        A matrix product of m x k and k x n costs 2 m k n. Lengths are in
        subwords with EOS.
        """
        raise self._lacks("flops")

    # What a model may offer.

    def attention_weights(self, batch) -> AttentionWeights:
        """Return the attention weights of given targets."""
        raise self._lacks("attention_weights")

    def decoding_constants(self):
        """Return what is made once for many searches: a nest of tensors."""
        return ()

    def reorder_beams(self, state, parents) -> DecodingState:
        """Return the state with hypotheses taken from other beams.

        Args:
            state: DecodingState.
            parents: [B, W] int32, the beam that each hypothesis was in before.
        """
        taken = keras.tree.map_structure(
            lambda leaf: gather_beams(leaf, parents), state.hypotheses
        )
        return state._replace(hypotheses=taken)

    def compact_state(self, state) -> DecodingState:
        """Make room for as many steps again; may change sizes of the state."""
        return state

    def max_output_lengths(self, input_lengths):
        """Return the most subwords of outputs, [B] int32, EOS included.

        Args:
            input_lengths: [B] int32, EOS included.

        Returns:
            None: the model has no bound of its own.
        """
        return None

    def ctranslate2_spec(self, specs, positions):
        """Convert to a specification of CTranslate2.

        Args:
            specs: the module ctranslate2.specs.
            positions: the most that an input or an output may have.

        Raises:
            UserError: CTranslate2 has no such model.
        """
        raise errors.UserError(
            f"CTranslate2 has no such model: {self.hparams.model!r}. Export a "
            "SavedModel instead."
        )

    # What follows from the above.

    def build(self, batch_shape):
        if not self.output_layer.built:  # hidden_states() may never call it
            self.output_layer.build()

    def call(self, batch, rng=None):
        """Return logits [B, T, V] float32 of a batch's targets."""
        return self.output_layer.logits(self.hidden_states(batch, rng).states)

    def _lacks(self, name):
        return errors.UserError(
            f"The model {self.hparams.model!r} has no {name}: "
            "models/seq2seq.py says what a model owes and may offer."
        )


def gather_beams(x, parents):
    """Return x [B, W, …] with beams in the order of parents [B, W]."""
    shape = ops.shape(x)
    rows = ops.arange(shape[0])[:, None] * shape[1] + parents
    return ops.take(ops.reshape(x, (-1, *shape[2:])), rows, axis=0)
