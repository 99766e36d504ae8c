"""Cache of decoder self-attention in decoding, with visibility per beam."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keras import ops

from t2t_repro.layers.attention import KeyValues
from t2t_repro.runtime.types import Tensor


class Cache(NamedTuple):
    """Keys and values of all beams of a sentence, [B, …] each.

    An entry is the key and the value of a hypothesis at a position; S is the
    number of entries. An entry stays where it is: if a hypothesis continues in
    another beam, only its visibility [B, W, S] is reordered. W beams query the
    entries of all W under a mask.
    The first entries are the past, which is only read. After them come W
    entries for each recent position.
    """

    keys: tuple  # recent: one per decoder layer, [B, H, recent entries, K]
    values: tuple  # the same
    past_keys: tuple  # one per decoder layer, [B, H, past entries, K]
    past_values: tuple  # the same
    positions: Tensor  # [B, S] int32, position of each entry, from 0
    memory_keys: tuple  # source: one per decoder layer, [B, H, L, K]
    memory_values: tuple  # the same
    memory_mask: Tensor  # [B, 1, 1, L] bool

    @classmethod
    def empty(
        cls,
        memory: Sequence[tuple[Tensor, Tensor]],
        memory_mask: Tensor,
        num_beams: int,
        capacity: Tensor | int,
        dtype: str,
    ) -> tuple["Cache", Tensor]:
        """Create a cache without positions, and its visible entries.

        Args:
            memory: keys and values of the source, one pair per layer.
            memory_mask: [B, 1, 1, L] bool.
            num_beams: W.
            capacity: number of recent positions before compact() is called.
            dtype: dtype of keys and values.

        Returns:
            Cache, visible [B, W, S] bool.
        """
        batch = ops.shape(memory_mask)[0]
        recent: list[tuple] = []
        past: list[tuple] = []
        for array in memory[0]:  # keys and values may differ in size
            _, heads, _, size = ops.shape(array)
            for arrays, count in ((recent, capacity * num_beams), (past, 0)):
                zeros = ops.zeros((batch, heads, count, size), dtype)
                arrays.append((zeros,) * len(memory))
        first = ops.zeros((batch, 1), "int32")
        memory_keys, memory_values = zip(*memory, strict=True)
        cache = cls(
            keys=recent[0],
            values=recent[1],
            past_keys=past[0],
            past_values=past[1],
            positions=_entry_positions(first, capacity, num_beams),
            memory_keys=memory_keys,
            memory_values=memory_values,
            memory_mask=memory_mask,
        )
        visible = ops.zeros((batch, num_beams, capacity * num_beams), "bool")
        return cache, visible

    def with_current(self, visible: Tensor, step: Tensor) -> Tensor:
        """Return visible entries [B, W, S] with each hypothesis's new one.

        Args:
            visible: [B, W, S] bool, of the previous positions.
            step: [] int32, the position that is being added.
        """
        beams, count = visible.shape[1], ops.shape(visible)[2]
        past = ops.shape(self.past_keys[0])[2]
        current = (
            past + step % self._capacity(beams) * beams + ops.arange(beams)
        )
        is_current = ops.arange(count) == current[:, None]
        return ops.logical_or(visible, is_current)

    def visible_mask(
        self, visible: Tensor, step: Tensor, reach: int
    ) -> tuple[Tensor, Tensor]:
        """Return the mask of queries at `step`, and distances to the entries.

        Args:
            visible: [B, W, S] bool.
            step: [] int32.
            reach: entries at distances -reach and below are masked; 0: none.

        Returns:
            mask [B, 1, W, S] bool, distances [B, S] int32.
        """
        distances = self.positions - step
        mask = visible[:, None]
        if reach:
            mask = ops.logical_and(mask, (distances > -reach)[:, None, None])
        return mask, distances

    def write_rows(self, step: Tensor, beams: int) -> Tensor:
        """Return the rows to which keys and values of `step` are written.

        Returns:
            [B * H, 1] int32, rows of an array [B * H * recent positions,
            W * K].
        """
        batch, heads = ops.shape(self.keys[0])[:2]
        capacity = self._capacity(beams)
        return (ops.arange(batch * heads) * capacity + step % capacity)[:, None]

    def key_values(
        self, distances: Tensor
    ) -> Iterator[tuple[KeyValues, KeyValues, KeyValues]]:
        """Yield past, recent and source KeyValues of each layer.

        Args:
            distances: result of visible_mask().
        """
        past, recent, source = (
            ops.shape(arrays[0])[2]
            for arrays in (self.past_keys, self.keys, self.memory_keys)
        )
        past_distances, recent_distances = (
            distances[:, :past],
            distances[:, past:],
        )
        for past_key, past_value, key, value, memory_key, memory_value in zip(
            self.past_keys,
            self.past_values,
            self.keys,
            self.values,
            self.memory_keys,
            self.memory_values,
            strict=True,
        ):
            yield (
                KeyValues(past_key, past_value, past, past_distances),
                KeyValues(key, value, recent, recent_distances),
                KeyValues(memory_key, memory_value, source),
            )

    def compact(self, visible: Tensor) -> tuple["Cache", Tensor]:
        """Move recent positions to the past, and empty the recent entries.

        A step copies the recent entries to write to them, but only reads the
        past. Entries that no hypothesis sees are dropped: all W hypotheses
        share their ancestor of a few steps ago, so that such a position needs
        one entry rather than W.

        Returns:
            Cache, visible [B, W, S] bool.
        """
        used = ops.cast(ops.any(visible, axis=1), "int32")  # [B, S]
        count = ops.max(ops.sum(used, axis=1), initial=0)
        order = ops.argsort(-used, axis=1)[:, :count]  # used entries first
        batch, beams, _ = ops.shape(visible)
        visible = _take_entries(visible[..., None], order)[..., 0]
        positions = self.positions[:, None, :, None]
        positions = _take_entries(positions, order)[:, 0, :, 0]
        capacity = self._capacity(beams)
        unseen = ops.zeros((batch, beams, capacity * beams), "bool")
        recent = _entry_positions(self.positions[:, -1:] + 1, capacity, beams)
        cache = self._replace(
            past_keys=_append_and_take(self.past_keys, self.keys, order),
            past_values=_append_and_take(self.past_values, self.values, order),
            positions=ops.concatenate([positions, recent], axis=1),
        )
        return cache, ops.concatenate([visible, unseen], axis=2)

    def _capacity(self, beams: int) -> Tensor | int:
        """Return the number of recent positions."""
        return ops.shape(self.keys[0])[2] // beams


def _entry_positions(
    first: Tensor, capacity: Tensor | int, beams: int
) -> Tensor:
    """Return positions of recent entries [B, S] from `first` [B, 1] on."""
    return first + ops.repeat(ops.arange(capacity), beams)


def _append_and_take(past: tuple, recent: tuple, order: Tensor) -> tuple:
    """Return the entries `order` of each layer's past and recent arrays."""
    return tuple(
        _take_entries(ops.concatenate(pair, axis=2), order)
        for pair in zip(past, recent, strict=True)
    )


def _take_entries(array: Tensor, order: Tensor) -> Tensor:
    """Take entries `order` [B, S'] of [B, N, S, K], giving [B, N, S', K].

    They are taken as rows of a matrix, which are copied whole.
    """
    batch, count, length, size = ops.shape(array)
    first = ops.reshape(ops.arange(batch * count) * length, (batch, count, 1))
    rows = ops.reshape(array, (-1, size))
    return ops.take(rows, first + order[:, None], axis=0)
