"""Small models of OpenNMT-tf, as its trainer writes them."""

import numpy as np
from numpy_layers import Layers, gelu_tanh, relu, timing
from tensor2tensor_models import save

SIZE, WIDTH, HEADS = 8, 12, 2
TABLE = 5  # rows of learned positions, the first of which is never used
END = "/.ATTRIBUTES/VARIABLE_VALUE"
FIRST = ["<blank>", "<s>", "</s>"]
SOURCE = [*FIRST, "the", "cat", "sat", "<unk>"]
TARGET = [*FIRST, "a", "dog", "."]
DESCRIPTION = """import opennmt as onmt
model = lambda: onmt.models.Transformer(
    onmt.inputters.WordEmbedder(8), num_heads=2, num_units=8, {}
)
"""


def arrays(
    rows,
    pre_norm=True,
    bias=True,
    learned=False,
    kernel=True,
    one_embedding=False,
):
    """Return random arrays by OpenNMT-tf's names.

    Args:
        rows: numbers of ids of source and target.
        pre_norm: whether norms come before sublayers.
        bias: whether attention and softmax have biases.
        learned: whether positions are learned.
        kernel: whether the softmax has a matrix of its own.
        one_embedding: whether source and target share theirs.
    """
    rng, found = np.random.default_rng(3), {}

    def put(name, *shape):
        value = rng.normal(size=shape).astype(np.float32) / 2
        found[f"model/{name}{END}"] = value

    def dense(name, inputs, outputs, use_bias=True):
        put(f"{name}/kernel", inputs, outputs)
        if use_bias:
            put(f"{name}/bias", outputs)

    def norm(name):
        put(f"{name}/gamma", SIZE)
        put(f"{name}/beta", SIZE)

    def sublayer_norm(path):
        norm(f"{path}/{'input' if pre_norm else 'output'}_layer_norm")

    for side, count, names in (
        ("encoder", 2, ["self_attention"]),
        ("decoder", 1, ["self_attention", "attention/0"]),
    ):
        for i in range(count):
            at = f"{side}/layers/{i}"
            for name in names:
                for kind in ("queries", "keys", "values", "output"):
                    path = f"{at}/{name}/layer/linear_{kind}"
                    dense(path, SIZE, SIZE, bias)
                sublayer_norm(f"{at}/{name}")
            dense(f"{at}/ffn/layer/inner", SIZE, WIDTH)
            dense(f"{at}/ffn/layer/outer", WIDTH, SIZE)
            sublayer_norm(f"{at}/ffn")
        if pre_norm:
            norm(f"{side}/layer_norm")
        if learned:
            put(f"{side}/position_encoder/position_embedding", TABLE, SIZE)
    put("examples_inputter/features_inputter/embedding", rows[0], SIZE)
    if not one_embedding:
        put("examples_inputter/labels_inputter/embedding", rows[1], SIZE)
    if kernel:
        put("decoder/output_layer/kernel", SIZE, rows[1])
    if bias:
        put("decoder/output_layer/bias", rows[1])
    return found


def write(folder, tensors, source=SOURCE, target=TARGET, data="", more=""):
    """Write the files of a model.

    Args:
        folder: where.
        tensors: arrays by name.
        source: tokens of the source.
        target: tokens of the target.
        data: more lines of the settings of the data.
        more: more arguments of the model.
    """
    folder.mkdir(exist_ok=True)
    for name, tokens in (("src", source), ("tgt", target)):
        text = "".join(f"{token}\n" for token in tokens)
        (folder / f"{name}.vocab").write_text(text, "utf-8")
    (folder / "data.yml").write_text(
        "params: {beam_width: 5, length_penalty: 0.6}\ndata:\n"
        "  source_vocabulary: elsewhere/src.vocab\n"
        f"  target_vocabulary: tgt.vocab\n{data}"
    )
    (folder / "model_description.py").write_text(DESCRIPTION.format(more))
    save(folder / "ckpt-9", tensors)


def logits(tensors, inputs, targets, gelu=False):
    """Compute logits [T, V] of OpenNMT-tf's ids by its formulas."""

    def get(name):
        found = tensors.get(f"model/{name}{END}")
        return None if found is None else found.astype(float)

    pre_norm = get("encoder/layer_norm/gamma") is not None
    layers = Layers(HEADS, 1e-3, pre_norm, gelu_tanh if gelu else relu)

    def dense(name):
        return get(f"{name}/kernel"), get(f"{name}/bias")

    def norm(name):
        return get(f"{name}/gamma"), get(f"{name}/beta")

    def sublayer_norm(path):
        return norm(f"{path}/{'input' if pre_norm else 'output'}_layer_norm")

    def attention(path):
        kinds = "queries", "keys", "values", "output"
        return [dense(f"{path}/layer/linear_{kind}") for kind in kinds]

    def positions(side, length):
        table = get(f"{side}/position_encoder/position_embedding")
        if table is None:
            return timing(length, SIZE, first=1)
        return table[np.minimum(np.arange(length) + 1, TABLE - 1)]

    def ffn(x, at):
        pair = [dense(f"{at}/ffn/layer/{name}") for name in ("inner", "outer")]
        return layers.feed_forward(x, pair, sublayer_norm(f"{at}/ffn"))

    source = get("examples_inputter/features_inputter/embedding")
    target = get("examples_inputter/labels_inputter/embedding")
    target = source if target is None else target
    x = source[inputs] * SIZE**0.5 + positions("encoder", len(inputs))
    y = target[[1, *targets[:-1]]] * SIZE**0.5
    y = y + positions("decoder", len(targets))
    for i in range(2):
        at = f"encoder/layers/{i}"
        path = f"{at}/self_attention"
        x = layers.self_attention(x, attention(path), sublayer_norm(path))
        x = ffn(x, at)
    x = layers.norm(x, norm("encoder/layer_norm")) if pre_norm else x
    at = "decoder/layers/0"
    path = f"{at}/self_attention"
    y = layers.self_attention(y, attention(path), sublayer_norm(path), True)
    path = f"{at}/attention/0"
    y = layers.cross_attention(y, x, attention(path), sublayer_norm(path))
    y = ffn(y, at)
    y = layers.norm(y, norm("decoder/layer_norm")) if pre_norm else y
    kernel, bias = dense("decoder/output_layer")
    kernel = target.T if kernel is None else kernel
    return y @ kernel + (0 if bias is None else bias)
