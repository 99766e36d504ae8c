"""Attention maps: patterns of heads, rules that select some, and plots."""

import io
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colors, figure

from t2t_repro.decoding.translation import AttentionTrace
from t2t_repro.io import files
from t2t_repro.models.seq2seq import AttentionWeights
from t2t_repro.reports import curves
from t2t_repro.text import trees

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
    selected = words(encoder.queries)
    if not selected.any():
        return []
    # The selected queries' mean greatest weight, [layers, H].
    sharpness = (encoder.weights * others).max(-1)[..., selected].mean(-1)
    order = sharpness.ravel().argsort()[::-1]
    heads = [np.unravel_index(i, sharpness.shape) for i in order]
    heads = [head for head in heads if sharpness[head] > 0]
    first = heads[:1]

    def overlap(head):  # the mean weight on the same keys as the first
        both = encoder.weights[head], encoder.weights[first[0]]
        return np.minimum(*both).sum(1).mean()

    second = [head for head in heads[1:] if overlap(head) < MAJORITY]
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


# Plots: small for all heads, large for selected heads.

# In large drawings of selected heads, as lines or as a matrix:
FAINTEST = 0.02  # minimum weight of a line or square
_ROW = 19  # height of a piece
_DRAWING_GAP = 20  # 6 between a piece and the lines, 14 for wide letters
_SPAN = 150  # width of a line, from the queries to the keys
# In small plots of all heads:
_COLUMNS = 4  # heads side by side
_DPI = 100
# Pixels of a head, between two heads, and of a label.
_TILE, _GAP, _LABEL = 132, 12, 22


class Stroke(NamedTuple):
    """A line from a query to a key."""

    query: int
    key: int
    weight: float  # its opacity
    head: int


class Drawing(NamedTuple):
    """Large drawing of one or several heads."""

    title: str  # "Encoder self-attention, layer 2, heads 1 and 3"
    svg: str  # a complete document


class LayerPlot(NamedTuple):
    """Plot of all heads of a layer."""

    title: str
    alt: str
    png: bytes


class Figure(NamedTuple):
    """Drawings of selected heads, and the rule that selected them."""

    title: str
    reason: str
    drawings: list[Drawing]


class SentencePlots(NamedTuple):
    """All plots of a sentence."""

    inputs: str
    outputs: str
    figures: list[Figure]
    layers: dict[str, list[LayerPlot]]  # title of the attention -> its layers


def plot_sentence(trace: AttentionTrace) -> SentencePlots:
    """Plot the attention of a sentence and its translation."""
    kinds = attentions(trace.source, trace.target, trace.weights)
    return SentencePlots(
        trace.inputs,
        trace.outputs,
        list(_figures(kinds.get("encoder"), kinds["cross"])),
        {kind.title: plot_layers(kind) for kind in kinds.values()},
    )


def _figures(encoder: Attention | None, cross: Attention) -> Iterator[Figure]:
    if encoder and (far := long_distance(encoder)):
        yield Figure(far.title, far.reason, [draw_lines(encoder, far)])
    if encoder and (back := back_reference(encoder)):
        all_queries = back._replace(heads=back.heads[:1], queries=None)
        drawings = [draw_lines(encoder, one) for one in (all_queries, back)]
        yield Figure(back.title, back.reason, drawings)
    if encoder and (pair := structure(encoder)):
        drawings = [draw_lines(encoder, one) for one in pair]
        yield Figure(pair[0].title, pair[0].reason, drawings)
    if choice := alignment(cross):
        drawings = [draw_matrix(cross, choice), draw_lines(cross, choice)]
        yield Figure(choice.title, choice.reason, drawings)


