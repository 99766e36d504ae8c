"""Models of columns: ByteNet, and the Extended Neural GPU.

ByteNet is Kalchbrenner et al. 2016 (arXiv 1610.10099), the Neural GPU Kaiser
and Bengio 2016 (arXiv 1610.08613). Section 3.2 of the first: a source of |s|
subwords is encoded to a * |s| + b columns, an estimate of the target's length.
Position t of the target reads column t. `hparams` have a as `target_ratio` and
b as `target_offset`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import dense, sublayers
from t2t_repro.layers.convolution import ConvolutionalGru, DilatedConvolution
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.models import seq2seq
from t2t_repro.runtime.keras_compat import Int, Tensor


class ByteNet(seq2seq.EmbeddingSeq2Seq):
    """ByteNet: dilated convolutions, the decoder stacked on the encoder.

    There is no attention: position t of the target reads column t of the
    encoder. Sections in comments are those of version 2 of the paper.
    """

    default_name = "bytenet"

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, **kwargs)
        self.encoder, self.decoder = (
            self.new_layer(DilatedStack, hparams, causal, name=name)
            for name, causal in (("encoder", False), ("decoder", True))
        )

    def encode(self, inputs: Tensor, rng: Rng | None = None) -> Tensor:
        """Encode inputs [B, L] to the columns that the decoder reads.

        A sentence has a * |s| + b columns (section 3.2). Those after its end
        have the embedding of PAD as their input, as in section 6, which pads
        with special characters. Later ones are zero, and no convolution sees
        them, so that a sentence is independent of the padding of its batch.

        Returns:
            [B, a * L + b, D].
        """
        visible = visible_columns(inputs, self.hparams)
        padded = pad_columns(inputs, ops.shape(visible)[1])
        x = self.inputs_embedding(padded)
        visible = ops.cast(visible, x.dtype)[..., None]
        return self.encoder(x, visible=visible, rng=rng) * visible

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> seq2seq.HiddenStates:
        columns = self.encode(batch["inputs"], rng)
        # Section 3.2: targets may be longer than the estimate. As in version 1
        # of the paper, they read zeros in place of the missing columns.
        columns = pad_columns(columns, ops.shape(batch["targets"])[1])
        y = seq2seq.shift_right(self.targets_embedding(batch["targets"]))
        return seq2seq.HiddenStates(self.decoder(y + columns, rng=rng))

    def start_decoding(
        self, inputs: Tensor, num_beams: Int, capacity: Int, constants: Any
    ) -> seq2seq.DecodingState:
        columns = self.encode(inputs)
        rings = self.decoder.empty_rings(ops.shape(inputs)[0], num_beams)
        return seq2seq.DecodingState(constants, columns, rings)

    def decode_step(
        self, ids: Tensor, step: Tensor, state: seq2seq.DecodingState
    ) -> seq2seq.StepOutputs:
        x = self.embed_previous(ids, step)
        x = x + take_column(state.sentences, step)[:, None]
        x, rings = self.decoder.step(x, state.hypotheses, step)
        logits = self.softmax.logits(x, state.constants)
        return seq2seq.StepOutputs(logits, state._replace(hypotheses=rings))

    def flops(self, source_length: float, target_length: float) -> float:
        hparams = self.hparams
        d, k = hparams.hidden_size // 2, hparams.kernel_width
        # Convolutions of a block: 2d -> d, k d -> d, d -> 2d.
        stack = len(hparams.dilations) * (2 + k + 2) * d * d
        columns = mean_columns(source_length, hparams)
        softmax = target_length * hparams.hidden_size * self.vocab_size
        return 2.0 * ((columns + target_length) * stack + softmax)


class DilatedBlock(dense.Composite):
    """ByteNet's residual block with ReLUs, x [B, T, 2d] -> [B, T, 2d].

    Layer normalization and ReLU precede each of three convolutions: of width 1
    to d channels, a dilated one, and of width 1 to 2d channels.
    """

    def __init__(
        self, hparams: Any, dilation: int, causal: bool, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        size = hparams.hidden_size // 2
        self.input_norm, self.inner_norm, self.output_norm = (
            self.new_layer(
                sublayers.LayerNorm, epsilon=sublayers.EPSILON, name=name
            )
            for name in ("input_norm", "inner_norm", "output_norm")
        )
        self.input_projection = self.new_layer(
            dense.Dense, size, name="input_projection"
        )
        self.convolution = self.new_layer(
            DilatedConvolution,
            size,
            hparams.kernel_width,
            dilation,
            causal,
            name="convolution",
        )
        self.output_projection = self.new_layer(
            dense.Dense, hparams.hidden_size, name="output_projection"
        )
        self.dropout = self.new_layer(
            Dropout, hparams.layer_prepostprocess_dropout, name="dropout"
        )

    def call(
        self, x: Tensor, visible: Tensor | None = None, rng: Rng | None = None
    ) -> Tensor:
        """Run the block on x [B, T, 2d].

        `visible` [B, T, 1] is 0 where the convolution must not see x.
        """
        hidden = self._reduce(x)
        if visible is not None:
            hidden = hidden * visible
        return x + self.dropout(self._expand(self.convolution(hidden)), rng=rng)

    def step(
        self, x: Tensor, past: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run the block on one position; see DilatedConvolution.step."""
        hidden, past = self.convolution.step(self._reduce(x), past, step)
        return x + self._expand(hidden), past

    def _reduce(self, x: Tensor) -> Tensor:
        """Return the input […, d] of the dilated convolution."""
        hidden = self.input_projection(ops.relu(self.input_norm(x)))
        return ops.relu(self.inner_norm(hidden))

    def _expand(self, hidden: Tensor) -> Tensor:
        """Return the block's output […, 2d] of the dilated convolution's."""
        return self.output_projection(ops.relu(self.output_norm(hidden)))


