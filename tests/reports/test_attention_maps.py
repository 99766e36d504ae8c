"""The choice of heads for a report, and their drawings."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from t2t_repro.decoding.translation import AttentionTrace
from t2t_repro.models.seq2seq import AttentionWeights
from t2t_repro.reports import attention_maps

PIECES = ["▁the", "▁cat", "▁ate", "▁its", "▁fish", ".", "</s>"]
L = len(PIECES)


def at(*keys, weight=1.0):
    """Return [L, L]: query i gives `weight` to keys[i], the rest to EOS."""
    weights = np.zeros((L, L))
    weights[:, -1] = 1 - weight
    weights[np.arange(L), keys] += weight
    return weights


def offset(distance, weight=1.0):
    indices = np.arange(L) + distance
    return at(*indices.clip(0, L - 1), weight=weight)


EVEN = np.full((L, L), 1 / L)
END = at(*[L - 1] * L)


def encoder(*layers):
    return attention_maps.Attention(
        "Encoder self-attention",
        PIECES,
        PIECES,
        np.array(layers),
        {"previous": -1, "itself": 0, "next": 1},
    )


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (offset(0), "itself 100%"),
        (offset(-1), "previous 100%"),
        (offset(1, 0.75), "next 79%"),  # EOS is the next of the sixth
        (END, "marks, end 100%"),
        (at(5, 6, 5, 6, 5, 6, 5), "marks, end 100%"),
        (EVEN, "over 7.0 pieces"),
        ((at(*[1] * L) + at(*[3] * L)) / 2, "over 2.0 pieces"),
    ],
)
def test_pattern_names_position_of_majority_or_spread(weights, text):
    assert attention_maps.pattern(encoder([weights]), 0, 0) == text


def test_keys_of_decoder_are_shifted():
    """At the output of "b", the last key is the "a" before it."""
    weights = AttentionWeights(
        encoder=np.zeros((1, 1, 2, 2)),
        decoder=np.zeros((1, 1, 3, 3)),
        cross=np.zeros((1, 1, 3, 2)),
    )
    source, target = ["x", "</s>"], ["a", "b", "</s>"]
    kinds = attention_maps.attentions(source, target, weights)
    assert kinds["decoder"].queries == kinds["cross"].queries == target
    assert kinds["decoder"].keys == ["<s>", "a", "b"]
    assert kinds["cross"].keys == source
    for kind in kinds.values():
        shape = (len(kind.queries), len(kind.keys))
        assert kind.weights.shape[2:] == shape


def test_punctuation_and_special_pieces_are_no_words():
    pieces = ["▁cat", "s", "42", ".", "▁", "</s>", "<0xE2>", "<"]
    assert [*filter(attention_maps.is_word, pieces)] == ["▁cat", "s", "42"]


def test_long_distance_selects_layer_with_distant_attention():
    far = at(0, 0, 0, 0, 0, 0, 0)
    layers = [offset(-1), END], [EVEN, far]
    found = attention_maps.long_distance(encoder(*layers))
    # "fish", the last word, attends to the first, 4 pieces away.
    assert (found.layer, found.heads, found.queries) == (1, [0, 1], [4])


def test_back_reference_is_found_with_its_two_heads():
    pronoun = EVEN.copy()
    pronoun[3] = np.eye(L)[1] * 0.9 + np.eye(L)[6] * 0.1  # its -> cat
    found = attention_maps.back_reference(
        encoder([EVEN, EVEN, EVEN], [EVEN, pronoun, (pronoun + EVEN) / 2])
    )
    assert (found.layer, found.heads, found.queries) == (1, [1, 2], [3])


def test_back_reference_needs_both_heads():
    single, two = EVEN.copy(), EVEN.copy()
    single[4] = np.eye(L)[0]
    two[3] = np.eye(L)[1] * 0.6 + np.eye(L)[6] * 0.4
    found = attention_maps.back_reference(encoder([single, EVEN], [two, two]))
    assert (found.layer, found.queries) == (1, [3])


def test_structure_selects_sharp_heads_that_differ():
    like_first = (9 * offset(-1) + EVEN) / 10
    heads = [EVEN, offset(-1), like_first, offset(1, 0.8)]
    found = attention_maps.structure(encoder(heads, [offset(0)] * 4))
    assert [(one.layer, one.heads) for one in found] == [(0, [1]), (0, [3])]
    assert all(one.queries is None for one in found)


def cross(*layers):
    return attention_maps.Attention(
        "Encoder-decoder attention",
        ["▁die", "▁Katze", "</s>"],
        ["▁the", "▁cat", "</s>"],
        np.array(layers),
        {},
    )


def test_alignment_selects_head_that_covers_every_word():
    one_word = np.array([[0, 1, 0], [0, 1, 0], [0, 1, 0]])
    in_turn = np.array([[0.9, 0.1, 0], [0.2, 0.8, 0], [0, 0, 1]])
    even = np.full((3, 3), 1 / 3)
    layers = [even, one_word], [one_word, in_turn]
    found = attention_maps.alignment(cross(*layers))
    assert (found.layer, found.heads) == (1, [1])


def test_sentence_without_words_has_no_selection():
    empty = attention_maps.Attention(
        "", ["</s>"], ["</s>"], np.ones((1, 1, 1, 1)), {}
    )
    assert attention_maps.alignment(empty) is None
    assert attention_maps.long_distance(empty) is None
    assert attention_maps.back_reference(empty) is None
    assert attention_maps.structure(empty) == []


def test_matrix_has_a_square_for_each_visible_weight():
    weights = np.array([[0.7, 0.3, 0], [0.01, 0.19, 0.8], [0, 0.5, 0.5]])
    drawing = attention_maps.draw_matrix(
        cross([np.eye(3)], [weights]),
        attention_maps.HeadChoice("", "", layer=1, heads=[0], queries=None),
    )
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(drawing.svg)
    _, *squares = root.iter(f"{svg}rect")
    opacities = [float(square.get("fill-opacity")) for square in squares]
    assert opacities == weights[weights >= attention_maps.FAINTEST].tolist()
    texts = [text.text.strip() for text in root.iter(f"{svg}text")]
    assert texts == ["the", "cat", "</s>", "die", "Katze", "</s>"]


@pytest.fixture(scope="module")
def sentence():
    """Return plots of random weights: two layers, two heads, 4 and 3 pieces."""
    random = np.random.default_rng(0)

    def weights(queries, keys):
        return random.dirichlet(np.ones(keys), (2, 2, queries))

    trace = AttentionTrace(
        "two birds sing",
        "zwei Vögel",
        ["▁two", "▁birds", "▁sing", "</s>"],
        ["▁zwei", "▁Vögel", "</s>"],
        AttentionWeights(
            encoder=weights(4, 4), decoder=weights(3, 3), cross=weights(3, 4)
        ),
    )
    return attention_maps.plot_sentence(trace)


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
    attention_maps.write(tmp_path / "new", [sentence] * 3)
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


def test_folder_names_of_runs_are_distinct():
    assert attention_maps.folder_names(["any name"]) == [""]
    names = attention_maps.folder_names(["base_1", "base-1", "big"])
    assert names == ["base-1-run-1", "base-1-run-2", "big"]
    assert len({*attention_maps.folder_names(["a 1", "a-1", "a-1-run-1"])}) == 3
