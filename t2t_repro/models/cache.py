"""The cache of decoding: what beams have seen, and where it lies."""

from typing import NamedTuple

from keras import ops

from t2t_repro.layers.attention import Part


class Cache(NamedTuple):
    """What decoding carries from step to step, [B, …] each.

    A key and its value lie in a slot, and stay there: when a hypothesis goes
    on in another beam, `seen` alone is reordered. W beams query the slots of
    all W under a mask.
    Slots are of the past, which is only read, and after them of recent
    positions, W for each.
    """

    keys: tuple  # recent: a decoder layer each, [B, H, recent slots, K]
    values: tuple  # the same
    past_keys: tuple  # a decoder layer each, [B, H, past slots, K]
    past_values: tuple  # the same
    seen: object  # [B, W, slots] bool: the slots of each hypothesis
    positions: object  # [B, slots] int32, from 0
    memory_keys: tuple  # of the source: a decoder layer each, [B, H, L, K]
    memory_values: tuple  # the same
    memory_mask: object  # [B, 1, 1, L] bool

    @classmethod
    def empty(cls, memory, memory_mask, beam_size, positions, dtype):
        """Nothing seen yet, and room for so many positions.

        Args:
            memory: keys and values of the source, a pair for each layer.
            memory_mask: as of the field.
            beam_size: W.
            positions: settle() makes room for as many again.
            dtype: of keys and values.
        """
        batch = ops.shape(memory_mask)[0]
        fields = {"recent": [], "past": []}
        for array in memory[0]:  # keys and values may differ in size
            _, heads, _, size = ops.shape(array)
            for name, slots in (("recent", positions * beam_size), ("past", 0)):
                zeros = ops.zeros((batch, heads, slots, size), dtype)
                fields[name].append((zeros,) * len(memory))
        return cls(
            *fields["recent"],
            *fields["past"],
            ops.zeros((batch, beam_size, positions * beam_size), "bool"),
            _recent(ops.zeros((batch, 1), "int32"), positions, beam_size),
            *zip(*memory, strict=True),
            memory_mask,
        )

    def follow(self, parents, step):
        """With what the hypotheses of this step have seen, themselves included.

        Args:
            parents: [B, W] int32, the beam that each was in before.
            step: [] int32, the position that is now each one's own.
        """
        batch, beams, slots = ops.shape(self.seen)
        rows = ops.arange(batch)[:, None] * beams + parents
        old = ops.take(ops.reshape(self.seen, (-1, slots)), rows, axis=0)
        past = ops.shape(self.past_keys[0])[2]
        own = past + self._place(step) * beams + ops.arange(beams)
        itself = ops.arange(slots) == own[:, None]
        return self._replace(seen=ops.logical_or(old, itself))

    def sight(self, step, reach):
        """What hypotheses see from `step`: no further than `reach`, if any.

        Returns:
            mask [B, 1, W, slots] bool, distances to slots [B, slots] int32.
        """
        distances = self.positions - step
        mask = self.seen[:, None]
        if reach:
            mask = ops.logical_and(mask, (distances > -reach)[:, None, None])
        return mask, distances

    def rows(self, step):
        """Where recent keys and values of `step` are written.

        Returns:
            [B * H, 1] int32: of an array of [B * H * recent positions, W * K].
        """
        batch, heads = ops.shape(self.keys[0])[:2]
        first = ops.arange(batch * heads) * self._room()
        return (first + self._place(step))[:, None]

    def parts(self, layer, distances):
        """What a layer attends to -> past, recent, memory, a Part each."""
        keys, past_keys = self.keys[layer], self.past_keys[layer]
        past = ops.shape(past_keys)[2]
        return (
            Part(past_keys, self.past_values[layer], distances[:, :past]),
            Part(keys, self.values[layer], distances[:, past:]),
            Part(self.memory_keys[layer], self.memory_values[layer]),
        )

    def settle(self):
        """Makes past what is recent, and room for as many positions again.

        To be called whenever there is no room left. A step copies what is
        recent, to write to it, and only reads the past. Of that remains what a
        hypothesis has seen: a few steps back all W have the same ancestor, so
        that a position is one slot rather than W.
        """
        used = ops.cast(ops.any(self.seen, axis=1), "int32")  # [B, slots]
        count = ops.max(ops.sum(used, axis=1), initial=0)
        order = ops.argsort(-used, axis=1)[:, :count]  # a sentence's used first
        batch, beams, _ = ops.shape(self.seen)
        seen = _slots(self.seen[..., None], order)[..., 0]
        positions = _slots(self.positions[:, None, :, None], order)[:, 0, :, 0]
        room = self._room()
        nobody = ops.zeros((batch, beams, room * beams), "bool")
        recent = _recent(self.positions[:, -1:] + 1, room, beams)
        return self._replace(
            past_keys=_joined(self.past_keys, self.keys, order),
            past_values=_joined(self.past_values, self.values, order),
            seen=ops.concatenate([seen, nobody], axis=2),
            positions=ops.concatenate([positions, recent], axis=1),
        )

    def _room(self):
        """How many positions are recent."""
        return ops.shape(self.keys[0])[2] // self.seen.shape[1]

    def _place(self, step):
        """Which of the recent positions `step` is."""
        return step % self._room()


def _recent(first, room, beams):
    """Positions of recent slots [B, slots] from `first` [B, 1] on."""
    return first + ops.repeat(ops.arange(room), beams)


def _joined(past, recent, order):
    return tuple(
        _slots(ops.concatenate(pair, axis=2), order)
        for pair in zip(past, recent, strict=True)
    )


def _slots(array, order):
    """[B, N, slots, K] -> [B, N, some, K], those of order [B, some].

    As rows of a matrix, which are copied whole.
    """
    batch, count, slots, size = ops.shape(array)
    first = ops.reshape(ops.arange(batch * count) * slots, (batch, count, 1))
    rows = ops.reshape(array, (-1, size))
    return ops.take(rows, first + order[:, None], axis=0)
