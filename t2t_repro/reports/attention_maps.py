"""What heads do, and which of them are worth a picture, by stated rules."""

from typing import NamedTuple

import numpy as np

from t2t_repro.models.seq2seq import AttentionWeights

START = "<s>"  # what the decoder is fed before its first piece
EOS = "</s>"
MOSTLY = 0.5  # of a head's weight


class Attention(NamedTuple):
    """One kind of attention, in all layers and heads, in one sentence."""

    title: str
    queries: list[str]  # pieces that look
    keys: list[str]  # pieces that are looked at
    weights: np.ndarray  # [layers, H, queries, keys]
    offsets: dict[str, int]  # name -> distance of the key from the query


class HeadChoice(NamedTuple):
    """Heads for one picture, and why these."""

    title: str
    reason: str
    layer: int  # from 0, as heads and queries
    heads: list[int]
    queries: list[int] | None  # None: all of them


def attentions(
    source: list[str], target: list[str], weights: AttentionWeights
) -> dict[str, Attention]:
    """Return the attentions of a sentence by name, those that a model has.

    What the decoder reads is shifted: where it writes piece t, its last key is
    piece t - 1.
    """
    shifted = [START, *target[:-1]]
    around = {"previous": -1, "itself": 0, "next": 1}
    before = {"last but one": -1, "last": 0}
    found = {
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
    return {k: one for k, one in found.items() if one.weights is not None}


def is_word(piece: str) -> bool:
    """Whether it is of a word: no punctuation, no end, no single byte."""
    special = len(piece) > 1 and piece[0] == "<" and piece[-1] == ">"
    return not special and any(map(str.isalnum, piece))


def words(pieces: list[str]) -> np.ndarray:
    """[pieces] bool: is_word of each."""
    return np.array(list(map(is_word, pieces)), bool)


def pattern(attention: Attention, layer: int, head: int) -> str:
    """What a head does in this sentence, in a word or two.

    The name of a place where MOSTLY of its weight lies, and how much of it;
    else over how many pieces it spreads: the exponential of its mean entropy.
    """
    weights = attention.weights[layer, head]
    shares = {
        name: np.diagonal(weights, distance).mean()
        for name, distance in attention.offsets.items()
        if len(np.diagonal(weights, distance))
    }
    marks = ~words(attention.keys)
    shares["marks, end"] = weights[:, marks].sum(1).mean()
    name = max(shares, key=shares.get)
    if shares[name] >= MOSTLY:
        return f"{name} {shares[name]:.0%}"
    logs = np.log(np.where(weights > 0, weights, 1))
    entropy = -(weights * logs).sum(1).mean()
    return f"over {np.exp(entropy):.1f} pieces"


def long_distance(encoder: Attention) -> HeadChoice | None:
    """As Figure 3: a word whose heads, in one layer, look far away.

    None: there are no two words.
    """
    distances = _distances(encoder)
    of_words = _word_pairs(encoder)
    # [layers, queries], over the heads' mean.
    reach = (encoder.weights * distances * of_words).sum(-1).mean(1)
    if not reach.any():
        return None
    layer, query = np.unravel_index(reach.argmax(), reach.shape)
    return HeadChoice(
        "Over a long distance",
        "The word, and the layer, whose heads together look furthest: the "
        "greatest sum of weight times distance in pieces, on words alone. "
        "Every head has its colour. (Figure 3 of the paper shows “making”.)",
        int(layer),
        list(range(encoder.weights.shape[1])),
        [int(query)],
    )


def back_reference(encoder: Attention) -> HeadChoice | None:
    """As Figure 4: a word from which two heads look at one earlier word.

    None: there are no such words.
    """
    length = len(encoder.keys)
    earlier = np.tri(length, k=-2, dtype=bool)  # nearer ones may be one word
    same = np.array(encoder.keys)[:, None] == np.array(encoder.keys)
    weights = encoder.weights * (_word_pairs(encoder) & earlier & ~same)
    # Of the two best heads of a layer for each pair of pieces, the weaker.
    both = np.sort(weights, axis=1)[:, -2:].min(1)
    if not both.any():
        return None
    layer, query, key = np.unravel_index(both.argmax(), both.shape)
    heads = weights[layer, :, query, key].argsort()[::-1][:2]
    return HeadChoice(
        "Back to an earlier word",
        "The word from which two heads of one layer look back most sharply, "
        "even the weaker of them, at the same other word, two pieces away at "
        "least. (In Figure 4 of the paper “its” finds “Law”: an anaphora.)",
        int(layer),
        heads.tolist(),
        [int(query)],
    )


def structure(encoder: Attention) -> list[HeadChoice]:
    """As Figure 5: the two sharpest heads that do different things."""
    others = _word_pairs(encoder) & (_distances(encoder) > 0)
    sharpness = _sharpness(encoder.weights * others, words(encoder.queries))
    order = sharpness.ravel().argsort()[::-1]
    places = [np.unravel_index(i, sharpness.shape) for i in order]
    places = [place for place in places if sharpness[place] > 0]
    first = places[:1]
    second = [
        place
        for place in places[1:]
        if _shared(encoder.weights[place], encoder.weights[first[0]]) < MOSTLY
    ]
    return [
        HeadChoice(
            "Structure of the sentence",
            "The head that looks most sharply at single words other than the "
            "one it looks from, and the next such head that shares less than "
            "half of its weight with it. (As Figure 5 of the paper.)",
            int(layer),
            [int(head)],
            None,
        )
        for layer, head in first + second[:1]
    ]


def alignment(cross: Attention) -> HeadChoice | None:
    """The head of cross-attention that reads the whole source, word by word.

    None: a side has no word.
    """
    read, written = words(cross.keys), words(cross.queries)
    if not read.any() or not written.any():
        return None
    # Each word of the source: by which word it is looked at most, and how much.
    covered = cross.weights[:, :, written][..., read].max(2).mean(-1)
    layer, head = np.unravel_index(covered.argmax(), covered.shape)
    return HeadChoice(
        "Alignment",
        "The head of the decoder in which each word of the source has, at its "
        "maximum over the words of the translation, the greatest mean weight: "
        "it reads all of them, and one at a time. A piece stands where it is "
        "written; some heads look at what the piece before it came from.",
        int(layer),
        [int(head)],
        None,
    )


def _distances(attention):
    places = np.arange(len(attention.keys))
    return abs(places[:, None] - places)


def _word_pairs(attention):
    """[queries, keys] bool: both are of words."""
    return words(attention.queries)[:, None] & words(attention.keys)


def _sharpness(weights, of_queries):
    """[layers, H]: mean of the greatest weight of each such query."""
    if not of_queries.any():
        return np.zeros(weights.shape[:2])
    return weights.max(-1)[..., of_queries].mean(-1)


def _shared(one, other):
    """Weight that two heads put on the same keys, a mean over queries."""
    return np.minimum(one, other).sum(1).mean()
