"""Pictures: each weight is where it belongs, and as strong as it is."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import image

from t2t_repro.models.transformer import AttentionWeights
from t2t_repro.reports import attention_maps, attention_plots, attention_svg

SVG = "{http://www.w3.org/2000/svg}"
WEIGHTS = np.array([[0.7, 0.3, 0.0], [0.01, 0.19, 0.8]])
OTHER = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
CROSS = attention_maps.Attention(
    "Encoder-decoder attention",
    ["▁ja", "</s>"],
    ["▁a", "b", "</s>"],
    np.array([[OTHER, OTHER], [WEIGHTS, OTHER]]),
    {},
)


def choice(heads=(0,), queries=None):
    return attention_maps.HeadChoice("", "", 1, list(heads), queries)


def test_strokes_are_the_weights_that_can_be_seen():
    assert attention_svg.strokes(CROSS, choice()) == [
        (1, 1, 0.19, 0),
        (0, 1, 0.3, 0),
        (0, 0, 0.7, 0),
        (1, 2, 0.8, 0),
    ]
    assert attention_svg.strokes(CROSS, choice([0, 1], [0])) == [
        (0, 1, 0.3, 0),
        (0, 0, 0.7, 0),
        (0, 1, 1.0, 1),
    ]


def tree(drawing):
    return ElementTree.fromstring(drawing.svg)


def heights(root):
    """{text of a piece: y of its middle} of each column."""
    columns = {"end": {}, None: {}}
    for text in root.iter(f"{SVG}text"):
        if text.get("font-size") is None:  # no legend
            column = columns[text.get("text-anchor")]
            column[text.text] = float(text.get("y")) - 5
    return columns["end"], columns[None]


def test_lines_go_from_piece_to_piece_with_the_weight_as_opacity():
    root = tree(attention_svg.draw_lines(CROSS, choice()))
    queries, keys = heights(root)
    assert list(queries) == ["ja", "</s>"] and list(keys) == ["a", "·b", "</s>"]
    found = {
        (float(line.get("y1")), float(line.get("y2"))): float(
            line.get("stroke-opacity")
        )
        for line in root.iter(f"{SVG}line")
    }
    assert found == {
        (queries["ja"], keys["a"]): 0.7,
        (queries["ja"], keys["·b"]): 0.3,
        (queries["</s>"], keys["·b"]): 0.19,
        (queries["</s>"], keys["</s>"]): 0.8,
    }


def test_heads_have_colours_and_lie_beside_one_another():
    root = tree(attention_svg.draw_lines(CROSS, choice([0, 1], [0])))
    lines = list(root.iter(f"{SVG}line"))
    assert len({line.get("stroke") for line in lines}) == 2
    same = [line for line in lines if line.get("stroke-opacity") != "0.7"]
    assert same[0].get("y1") != same[1].get("y1")
    legend = [t for t in root.iter(f"{SVG}text") if t.get("font-size") == "11"]
    assert [text.text.strip() for text in legend] == ["head 1", "head 2"]
    assert legend[0].get("fill") == lines[0].get("stroke")


def test_nothing_is_drawn_outside():
    for draw in (attention_svg.draw_lines, attention_svg.draw_matrix):
        root = tree(draw(CROSS, choice([0])))
        _, _, width, height = map(float, root.get("viewBox").split())
        for element in root.iter():
            for key, most in (("x", width), ("y", height), ("x2", width)):
                assert 0 <= float(element.get(key, 0)) <= most


def test_a_matrix_has_queries_down_and_keys_across():
    root = tree(attention_svg.draw_matrix(CROSS, choice()))
    frame, *squares = root.iter(f"{SVG}rect")
    left, top = float(frame.get("x")), float(frame.get("y"))
    side = float(squares[0].get("width"))
    found = np.zeros((2, 3))
    for square in squares:
        row = (float(square.get("y")) - top) / side
        column = (float(square.get("x")) - left) / side
        found[int(row), int(column)] = square.get("fill-opacity")
    np.testing.assert_allclose(found, np.where(WEIGHTS < 0.02, 0, WEIGHTS))


def test_pictures_tell_what_they_show():
    drawing = attention_svg.draw_lines(CROSS, choice([0, 1], [0]))
    assert drawing.title == (
        "Encoder-decoder attention, layer 2, all heads, from “ja”"
    )
    root = tree(drawing)
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == drawing.title
    told = root.find(f"{SVG}desc").text
    assert told == "Strongest: ja to ·b 1.00, ja to a 0.70, ja to ·b 0.30."


def test_text_is_never_markup():
    pieces = ["▁<script>", "&"]
    weights = np.full((1, 1, 2, 2), 0.5)
    hostile = attention_maps.Attention("", pieces, pieces, weights, {})
    drawing = attention_svg.draw_lines(
        hostile, attention_maps.HeadChoice("", "", 0, [0], None)
    )
    assert "<script>" not in drawing.svg
    assert list(heights(tree(drawing))[0]) == ["<script>", "&"]


@pytest.mark.parametrize("heads", [1, 4, 5])
def test_a_layers_picture_has_each_head_in_its_place(heads):
    """Of head h, query 1 looks at key h: one dark square in each tile."""
    weights = np.zeros((1, heads, 3, 5))
    weights[0, range(heads), 1, range(heads)] = 1
    pieces = list("abcde")
    kind = attention_maps.Attention("Kind", pieces[:3], pieces, weights, {})
    (layer,) = attention_plots.plot_layers(kind)
    assert layer.title == "Kind, layer 1" and "head 1: " in layer.alt
    shades = image.imread(io.BytesIO(layer.png))[..., :3].sum(-1)
    cell = 132 // 5
    wide, high = 5 * cell + 14, 3 * cell + 34  # room at right, and above
    for head in range(heads):
        left, top = head % 4 * wide, head // 4 * high + 22
        tile = shades[top : top + 3 * cell, left : left + 5 * cell]
        squares = tile[cell // 2 :: cell, cell // 2 :: cell]
        assert np.unravel_index(squares.argmin(), squares.shape) == (1, head)
        assert (squares < 1).sum() == 1


@pytest.fixture(scope="module")
def sentence():
    """Two layers of two heads, at random, of 4 and of 3 pieces."""
    random = np.random.default_rng(0)

    def weights(queries, keys):
        return random.dirichlet(np.ones(keys), (2, 2, queries))

    return attention_plots.plot_sentence(
        "two birds sing",
        "zwei Vögel",
        ["▁two", "▁birds", "▁sing", "</s>"],
        ["▁zwei", "▁Vögel", "</s>"],
        AttentionWeights(
            encoder=weights(4, 4), decoder=weights(3, 3), cross=weights(3, 4)
        ),
    )


def test_a_sentence_has_every_layer_and_the_papers_figures(sentence):
    assert [len(layers) for layers in sentence.layers.values()] == [2, 2, 2]
    assert [figure.title for figure in sentence.figures] == [
        "Over a long distance",
        "Back to an earlier word",
        "Structure of the sentence",
        "Alignment",
    ]
    assert all(figure.drawings for figure in sentence.figures)


def test_pictures_as_files(sentence, tmp_path):
    count = attention_plots.write(tmp_path / "new", [sentence, sentence])
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert len(names) == count
    assert names[0] == "1-alignment-1.svg"
    assert "2-decoder-self-attention-layer-2.png" in names
    for path in (tmp_path / "new").glob("*.svg"):
        text = path.read_text("utf-8")
        ElementTree.fromstring(text)
        # Names of XML's vocabularies are addresses; nothing is loaded.
        assert not re.search(r"(href|src)=['\"]https?://|url\(http", text)


@pytest.mark.parametrize(
    ("names", "folders"),
    [
        (["any name"], [""]),
        (["base", "big"], ["base", "big"]),
        (
            ["base_1", "base-1", "big"],
            ["base-1-run-1", "base-1-run-2", "big"],
        ),
    ],
)
def test_folders_of_runs_differ(names, folders):
    assert attention_plots.folder_names(names) == folders
