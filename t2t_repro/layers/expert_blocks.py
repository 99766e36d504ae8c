"""Blocks of tokens that go to the same expert, in arrays of static shape.

An expert gets any number of tokens, so that no token is dropped. Its tokens
fill whole blocks, and the last one in part:

    experts of 4 tokens  0 2 | 0 1 | 0 2 | 0 1       k = 2, E = 3
    blocks of 2          0: a c | 0: e g | 1: d h | 2: b f

Σ ceil(n_i / size) over the experts is at most A / size + E for A assignments,
a bound that does not depend on the choice. The operations are sorts, gathers
and scatters, which TensorFlow computes without XLA, too.
"""

from typing import NamedTuple

from keras import ops

from t2t_repro.runtime.types import Tensor

# Full blocks of an expert if all get the same: with 2, there are A / 2 empty
# rows. More blocks copy an expert's matrices more often. 2 was the fastest of
# 1, 2 and 4 for 8 experts, 128 wide, on a CPU.
_FULL_BLOCKS = 2


class Blocks(NamedTuple):
    """Assignments of tokens to experts, in blocks of one expert each.

    An assignment is one of the A = N k choices of experts for N tokens; a slot
    is one of the rows of all blocks.
    """

    experts: Tensor  # [blocks] int32, the expert of each block
    assignments: Tensor  # [blocks, size] int32; 0 in empty slots
    slots: Tensor  # [A] int32, the slot of each assignment


def num_blocks_and_size(
    num_assignments: Tensor | int, num_experts: int
) -> tuple[Tensor | int, Tensor | int]:
    """Return how many blocks suffice for any assignment, and their size.

    Args:
        num_assignments: A, possibly a tensor.
        num_experts: E.
    """
    size = num_assignments // (_FULL_BLOCKS * num_experts) + 1
    # Padding fills blocks as one more expert would.
    bound = num_assignments // size + num_experts + 1
    if isinstance(num_assignments, int):
        return min(num_assignments, bound), size
    return ops.minimum(num_assignments, bound), size


def group(experts: Tensor, num_experts: int) -> Blocks:
    """Put assignments into blocks.

    Args:
        experts: [A] int32, the expert of each assignment; E is padding.
        num_experts: E.
    """
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
