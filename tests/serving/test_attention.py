"""The signature "attention": pieces, and the weights between them."""

import numpy as np
import pytest

TEXTS = ["two birds sing", "", "birds", "🐶 \0 the cat sat on the mat"]


@pytest.fixture(scope="module")
def outputs(local):
    return local("attention", inputs=TEXTS)


def test_attention_outputs_equal_default_signature(local, outputs):
    expected = local("serving_default", inputs=TEXTS)
    assert outputs["outputs"].tolist() == expected["outputs"].tolist()
    assert outputs["truncated"].tolist() == expected["truncated"].tolist()


@pytest.mark.parametrize("side", ["source", "target"])
def test_pieces_spell_text_and_eos(outputs, side):
    lengths = outputs[f"{side}_lengths"]
    for pieces, length, text in zip(
        outputs[f"{side}_pieces"], lengths, TEXTS, strict=True
    ):
        pieces = [piece.decode() for piece in pieces]
        assert not any(pieces[length:])
        if length:
            assert pieces[length - 1] == "</s>"
        if side == "source" and text.isascii():
            spelt = "".join(pieces[: length - 1]).replace("▁", " ").strip()
            assert spelt == text
    assert lengths[1] == (1 if side == "source" else 0)  # "" is EOS alone


def test_weights_are_distributions_over_source(outputs):
    weights = outputs["weights"]
    sizes = (outputs["target_lengths"], outputs["source_lengths"])
    assert weights.shape == (4, 1, *(max(size) for size in sizes))
    for row, length, source_length in zip(weights, *sizes, strict=True):
        np.testing.assert_allclose(row[:, :length].sum(-1), 1, rtol=1e-5)
        assert not row[:, length:].any()
        assert not row[:, :, source_length:].any()


def test_mean_of_heads_is_the_attention(local, outputs):
    by_head = local("attention_heads", inputs=TEXTS)
    for name, value in outputs.items():
        if name != "weights":
            assert by_head[name].tolist() == value.tolist()
    heads = by_head["weights"]
    assert heads.shape[2] > 1
    assert not np.allclose(heads[:, :, 0], heads[:, :, 1])
    np.testing.assert_allclose(heads.mean(2), outputs["weights"], atol=1e-6)
