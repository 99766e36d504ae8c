"""Small Transformers of CTranslate2 with random weights, for tests."""

import numpy as np
import pytest
from imported_models import log_probs

from t2t_repro.text.vocabulary import EOS, PAD

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="the extra ctranslate2 is not installed"
)
specs = ctranslate2.specs
TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "c", "d", "e", "\u2581f", "g"]
SIZE, HEADS, WIDTH = 16, 2, 24
MAX_OUTPUT = 20  # tokens
# By the end of a path; the other matrices have [SIZE, SIZE].
SHAPES = {
    "gamma": [SIZE],
    "beta": [SIZE],
    "relative_position_keys": [5, SIZE // HEADS],
    "relative_position_values": [5, SIZE // HEADS],
    "embeddings_0/weight": [len(TOKENS), SIZE],
    "embeddings/weight": [len(TOKENS), SIZE],
    "projection/weight": [len(TOKENS), SIZE],
    "self_attention/linear_0/weight": [3 * SIZE, SIZE],
    "/attention/linear_1/weight": [2 * SIZE, SIZE],
    "ffn/linear_0/weight": [WIDTH, SIZE],
    "ffn/linear_0_noact/weight": [WIDTH, SIZE],
    "ffn/linear_1/weight": [SIZE, WIDTH],
}


def draw(spec, seed):
    """Set the weights of a specification that it needs, and all biases."""
    random = np.random.default_rng(seed)

    def draw_weight(layer, path, value):
        if value is not None:
            return
        shapes = (SHAPES[end] for end in SHAPES if path.endswith(end))
        shape = next(shapes, [SIZE, SIZE])
        array = random.normal(path.endswith("gamma"), 0.4, shape)
        setattr(layer, path.rpartition("/")[2], array.astype(np.float32))
        if hasattr(layer, "bias"):
            layer.bias = random.normal(0, 0.1, shape[0]).astype(np.float32)

    specs.model_spec.visit_spec(spec, draw_weight)


def build(
    change=lambda spec: None, seed=1, layers=(1, 2), sides=({}, {}), **settings
):
    """Return a specification of random weights, as `change` makes it.

    `sides` has settings of the encoder alone, and of the decoder.
    """
    settings = {"pre_norm": False} | settings
    spec = specs.TransformerSpec.from_config(layers, HEADS, **settings)
    if any(sides):
        settings |= {"num_layers": layers, "num_heads": HEADS}
        spec = specs.TransformerSpec(
            specs.TransformerEncoderSpec(**settings | sides[0]),
            specs.TransformerDecoderSpec(**settings | sides[1]),
        )
    draw(spec, seed)
    spec.register_source_vocabulary(TOKENS)
    spec.register_target_vocabulary(TOKENS)
    change(spec)
    return spec


def save(spec, folder, quantization=None):
    """Write the folder of a specification."""
    folder.mkdir(exist_ok=True)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    return folder


def assert_same_outputs(
    folder, model, pair, lines, targets, source_end=(), atol=2e-4, **settings
):
    """Compare log-probabilities and greedy outputs with CTranslate2's.

    `source_end` has tokens that a caller of CTranslate2 appends, and `settings`
    are those of translate_batch().
    """
    source, target = pair
    theirs = ctranslate2.Translator(
        str(folder), compute_type="float32", intra_threads=1
    )
    ids, chosen = source.encode(lines), target.encode(targets)
    inputs = [[*source.pieces(row[:-1]), *source_end] for row in ids]
    outputs = [target.pieces(row[:-1]) for row in chosen]
    scored = theirs.score_batch(inputs, outputs)
    for row, target_row, result in zip(ids, chosen, scored, strict=True):
        _, ours = log_probs(model, row, target_row)
        np.testing.assert_allclose(result.log_probs, ours, atol=atol)
    translated = theirs.translate_batch(
        inputs, beam_size=1, max_decoding_length=MAX_OUTPUT, **settings
    )
    pieces = target.pieces(range(target.size))
    for row, result in zip(ids, translated, strict=True):
        found = [*map(pieces.index, result.hypotheses[0]), EOS]
        ours, _ = log_probs(model, row, found)
        ours[:, PAD] = -np.inf
        ours[0, EOS] = -np.inf  # CTranslate2's outputs are not empty
        # The best id after each prefix; the longest are cut without EOS.
        assert ours.argmax(-1).tolist()[:MAX_OUTPUT] == found[:MAX_OUTPUT]
