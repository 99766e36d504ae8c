"""Drawings of attention: what a reader sees of each weight."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import image

from t2t_repro.models.seq2seq import AttentionWeights
from t2t_repro.reports import attention_maps

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


def tree(drawing):
    return ElementTree.fromstring(drawing.svg)


def texts(root):
    return [text.text.strip() for text in root.iter(f"{SVG}text")]


def test_strokes_are_the_visible_weights_in_rising_order():
    assert attention_maps.strokes(CROSS, choice()) == [
        (1, 1, 0.19, 0),
        (0, 1, 0.3, 0),
        (0, 0, 0.7, 0),
        (1, 2, 0.8, 0),
    ]
    assert attention_maps.strokes(CROSS, choice([0, 1], [0])) == [
        (0, 1, 0.3, 0),
        (0, 0, 0.7, 0),
        (0, 1, 1.0, 1),
    ]


def test_lines_of_each_query_have_weights_as_opacity():
    root = tree(attention_maps.draw_lines(CROSS, choice()))
    opacities = {
        group.find(f"{SVG}text").text: [
            float(line.get("stroke-opacity"))
            for line in group.iter(f"{SVG}line")
        ]
        for group in root.iter(f"{SVG}g")
    }
    assert opacities == {"ja": [0.3, 0.7], "</s>": [0.19, 0.8]}
    assert {"a", "·b", "</s>"} <= set(texts(root))


def test_each_head_has_a_color_in_lines_and_legend():
    root = tree(attention_maps.draw_lines(CROSS, choice([0, 1], [0])))
    lines = {line.get("stroke") for line in root.iter(f"{SVG}line")}
    legend = {
        text.text.strip(): text.get("fill")
        for text in root.iter(f"{SVG}text")
        if text.text.strip().startswith("head ")
    }
    assert list(legend) == ["head 1", "head 2"]
    assert set(legend.values()) == lines and len(lines) == 2


def test_matrix_has_a_square_for_each_visible_weight():
    root = tree(attention_maps.draw_matrix(CROSS, choice()))
    _, *squares = root.iter(f"{SVG}rect")
    opacities = [float(square.get("fill-opacity")) for square in squares]
    assert opacities == WEIGHTS[WEIGHTS >= attention_maps.FAINTEST].tolist()
    assert texts(root) == ["a", "·b", "</s>", "ja", "</s>"]


def test_drawing_has_title_and_description_for_screen_readers():
    drawing = attention_maps.draw_lines(CROSS, choice([0, 1], [0]))
    for fact in ("Encoder-decoder", "layer 2", "all heads", "from “ja”"):
        assert fact in drawing.title
    root = tree(drawing)
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == drawing.title
    description = root.find(f"{SVG}desc").text
    assert re.search(r"ja to ·b 1\.00.* a 0\.70.* ·b 0\.30", description)


@pytest.mark.parametrize("heads", [1, 5])
def test_layer_plot_has_one_dark_square_per_head(heads):
    """Query 1 of head h attends to key h only."""
    weights = np.zeros((1, heads, 3, 5))
    weights[0, range(heads), 1, range(heads)] = 1
    pieces = list("abcde")
    kind = attention_maps.Attention("Kind", pieces[:3], pieces, weights, {})
    (layer,) = attention_maps.plot_layers(kind)
    assert layer.title == "Kind, layer 1" and "head 1: " in layer.alt
    pixels = image.imread(io.BytesIO(layer.png))[..., :3].sum(-1)
    cell = attention_maps._TILE // 5
    dark = (pixels < 0.7).sum()  # letters of labels have few such pixels
    assert heads * cell**2 <= dark < (heads + 1) * cell**2


@pytest.fixture(scope="module")
def sentence():
    """Return plots of random weights: two layers, two heads, 4 and 3 pieces."""
    random = np.random.default_rng(0)

    def weights(queries, keys):
        return random.dirichlet(np.ones(keys), (2, 2, queries))

    return attention_maps.plot_sentence(
        "two birds sing",
        "zwei Vögel",
        ["▁two", "▁birds", "▁sing", "</s>"],
        ["▁zwei", "▁Vögel", "</s>"],
        AttentionWeights(
            encoder=weights(4, 4), decoder=weights(3, 3), cross=weights(3, 4)
        ),
    )


def test_sentence_has_every_layer_and_the_papers_figures(sentence):
    assert [len(layers) for layers in sentence.layers.values()] == [2, 2, 2]
    assert [figure.title for figure in sentence.figures] == [
        "Over a long distance",
        "Back to an earlier word",
        "Structure of the sentence",
        "Alignment",
    ]
    assert all(figure.drawings for figure in sentence.figures)


def test_written_files_are_complete_documents(sentence, tmp_path):
    count = attention_maps.write(tmp_path / "new", [sentence, sentence])
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert len(names) == count
    assert names[0] == "1-alignment-1.svg"
    assert "2-decoder-self-attention-layer-2.png" in names
    for path in (tmp_path / "new").glob("*.svg"):
        text = path.read_text("utf-8")
        ElementTree.fromstring(text)
        # Addresses are allowed as names of XML namespaces, not as sources.
        assert not re.search(r"(href|src)=['\"]https?://|url\(http", text)


@pytest.mark.parametrize(
    ("names", "folders"),
    [
        (["any name"], [""]),
        (
            ["base_1", "base-1", "big"],
            ["base-1-run-1", "base-1-run-2", "big"],
        ),
    ],
)
def test_folder_names_of_runs_are_distinct(names, folders):
    assert attention_maps.folder_names(names) == folders
