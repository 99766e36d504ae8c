"""The attention signature: pieces, and weights that belong to them."""

import numpy as np
import pytest

TEXTS = ["two birds sing", "", "birds", "🐶 \0 the cat sat on the mat"]


@pytest.fixture(scope="module")
def found(local):
    return local("attention", inputs=TEXTS)


def test_outputs_are_those_of_the_default_signature(local, found):
    expected = local("serving_default", inputs=TEXTS)
    assert found["outputs"].tolist() == expected["outputs"].tolist()
    assert found["truncated"].tolist() == expected["truncated"].tolist()


@pytest.mark.parametrize("side", ["source", "target"])
def test_pieces_spell_the_text_and_end(found, side):
    lengths = found[f"{side}_lengths"]
    for pieces, length, text in zip(
        found[f"{side}_pieces"], lengths, TEXTS, strict=True
    ):
        pieces = [piece.decode() for piece in pieces]
        assert not any(pieces[length:])
        if length:
            assert pieces[length - 1] == "</s>"
        if side == "source" and text.isascii():
            spelt = "".join(pieces[: length - 1]).replace("▁", " ").strip()
            assert spelt == text
    assert lengths[1] == (1 if side == "source" else 0)  # "" is EOS alone


def test_weights_are_distributions_over_the_source(found):
    weights = found["weights"]
    sizes = (found["target_lengths"], found["source_lengths"])
    assert weights.shape == (4, 1, *(max(size) for size in sizes))
    for row, length, source_length in zip(weights, *sizes, strict=True):
        np.testing.assert_allclose(row[:, :length].sum(-1), 1, rtol=1e-5)
        assert not row[:, length:].any()
        assert not row[:, :, source_length:].any()


def test_weights_do_not_depend_on_the_batch(local, found):
    for i, text in enumerate(TEXTS):
        alone = local("attention", inputs=[text])["weights"][0]
        _, targets, sources = alone.shape
        np.testing.assert_allclose(
            found["weights"][i][:, :targets, :sources], alone, atol=1e-5
        )


def test_it_goes_through_a_server(server, found):
    body = {"signature_name": "attention", "instances": TEXTS}
    status, answer = server.predict(body)
    assert status == 200
    for row, weights in zip(
        answer["predictions"], found["weights"], strict=True
    ):
        np.testing.assert_allclose(row["weights"], weights, atol=1e-5)
