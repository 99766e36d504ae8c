"""Tests of blocks of tokens that go to the same expert."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from t2t_repro.layers import mixture_of_experts


@st.composite
def _choices(draw):
    """Draw a number of experts, and the expert of each assignment."""
    num_experts = draw(st.integers(1, 5))
    experts = st.integers(0, num_experts)  # the last is padding
    return num_experts, draw(st.lists(experts, min_size=1, max_size=40))


@hypothesis.given(_choices())
@hypothesis.example((3, [1] * 40))  # one expert gets all tokens
@hypothesis.example((2, [2] * 9))  # padding alone
@hypothesis.settings(max_examples=40)
def test_every_assignment_has_a_slot_in_a_block_of_its_expert(choices):
    num_experts, experts = choices
    experts = np.array(experts, np.int32)
    blocks = mixture_of_experts.group_by_expert(experts, num_experts)
    slots = np.asarray(blocks.slots)
    assert len(set(slots.tolist())) == len(experts)
    assignments = np.asarray(blocks.assignments)
    np.testing.assert_array_equal(
        assignments.ravel()[slots], np.arange(len(experts))
    )
    of_slots = np.asarray(blocks.experts)[slots // assignments.shape[1]]
    real = experts < num_experts
    np.testing.assert_array_equal(of_slots[real], experts[real])


def test_example_of_docstring():
    choices = np.array([[0, 2], [0, 1], [0, 2], [0, 1]], np.int32)
    blocks = mixture_of_experts.group_by_expert(choices.ravel(), 3)
    letters = np.array(list("abcdefgh"))[np.asarray(blocks.assignments)]
    assert [*map("".join, letters)][:4] == ["ac", "eg", "dh", "bf"]
    np.testing.assert_array_equal(blocks.experts[:4], [0, 0, 1, 2])


@pytest.mark.parametrize("num_experts", [1, 8, 32, 2048])
@pytest.mark.parametrize("num_assignments", [1, 8, 256, 8192, 100_000])
def test_rows_grow_with_assignments_not_with_experts(
    num_assignments, num_experts
):
    """At most half of the rows again, and a row or two of each expert."""
    count, size = mixture_of_experts.num_blocks_and_size(
        num_assignments, num_experts
    )
    assert count * size >= num_assignments
    assert count * size <= 1.5 * num_assignments + 2 * num_experts + size
    assert count * size <= num_assignments * size  # no more blocks than tokens
    assert count <= 3 * num_experts + 1
