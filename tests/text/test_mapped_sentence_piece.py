"""SentencePiece models with another program's ids, in Python and in a graph."""

import pytest
import sentence_pieces
import sentencepiece
import vocabulary_graphs

from t2t_repro import errors
from t2t_repro.serving import graph_vocabularies
from t2t_repro.text import sentence_piece
from t2t_repro.text.sentence_piece import Bpe, MappedSentencePiece
from t2t_repro.text.vocabulary import SpecialTokens

TEXT = ["the cat sat on the mat", "two birds sing", "a dog ran in the park"] * 9
SPECIAL = SpecialTokens("</s>", "<unk>", "<pad>")
LINES = [
    "the dog sat",
    "  two   birds ",
    "",
    "Ω the € cat",
    "zz cat z",
    "z zж zΩ Ωжz cazzt Ωж",
    # MarianTokenizer reads a code at the beginning of a line, and nowhere else.
    ">>fr<< the cat",
    ">>fr<<the cat",
    ">>fr<<",
    " >>fr<< the cat",
    "the >>fr<< cat",
    ">>de<< the cat",
    ">>fr<< >>fr<< the cat<<",
    ">>the cat",
]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def model(request):
    """A model as of other programs: special ids of its own, no bytes."""
    return sentence_pieces.learn(TEXT, model_type=request.param, vocab_size=40)


@pytest.fixture(scope="module")
def tokens(model):
    """A list in another order, without some pieces and with others."""
    some = sentence_pieces.pieces(model)[:2:-2]  # those of text
    unread = ["zz", "z", "ж", "Ωж"]
    return ["</s>", *unread, *some, "<unk>", ">>fr<<", "Katze", "<pad>"]


@pytest.fixture(scope="module")
def mapped(model, tokens):
    return sentence_piece.map_ids(model, tokens, SPECIAL)


@pytest.fixture(scope="module")
def vocabulary(mapped):
    return MappedSentencePiece(mapped.model)


def test_special_ids_and_order(mapped, vocabulary, tokens):
    assert vocabulary.size == len(tokens) == len(mapped.order)
    assert mapped.order[:2] == [len(tokens) - 1, 0]
    assert sorted(mapped.order) == list(range(len(tokens)))
    names = [tokens[i] for i in mapped.order]
    assert vocabulary.pieces(range(vocabulary.size)) == names
    assert vocabulary.unknown == names.index("<unk>")


def test_ids_are_those_of_pieces_in_the_list(model, tokens, mapped, vocabulary):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = {token: i for i, token in enumerate(tokens)}
    for line, row in zip(LINES, vocabulary.encode(LINES), strict=True):
        has_code = line.startswith((">>fr<<", ">>de<<"))
        code, text = [line[:6]] * has_code, line[6 * has_code :]
        pieces = processor.Encode(text, out_type=str)
        expected = [ids.get(piece, ids["<unk>"]) for piece in code + pieces]
        assert [mapped.order[i] for i in row] == [*expected, ids["</s>"]]


def test_known_code_is_a_tag(vocabulary):
    assert vocabulary.tags == {">>fr<<"} and len(vocabulary.tag_ids) == 1
    assert vocabulary.split_tag(">>fr<<the cat") == (">>fr<<", "the cat")
    assert vocabulary.split_tag(">>de<< cat") == ("", ">>de<< cat")


def test_list_without_codes_reads_them_if_its_program_does(model, tokens):
    tokens = [token for token in tokens if token != ">>fr<<"]
    rows = []
    for reads_codes in (True, False):
        mapped = sentence_piece.map_ids(model, tokens, SPECIAL, reads_codes)
        vocabulary = MappedSentencePiece(mapped.model)
        rows += vocabulary.encode([">>fr<< the cat", "the cat"])
    assert rows[0] == [vocabulary.unknown, *rows[1]]
    assert len(rows[2]) > len(rows[3]) + 1


def test_graph_equals_python(vocabulary):
    graph = graph_vocabularies.MappedPieceGraph(vocabulary)
    vocabulary_graphs.assert_same_ids(vocabulary, graph, LINES)
    every = [[i] for i in range(vocabulary.size)]
    vocabulary_graphs.assert_same_text(vocabulary, graph, every)


def test_outputs_may_have_tokens_that_the_model_lacks(vocabulary):
    ids = {
        piece: i
        for i, piece in enumerate(vocabulary.pieces(range(vocabulary.size)))
    }
    assert vocabulary.decode([[ids["Katze"], ids["zz"]]]) == ["Katzezz"]


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(50)])
def test_file_that_is_no_model_is_refused(tokens, content):
    with pytest.raises(errors.UserError, match="not a SentencePiece model"):
        sentence_piece.map_ids(content, tokens, SPECIAL)


def test_character_that_bytes_spell_is_refused():
    model = Bpe.learn(TEXT, 290).model
    tokens = sentence_pieces.pieces(model)
    sentence_piece.map_ids(model, tokens, SPECIAL)
    with pytest.raises(errors.UserError, match="by bytes: z ж"):
        sentence_piece.map_ids(model, [*tokens, "z", "ж"], SPECIAL)
