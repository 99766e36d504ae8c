"""Small Transformers of CTranslate2 with random weights, for tests."""

import ctranslate2
import numpy as np
from imported_models import log_probs

from t2t_repro.text.vocabulary import EOS, PAD

specs = ctranslate2.specs
TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "c", "d", "e", "\u2581f", "g"]
SIZE, HEADS, WIDTH = 16, 2, 24
MAX_OUTPUT = 20  # tokens


def draw(spec, seed):
    """Set every weight of a specification that is not set."""
    random = np.random.default_rng(seed)

    def array(*shape, deviation=0.4):
        return random.normal(0, deviation, shape).astype(np.float32)

    def norm(layer):
        layer.gamma = 1 + array(SIZE)
        if hasattr(layer, "beta"):  # absent from RMS normalization
            layer.beta = array(SIZE)

    def dense(layer, outputs, inputs):
        layer.weight = array(outputs, inputs)
        layer.bias = array(outputs, deviation=0.1)

    for side in (spec.encoder, spec.decoder):
        embeddings = side.embeddings
        if isinstance(embeddings, list):
            (embeddings,) = embeddings
        embeddings.weight = array(len(TOKENS), SIZE)
        for name in ("layer_norm", "layernorm_embedding"):
            if hasattr(side, name):
                norm(getattr(side, name))
        for layer in side.layer:
            for name in ("self_attention", "attention"):
                attention = getattr(layer, name, None)
                if attention is None:
                    continue
                norm(attention.layer_norm)
                *inputs, output = attention.linear
                counts = [3] if name == "self_attention" else [1, 2]
                for linear, count in zip(inputs, counts, strict=True):
                    dense(linear, count * SIZE, SIZE)
                dense(output, SIZE, SIZE)
                if hasattr(attention, "relative_position_keys"):
                    for kind in ("keys", "values"):
                        table = array(5, SIZE // HEADS)
                        setattr(attention, f"relative_position_{kind}", table)
            norm(layer.ffn.layer_norm)
            dense(layer.ffn.linear_0, WIDTH, SIZE)
            dense(layer.ffn.linear_1, SIZE, WIDTH)
            if hasattr(layer.ffn, "linear_0_noact"):
                dense(layer.ffn.linear_0_noact, WIDTH, SIZE)
    dense(spec.decoder.projection, len(TOKENS), SIZE)


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

    Args:
        folder: the model for CTranslate2.
        model: ours.
        pair: vocabularies of both.
        lines: sources.
        targets: lines to score, one for each source.
        source_end: tokens that a caller of CTranslate2 appends.
        atol: by which log-probabilities may differ.
        **settings: of translate_batch().
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