class DilatedStack(dense.Composite):
    """Stack of dropout on the input, blocks, and layer normalization.

    The last norm is of the output, which no later block normalizes.
    """

    def __init__(self, hparams: Any, causal: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dropout = self.new_layer(
            Dropout, hparams.layer_prepostprocess_dropout, name="dropout"
        )
        self.blocks = [
            self.new_layer(
                DilatedBlock, hparams, dilation, causal, name=f"block_{i}"
            )
            for i, dilation in enumerate(hparams.dilations)
        ]
        self.norm = self.new_layer(
            sublayers.LayerNorm, epsilon=sublayers.EPSILON, name="norm"
        )

    def call(
        self, x: Tensor, visible: Tensor | None = None, rng: Rng | None = None
    ) -> Tensor:
        """Run the blocks on x [B, T, 2d]; the arguments are DilatedBlock's."""
        x = self.dropout(x, rng=rng)
        for block in self.blocks:
            x = block(x, visible=visible, rng=rng)
        return self.norm(x)

    def empty_rings(self, batch: Int, beams: int) -> list[Tensor]:
        """Return the ring [B, W, reach, d] of each block before step 0."""
        convolutions = [block.convolution for block in self.blocks]
        return [
            ops.zeros((batch, beams, c.reach, c.filters), self.compute_dtype)
            for c in convolutions
        ]

    def step(
        self, x: Tensor, rings: Sequence[Tensor], step: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Return states [B, W, 2d] of x [B, W, 2d], and the rings with it."""
        written = []
        for block, ring in zip(self.blocks, rings, strict=True):
            x, ring = block.step(x, ring, step)
            written.append(ring)
        return self.norm(x), written


class NeuralGpu(seq2seq.EmbeddingSeq2Seq):
    """Extended Neural GPU: convolutions over an image, step by step.

    Its active memory is an image of n columns and w rows. The encoder writes
    the inputs to row 0, and changes the whole image in n steps. A step of the
    decoder changes the whole image, too: it reads the tape of previous outputs,
    and output t is predicted from column t. A step thus costs as much as n
    columns, by design.
    """

    default_name = "neural_gpu"

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, **kwargs)
        self.inputs_dropout, self.targets_dropout, self.states_dropout = (
            self.new_layer(
                Dropout,
                hparams.layer_prepostprocess_dropout,
                name=f"{place}_dropout",
            )
            for place in ("inputs", "targets", "states")
        )
        self.encoder, self.decoder = (
            [
                self.new_layer(
                    ConvolutionalGru,
                    hparams.hidden_size,
                    hparams.kernel_length,
                    hparams.kernel_width,
                    reads_tape,
                    name=f"{stack}_{i}",
                )
                for i in range(hparams.num_hidden_layers)
            ]
            for stack, reads_tape in (("encoder", False), ("decoder", True))
        )

    def build(self, batch_shape: Any) -> None:
        """Build the units here: a loop must not create weights."""
        super().build(batch_shape)
        for unit in (*self.encoder, *self.decoder):
            unit.build()

    def max_output_lengths(self, input_lengths: Tensor) -> Tensor:
        return column_counts(input_lengths, self.hparams)

    def _visible_columns(self, inputs: Tensor) -> Tensor:
        """Return a mask [B, n, 1, 1] of the columns of each sentence."""
        visible = visible_columns(inputs, self.hparams)
        return ops.cast(visible, self.compute_dtype)[..., None, None]

    def encode(self, inputs: Tensor, rng: Rng | None = None) -> Tensor:
        """Encode inputs [B, L] to an image [B, n, w, m].

        A sentence has its own number of columns, and of steps. Later columns
        are zero in every step, so that no convolution sees padding.
        """
        visible = self._visible_columns(inputs)
        x = self.inputs_dropout(self.inputs_embedding(inputs), rng=rng)
        x = x * ops.cast(inputs > 0, x.dtype)[..., None]
        x = pad_columns(x, ops.shape(visible)[1])[:, :, None]
        rows = self.hparams.image_width
        image = ops.pad(x, ((0, 0), (0, 0), (0, rows - 1), (0, 0)))

        def advance(step, image):
            new = image
            for unit in self.encoder:
                new = unit(new, visible)
            if not self.hparams.encoder_steps:
                # Column t is visible in the sentences that have a step t.
                active = take_column(visible, step)[:, None]
                new = ops.where(active > 0, new, image)
            return new

        steps = self.hparams.encoder_steps or ops.shape(visible)[1]
        return repeat(advance, steps, image)

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> seq2seq.HiddenStates:
        image = self.encode(batch["inputs"], rng)
        visible = self._visible_columns(batch["inputs"])
        y = self.targets_embedding(batch["targets"])
        y = seq2seq.shift_right(self.targets_dropout(y, rng=rng))
        length = ops.shape(y)[1]
        positions = ops.arange(length)[:, None]

        def advance(step, carried):
            states, image, tapes = carried
            state, image, tapes = self._decode(
                ops.take(y, step, axis=1), step, visible, image, tapes
            )
            # One copy of [B, T, m] is little beside the convolutions.
            states = ops.where(positions == step, state[:, None], states)
            return states, image, tapes

        carried = (ops.zeros_like(y), image, self._empty_tapes(image))
        states = repeat(advance, length, carried)[0]
        return seq2seq.HiddenStates(self.states_dropout(states, rng=rng))

    def _empty_tapes(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return W * p of each unit before the first output."""
        shape = ops.shape(image)[:-2]  # the rows of a tape are its own
        return tuple(unit.empty_tape(*shape) for unit in self.decoder)

    def _decode(
        self,
        x: Tensor,
        step: Tensor,
        visible: Tensor,
        image: Tensor,
        tapes: tuple[Tensor, ...],
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Run a step of the decoder on x [B, m], the embedded previous output.

        It is zero at step 0. See ConvolutionalGru for image and tapes.

        Returns:
            state [B, m] of column `step`, zero beyond the image; image; tapes.
        """
        written = []
        for unit, tape in zip(self.decoder, tapes, strict=True):
            tape = unit.write_tape(tape, x, step - 1)
            image = unit(image, visible, tape)
            written.append(tape)
        state = take_column(image, step)[:, 0]
        return state, image, tuple(written)

    def start_decoding(
        self, inputs: Tensor, num_beams: Int, capacity: Int, constants: Any
    ) -> seq2seq.DecodingState:
        image = ops.repeat(self.encode(inputs)[:, None], num_beams, axis=1)
        return seq2seq.DecodingState(
            constants,
            self._visible_columns(inputs),
            (image, self._empty_tapes(image)),
        )

    def decode_step(
        self, ids: Tensor, step: Tensor, state: seq2seq.DecodingState
    ) -> seq2seq.StepOutputs:
        beams = ops.shape(ids)[1]
        visible = ops.repeat(state.sentences, beams, axis=0)
        image, tapes = state.hypotheses
        x, new_image, new_tapes = self._decode(
            _merge_beams(self.embed_previous(ids, step)),
            step,
            visible,
            _merge_beams(image),
            tuple(map(_merge_beams, tapes)),
        )
        logits = self.softmax.logits(x, state.constants)
        hypotheses = (
            ops.reshape(new_image, ops.shape(image)),
            tuple(
                ops.reshape(new, ops.shape(old))
                for new, old in zip(new_tapes, tapes, strict=True)
            ),
        )
        return seq2seq.StepOutputs(
            ops.reshape(logits, (-1, beams, self.vocab_size)),
            state._replace(hypotheses=hypotheses),
        )

    def flops(self, source_length: float, target_length: float) -> float:
        hparams = self.hparams
        maps, taps = hparams.hidden_size, hparams.kernel_length
        columns = mean_columns(source_length, hparams)
        steps = (hparams.encoder_steps or columns) + target_length
        # Gates and candidate: 3 m filters that see taps, rows and m maps.
        cell = taps * hparams.kernel_width * maps * 3 * maps
        image = columns * hparams.image_width * cell
        tape = taps * (hparams.kernel_width // 2 + 1) * maps * 3 * maps
        return 2.0 * (
            hparams.num_hidden_layers * (steps * image + target_length * tape)
            + target_length * maps * self.vocab_size
        )


def _merge_beams(x: Tensor) -> Tensor:
    """Reshape [B, W, …] to [B * W, …]."""
    return ops.reshape(x, (-1, *ops.shape(x)[2:]))


def repeat(
    body: Callable[[Tensor, Any], Any], count: Tensor, state: Any
) -> Any:
    """Return the state after `count` calls of body(index, state).

    The index is [] int32, from 0; the shapes of the state stay the same.
    JAX has gradients only of loops whose number of steps is static. XLA on
    TensorFlow has them only where `maximum_iterations` bounds the number.
    """
    if keras.backend.backend() == "jax":
        return ops.fori_loop(0, count, body, state)
    return ops.while_loop(
        lambda index, state: index < count,
        lambda index, state: (index + 1, body(index, state)),
        (ops.convert_to_tensor(0, "int32"), state),
        maximum_iterations=count,
    )[1]


def column_counts(lengths: Tensor, hparams: Any) -> Tensor:
    """Return the columns of sources of `lengths` subwords, a |s| + b.

    They are rounded up, in integers, so that a length has the same number of
    columns in Python and in any dtype. The ratio counts in thousandths. There
    are at least |s|, in which the source is.
    """
    thousandths = lengths * round(1000 * hparams.target_ratio)
    counts = (thousandths + 999) // 1000 + hparams.target_offset
    larger = max if isinstance(counts, int) else ops.maximum
    return larger(counts, lengths)


def mean_columns(length: float, hparams: Any) -> float:
    """Return column_counts() of a mean length, without rounding."""
    columns = hparams.target_ratio * length + hparams.target_offset
    return max(columns, length)


def visible_columns(inputs: Tensor, hparams: Any) -> Tensor:
    """Return a mask [B, columns] of the columns of each of inputs [B, L]."""
    lengths = ops.sum(ops.cast(inputs > 0, "int32"), axis=1)
    columns = ops.arange(column_counts(ops.shape(inputs)[1], hparams))
    return columns < column_counts(lengths, hparams)[:, None]


def pad_columns(x: Tensor, length: Tensor) -> Tensor:
    """Return the columns of x [B, L, …] up to `length`, zeros after L."""
    missing = length - ops.shape(x)[1]
    larger = max if isinstance(missing, int) else ops.maximum
    pads = [(0, 0)] * (len(x.shape) - 2)
    return ops.pad(x, [(0, 0), (0, larger(missing, 0)), *pads])[:, :length]


def take_column(columns: Tensor, step: Tensor) -> Tensor:
    """Return column `step` of columns [B, L, …], zeros from L on."""
    last = ops.shape(columns)[1] - 1
    column = ops.take(columns, ops.minimum(step, last), axis=1)
    return column * ops.cast(step <= last, column.dtype)
