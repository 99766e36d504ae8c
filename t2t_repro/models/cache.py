"""The cache of attention in decoding: keys and values, and who sees them."""

from typing import NamedTuple

from keras import ops

from t2t_repro.layers.attention import KeyValues


class Cache(NamedTuple):
    """Keys and values of all beams of a sentence, [B, …] each.

    A key and its value lie in a slot, and stay there: when a hypothesis
    continues in another beam, its visible slots [B, W, slots] alone are
    reordered. W beams query the slots of all W under a mask.
    Slots are of the past, which is only read, and after them of recent
    positions, W for each.
    """

    keys: tuple  # recent: a decoder layer each, [B, H, recent slots, K]
    values: tuple  # the same
    past_keys: tuple  # a decoder layer each, [B, H, past slots, K]
    past_values: tuple  # the same
    positions: object  # [B, slots] int32, from 0
    memory_keys: tuple  # of the source: a decoder layer each, [B, H, L, K]
    memory_values: tuple  # the same
    memory_mask: object  # [B, 1, 1, L] bool

    @classmethod
    def empty(cls, memory, memory_mask, num_beams, capacity, dtype):
        """Make a cache of no positions, and the slots that are visible.

        Args:
            memory: keys and values of the source, a pair for each layer.
            memory_mask: as of the field.
            num_beams: W.
            capacity: recent positions; compact() makes room for as many again.
            dtype: of keys and values.

        Returns:
            Cache, visible [B, W, slots] bool.
        """
        batch = ops.shape(memory_mask)[0]
        arrays = {"recent": [], "past": []}
        for array in memory[0]:  # keys and values may differ in size
            _, heads, _, size = ops.shape(array)
            for name, slots in (("recent", capacity * num_beams), ("past", 0)):
                zeros = ops.zeros((batch, heads, slots, size), dtype)
                arrays[name].append((zeros,) * len(memory))
        cache = cls(
            *arrays["recent"],
            *arrays["past"],
            _recent(ops.zeros((batch, 1), "int32"), capacity, num_beams),
            *zip(*memory, strict=True),
            memory_mask,
        )
        return cache, ops.zeros(
            (batch, num_beams, capacity * num_beams), "bool"
        )

    def with_current(self, visible, step):
        """Return visible slots [B, W, slots] with each hypothesis's own.

        Args:
            visible: [B, W, slots] bool, of the positions before.
            step: [] int32, the position that is now added.
        """
        beams, slots = visible.shape[1], ops.shape(visible)[2]
        past = ops.shape(self.past_keys[0])[2]
        own = past + step % self._capacity(beams) * beams + ops.arange(beams)
        itself = ops.arange(slots) == own[:, None]
        return ops.logical_or(visible, itself)

    def visible_mask(self, visible, step, reach):
        """Return the mask of queries at `step`, and distances to the slots.

        Args:
            visible: [B, W, slots] bool.
            step: [] int32.
            reach: slots of distance -reach and further are masked; 0: none.

        Returns:
            mask [B, 1, W, slots] bool, distances [B, slots] int32.
        """
        distances = self.positions - step
        mask = visible[:, None]
        if reach:
            mask = ops.logical_and(mask, (distances > -reach)[:, None, None])
        return mask, distances

    def write_rows(self, step, beams):
        """Return where recent keys and values of `step` are written.

        Returns:
            [B * H, 1] int32: of an array of [B * H * recent positions, W * K].
        """
        batch, heads = ops.shape(self.keys[0])[:2]
        capacity = self._capacity(beams)
        return (ops.arange(batch * heads) * capacity + step % capacity)[:, None]

    def key_values(self, layer, distances):
        """Return what a layer attends to: past, recent, memory KeyValues."""
        keys, past_keys = self.keys[layer], self.past_keys[layer]
        past = ops.shape(past_keys)[2]
        return (
            KeyValues(past_keys, self.past_values[layer], distances[:, :past]),
            KeyValues(keys, self.values[layer], distances[:, past:]),
            KeyValues(self.memory_keys[layer], self.memory_values[layer]),
        )

    def compact(self, visible):
        """Move recent positions to the past, and make room for as many again.

        A step copies the recent slots, to write to them, and only reads the
        past. Of that remains what a hypothesis sees: a few steps back all W
        have the same ancestor, so that a position is one slot rather than W.

        Returns:
            Cache, visible [B, W, slots] bool.
        """
        used = ops.cast(ops.any(visible, axis=1), "int32")  # [B, slots]
        count = ops.max(ops.sum(used, axis=1), initial=0)
        order = ops.argsort(-used, axis=1)[:, :count]  # a sentence's used first
        batch, beams, _ = ops.shape(visible)
        visible = _slots(visible[..., None], order)[..., 0]
        positions = _slots(self.positions[:, None, :, None], order)[:, 0, :, 0]
        capacity = self._capacity(beams)
        nobody = ops.zeros((batch, beams, capacity * beams), "bool")
        recent = _recent(self.positions[:, -1:] + 1, capacity, beams)
        cache = self._replace(
            past_keys=_joined(self.past_keys, self.keys, order),
            past_values=_joined(self.past_values, self.values, order),
            positions=ops.concatenate([positions, recent], axis=1),
        )
        return cache, ops.concatenate([visible, nobody], axis=2)

    def _capacity(self, beams):
        """Return how many positions are recent."""
        return ops.shape(self.keys[0])[2] // beams


def _recent(first, capacity, beams):
    """Return positions of recent slots [B, slots] from `first` [B, 1] on."""
    return first + ops.repeat(ops.arange(capacity), beams)


def _joined(past, recent, order):
    return tuple(
        _slots(ops.concatenate(pair, axis=2), order)
        for pair in zip(past, recent, strict=True)
    )


def _slots(array, order):
    """Take slots [B, some] of [B, N, slots, K] -> [B, N, some, K].

    As rows of a matrix, which are copied whole.
    """
    batch, count, slots, size = ops.shape(array)
    first = ops.reshape(ops.arange(batch * count) * slots, (batch, count, 1))
    rows = ops.reshape(array, (-1, size))
    return ops.take(rows, first + order[:, None], axis=0)
