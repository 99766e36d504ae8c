"""Patterns of attention heads, and rules that select heads for figures."""

from typing import NamedTuple

import numpy as np

from t2t_repro.models.seq2seq import AttentionWeights

START = "<s>"  # the decoder's input before its first piece
EOS = "</s>"
MAJORITY = 0.5  # share of a head's weight


class Attention(NamedTuple):
    """All weights of one kind of attention in one sentence."""

    title: str
    queries: list[str]  # pieces
    keys: list[str]  # pieces
    weights: np.ndarray  # [layers, H, queries, keys]
    offsets: dict[str, int]  # name -> distance of the key from the query


class HeadChoice(NamedTuple):
    """Heads selected for one figure, and the rule that selects them."""

    title: str
    reason: str
    layer: int  # counted from 0, like heads and queries
    heads: list[int]
    queries: list[int] | None  # None: all


def attentions(
    source: list[str], target: list[str], weights: AttentionWeights
) -> dict[str, Attention]:
    """Return the kinds of attention that a model has, by name.

    The decoder's input is shifted: at the output of piece t, the last key is
    piece t - 1.
    """
    shifted = [START, *target[:-1]]
    around = {"previous": -1, "itself": 0, "next": 1}
    before = {"last but one": -1, "last": 0}
    kinds = {
        "encoder": Attention(
            "Encoder self-attention", source, source, weights.encoder, around
        ),
        "decoder": Attention(
            "Decoder self-attention", target, shifted, weights.decoder, before
        ),
        "cross": Attention(
            "Encoder-decoder attention", target, source, weights.cross, {}
        ),
    }
    return {
        name: kind for name, kind in kinds.items() if kind.weights is not None
    }


def is_word(piece: str) -> bool:
    """Return whether a piece is of a word, not punctuation, EOS or a byte."""
    special = len(piece) > 1 and piece[0] == "<" and piece[-1] == ">"
    return not special and any(map(str.isalnum, piece))


def words(pieces: list[str]) -> np.ndarray:
    """Return is_word of each piece, [pieces] bool."""
    return np.array(list(map(is_word, pieces)), bool)


def pattern(attention: Attention, layer: int, head: int) -> str:
    """Name the pattern of a head in this sentence.

    The result names the position that has at least MAJORITY of the weight, and
    its share. Without such a position it is the number of pieces over which the
    weight spreads: the exponential of the mean entropy.
    """
    weights = attention.weights[layer, head]
    shares = {
        name: np.diagonal(weights, distance).mean()
        for name, distance in attention.offsets.items()
        if len(np.diagonal(weights, distance))
    }
    marks = ~words(attention.keys)
    shares["marks, end"] = weights[:, marks].sum(1).mean()
    name = max(shares, key=shares.__getitem__)
    if shares[name] >= MAJORITY:
        return f"{name} {shares[name]:.0%}"
    logs = np.log(np.where(weights > 0, weights, 1))
    entropy = -(weights * logs).sum(1).mean()
    return f"over {np.exp(entropy):.1f} pieces"


def long_distance(encoder: Attention) -> HeadChoice | None:
    """Select the word with the most distant attention, as in Figure 3.

    Return None if the sentence has fewer than two words.
    """
    distances = _distances(encoder)
    word_pairs = _word_pairs(encoder)
    # [layers, queries], a mean over heads.
    reach = (encoder.weights * distances * word_pairs).sum(-1).mean(1)
    if not reach.any():
        return None
    layer, query = np.unravel_index(reach.argmax(), reach.shape)
    return HeadChoice(
        "Over a long distance",
        "The word and the layer with the most distant attention: the greatest "
        "sum of weight times distance in pieces, between words only, as a mean "
        "over heads. Each head has a color. (Figure 3 of the paper shows "
        "“making”.)",
        int(layer),
        list(range(encoder.weights.shape[1])),
        [int(query)],
    )


def back_reference(encoder: Attention) -> HeadChoice | None:
    """Select two heads that link a word to an earlier one, as in Figure 4.

    Return None if the sentence has no such words.
    """
    length = len(encoder.keys)
    earlier = np.tri(length, k=-2, dtype=bool)  # neighbors may be one word
    same = np.array(encoder.keys)[:, None] == np.array(encoder.keys)
    weights = encoder.weights * (_word_pairs(encoder) & earlier & ~same)
    # The weaker of the two best heads of a layer, for each pair of pieces.
    both = np.sort(weights, axis=1)[:, -2:].min(1)
    if not both.any():
        return None
    layer, query, key = np.unravel_index(both.argmax(), both.shape)
    heads = weights[layer, :, query, key].argsort()[::-1][:2]
    return HeadChoice(
        "Back to an earlier word",
        "The word from which two heads of one layer attend to the same earlier "
        "word, at least two pieces away, with the greatest weight of the "
        "weaker head. (In Figure 4 of the paper “its” finds “Law”: an "
        "anaphora.)",
        int(layer),
        heads.tolist(),
        [int(query)],
    )


def structure(encoder: Attention) -> list[HeadChoice]:
    """Select the two sharpest heads of different patterns, as in Figure 5."""
    others = _word_pairs(encoder) & (_distances(encoder) > 0)
    sharpness = _sharpness(encoder.weights * others, words(encoder.queries))
    order = sharpness.ravel().argsort()[::-1]
    heads = [np.unravel_index(i, sharpness.shape) for i in order]
    heads = [head for head in heads if sharpness[head] > 0]
    first = heads[:1]
    second = [
        head
        for head in heads[1:]
        if _overlap(encoder.weights[head], encoder.weights[first[0]]) < MAJORITY
    ]
    return [
        HeadChoice(
            "Structure of the sentence",
            "The head with the sharpest attention from words to single other "
            "words, and the next sharpest that shares less than half of its "
            "weight with the first. (As Figure 5 of the paper.)",
            int(layer),
            [int(head)],
            None,
        )
        for layer, head in first + second[:1]
    ]


def alignment(cross: Attention) -> HeadChoice | None:
    """Select the cross-attention head that aligns all words of the source.

    Return None if a side has no word.
    """
    read, written = words(cross.keys), words(cross.queries)
    if not read.any() or not written.any():
        return None
    # Maximum over target words for each source word; the mean over these.
    coverage = cross.weights[:, :, written][..., read].max(2).mean(-1)
    layer, head = np.unravel_index(coverage.argmax(), coverage.shape)
    return HeadChoice(
        "Alignment",
        "The head of the decoder that aligns the source best: the greatest "
        "mean, over source words, of the maximum weight over target words. It "
        "attends to all source words, one at a time. Rows are the pieces that "
        "the decoder outputs; some heads attend to the source of the piece "
        "before.",
        int(layer),
        [int(head)],
        None,
    )


def _distances(attention):
    indices = np.arange(len(attention.keys))
    return abs(indices[:, None] - indices)


def _word_pairs(attention):
    """Return [queries, keys] bool, True where both pieces are of words."""
    return words(attention.queries)[:, None] & words(attention.keys)


def _sharpness(weights, selected):
    """Return the selected queries' mean greatest weight, [layers, H]."""
    if not selected.any():
        return np.zeros(weights.shape[:2])
    return weights.max(-1)[..., selected].mean(-1)


def _overlap(weights, others):
    """Return the weight of two heads on the same keys, a mean over queries."""
    return np.minimum(weights, others).sum(1).mean()
