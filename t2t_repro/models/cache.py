"""The cache of decoding: what beams have seen, and where it lies."""

from typing import NamedTuple

from keras import ops

from t2t_repro.layers.attention import Part


class Cache(NamedTuple):
    """What decoding carries from step to step, [B, …] each.

    What a beam has seen stays where it was written, and when a hypothesis
    goes on in another beam, `ancestors` alone is reordered: a slot is a
    position of a beam, and W beams query the slots of all W under a mask.
    """

    keys: tuple  # a decoder layer each, [B, H, recent positions * W, K]
    values: tuple  # the same
    past_keys: tuple  # the same of positions before, which are not written
    past_values: tuple  # the same
    ancestors: object  # [B, W, positions] int32: a hypothesis' beam; -1: none
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
        fields = {"recent": [], "past": []}
        for array in memory[0]:  # keys and values may differ in size
            batch, heads, _, size = ops.shape(array)
            for name, slots in (("recent", positions * beam_size), ("past", 0)):
                zeros = ops.zeros((batch, heads, slots, size), dtype)
                fields[name].append((zeros,) * len(memory))
        return cls(
            *fields["recent"],
            *fields["past"],
            _nobody(memory_mask, beam_size, positions),
            *zip(*memory, strict=True),
            memory_mask,
        )

    def follow(self, parents, step):
        """With ancestors [B, W, positions] of the hypotheses of this step.

        Args:
            parents: [B, W] int32, the beam that each was in before.
            step: [] int32, the position that is now each one's own.
        """
        _, beams, positions = ops.shape(self.ancestors)
        old = ops.take_along_axis(self.ancestors, parents[..., None], axis=1)
        itself = ops.arange(beams)[:, None]
        here = ops.arange(positions) == step
        return self._replace(ancestors=ops.where(here, itself, old))

    def sight(self, step, reach):
        """What hypotheses see from `step`: no further than `reach`, if any.

        Returns:
            mask [B, 1, W, slots] bool, distances to slots [W, slots] int32.
        """
        beams = self.ancestors.shape[1]
        places = ops.arange(ops.shape(self.ancestors)[2])
        distances = ops.repeat(places - step, beams)  # a slot for each beam
        shape = (beams, ops.shape(distances)[0])
        # Positions to come are nobody's.
        mask = self.ancestors[..., None] == ops.arange(beams)
        mask = ops.reshape(mask, (-1, 1, *shape))
        if reach:
            mask = ops.logical_and(mask, distances > -reach)
        return mask, ops.broadcast_to(distances, shape)

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

        To be called when there is no room left. A step copies what is recent,
        to write to it, and only reads the past: so both stay as small as they
        can be.
        """
        beams = self.ancestors.shape[1]
        room = ops.shape(self.keys[0])[2] // beams
        nobody = _nobody(self.memory_mask, beams, room)
        return self._replace(
            past_keys=_joined(self.past_keys, self.keys),
            past_values=_joined(self.past_values, self.values),
            ancestors=ops.concatenate([self.ancestors, nobody], axis=2),
        )


def _joined(past, recent):
    return tuple(
        ops.concatenate(pair, axis=2) for pair in zip(past, recent, strict=True)
    )


def _nobody(memory_mask, beams, positions):
    return ops.full((ops.shape(memory_mask)[0], beams, positions), -1, "int32")