def strokes(attention: Attention, choice: HeadChoice) -> list[Stroke]:
    """Return the lines of a drawing; the strongest come last, on top."""
    weights = attention.weights[choice.layer]
    candidates = (
        Stroke(query, key, float(weights[head, query, key]), head)
        for head in choice.heads
        for query in choice.queries or range(len(attention.queries))
        for key in range(len(attention.keys))
    )
    visible = [stroke for stroke in candidates if stroke.weight >= FAINTEST]
    return sorted(visible, key=lambda stroke: stroke.weight)


def draw_lines(attention: Attention, choice: HeadChoice) -> Drawing:
    """Draw queries on the left, keys on the right, weights as lines between."""
    queries, keys = map(readable, (attention.queries, attention.keys))
    left = _widest(queries)
    right = left + _SPAN
    heads = {
        head: (number, curves.COLORS[number % len(curves.COLORS)])
        for number, head in enumerate(choice.heads)
    }
    distance = min(2.0, 12 / len(heads))  # so that no lines coincide
    lines = []
    for stroke in strokes(attention, choice):
        number, color = heads[stroke.head]
        shift = round(distance * (number - (len(heads) - 1) / 2), 2)
        lines.append(
            {
                "y1": _middle(stroke.query) + shift,
                "y2": _middle(stroke.key) + shift,
                "color": color,
                "opacity": round(stroke.weight, 3),
                "query": stroke.query,
            }
        )
    title = _title(attention, choice)
    svg = curves.render(
        "lines.svg.j2",
        title=title,
        description=_description(attention, choice),
        queries=[(_middle(i), text) for i, text in enumerate(queries)],
        keys=[(_middle(i), text) for i, text in enumerate(keys)],
        chosen=choice.queries or range(len(queries)),
        lines=lines,
        legend=[(head + 1, color) for head, (_, color) in heads.items()],
        left=left,
        right=right,
        width=right + _widest(keys),
        height=round(_ROW * (max(len(queries), len(keys)) + 1.2)),
    )
    return Drawing(title, svg)


def draw_matrix(attention: Attention, choice: HeadChoice) -> Drawing:
    """Draw one head as a matrix: queries down, keys across."""
    queries, keys = map(readable, (attention.queries, attention.keys))
    weights = attention.weights[choice.layer, choice.heads[0]]
    title = _title(attention, choice)
    svg = curves.render(
        "matrix.svg.j2",
        title=title,
        description=_description(attention, choice),
        queries=queries,
        keys=keys,
        squares=[
            (i, j, round(float(weights[i, j]), 3))
            for i, j in np.argwhere(weights >= FAINTEST).tolist()
        ],
        color=curves.COLORS[0],
        left=_widest(queries),
        top=_widest(keys),
        side=_ROW,
    )
    return Drawing(title, svg)


def readable(pieces: list[str]) -> list[str]:
    """Replace the marks of words: "▁Zwei" is Zwei, "hunde" after it ·hunde."""
    return [
        f"·{piece}"
        if is_word(piece) and piece[0] != "▁"
        else piece.removeprefix("▁") or piece
        for piece in pieces
    ]


def _widest(texts):
    return max(map(trees.text_width, texts)) + _DRAWING_GAP


def _middle(row):
    return _ROW * (row + 1.5)


def _title(attention, choice):
    numbers = [str(head + 1) for head in choice.heads]
    all_heads = len(numbers) == attention.weights.shape[1] > 1
    if len(numbers) == 1:
        heads = f"head {numbers[0]}"
    elif all_heads:
        heads = "all heads"
    else:
        heads = f"heads {' and '.join(numbers)}"
    title = f"{attention.title}, layer {choice.layer + 1}, {heads}"
    if choice.queries is None:
        return title
    pieces = readable(attention.queries)
    queries = ", ".join(pieces[query] for query in choice.queries)
    return f"{title}, from “{queries}”"


def _description(attention, choice):
    """Describe the strongest lines in words, for screen readers."""
    strongest = strokes(attention, choice)[:-6:-1]
    queries, keys = map(readable, (attention.queries, attention.keys))
    weights = ", ".join(
        f"{queries[stroke.query]} to {keys[stroke.key]} {stroke.weight:.2f}"
        for stroke in strongest
    )
    return f"Strongest: {weights}."


