"""Small Transformers of CTranslate2 with random weights, for tests."""

import ctranslate2
import numpy as np

specs = ctranslate2.specs
TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "c", "d", "e", "\u2581f", "g"]
SIZE, HEADS, WIDTH = 16, 2, 24


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