def plot_layers(attention: Attention) -> list[LayerPlot]:
    """Plot every head small, one plot for each layer."""
    plots = []
    for layer, weights in enumerate(attention.weights):
        patterns = [
            pattern(attention, layer, head) for head in range(len(weights))
        ]
        title = f"{attention.title}, layer {layer + 1}"
        heads = "; ".join(
            f"head {number}: {text}" for number, text in enumerate(patterns, 1)
        )
        alt = f"{title}. {heads}."
        plots.append(LayerPlot(title, alt, _head_grid(weights, patterns)))
    return plots


def _head_grid(weights, labels):
    """Draw weights [H, queries, keys] as a PNG.

    A darker square is a greater weight, by its square root. A square has whole
    pixels, so that no edge is blurred.
    """
    heads, queries, keys = weights.shape
    cell = max(3, _TILE // max(queries, keys))
    columns = min(_COLUMNS, heads)
    tile_width = max(keys * cell, _TILE) + _GAP  # a label has some 20 letters
    tile_height = queries * cell + _LABEL + _GAP
    width = columns * tile_width
    height = math.ceil(heads / columns) * tile_height
    image = np.ones((height, width, 4))
    grid = figure.Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
    for head, (weight, label) in enumerate(zip(weights, labels, strict=True)):
        top = head // columns * tile_height + _LABEL
        left = head % columns * tile_width
        tile = _shade(np.sqrt(weight.clip(0, 1)))
        tile = tile.repeat(cell, 0).repeat(cell, 1)
        image[top : top + len(tile), left : left + tile.shape[1]] = tile
        x, y = left / width, 1 - (top - 5) / height
        grid.text(x, y, f"{head + 1}: {label}", fontsize=7.5)
    grid.figimage(image)
    png = io.BytesIO()
    grid.savefig(png, dpi=_DPI, metadata={"Software": None})
    return png.getvalue()


_shade = colors.LinearSegmentedColormap.from_list(
    "shade", ["#f3f4f5", curves.COLORS[0], "#00253b"]
)


def write(folder: pathlib.Path, sentences: Sequence[SentencePlots]) -> int:
    """Write every plot to a file of its own; return the number of files.

    Plots that were written before are removed.

    1-encoder-self-attention-layer-1.png: all heads of a layer.
    1-alignment-1.svg: selected heads.
    """
    contents = {}
    for number, sentence in enumerate(sentences, 1):
        for layers in sentence.layers.values():
            for layer in layers:
                contents[f"{number}-{slug(layer.title)}.png"] = layer.png
        for drawn in sentence.figures:
            for i, drawing in enumerate(drawn.drawings, 1):
                name = f"{number}-{slug(drawn.title)}-{i}.svg"
                contents[name] = drawing.svg.encode()
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.glob("[0-9]*-*.*"):
        if earlier.suffix in (".png", ".svg"):
            earlier.unlink()
    for name, content in contents.items():
        files.write_bytes(folder / name, content)
    return len(contents)


def folder_names(names: Sequence[str]) -> list[str]:
    """Return a distinct folder name for each run, "" for a single run.

    Example: base_1, base-1 and big have base-1-run-1, base-1-run-2 and big.
    """
    if len(names) == 1:
        return [""]
    slugs = list(map(slug, names))
    while len(set(slugs)) < len(slugs):
        slugs = [
            slug if slugs.count(slug) == 1 else f"{slug}-run-{number}"
            for number, slug in enumerate(slugs, 1)
        ]
    return slugs


def slug(title: str) -> str:
    """Convert a title to a part of a file name.

    Example: "Alignment, layer 1" is alignment-layer-1.
    """
    letters = "".join(c if c.isalnum() else " " for c in title.lower())
    return "-".join(letters.split())
