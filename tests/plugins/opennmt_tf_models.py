"""Small models of OpenNMT-tf, as its trainer writes them."""

import numpy as np
from numpy_layers import Reference, gelu_tanh, relu, timing
from tensor2tensor_models import save

SIZE, WIDTH = 8, 12
TABLE = 5  # rows of learned positions, the first of which is never used
END = "/.ATTRIBUTES/VARIABLE_VALUE"
FIRST = ["<blank>", "<s>", "</s>"]
SOURCE = [*FIRST, "the", "cat", "sat", "<unk>"]
TARGET = [*FIRST, "a", "dog", "."]
ROWS = len(SOURCE) + 1, len(TARGET) + 1
DESCRIPTION = """import opennmt as onmt
model = lambda: onmt.models.Transformer(
    onmt.inputters.WordEmbedder(8), num_heads=2, num_units=8, {}
)
"""


class Model(Reference):
    """Reference of a model of two layers and one."""

    final_norm, epsilon = "{}/layer_norm", 1e-3

    def __init__(
        self,
        arrays=None,
        rows=(0, 0),
        pre_norm=True,
        bias=True,
        learned=False,
        kernel=True,
        one_embedding=False,
        gelu=False,
    ):
        """Store `rows`, the numbers of ids of both sides, and what differs.

        `learned` is of positions, `kernel` of a softmax with its own matrix,
        and `bias` of attention and softmax.
        """
        super().__init__(pre_norm, gelu_tanh if gelu else relu, arrays)
        self.rows, self.bias, self.learned = rows, bias, learned
        self.kernel, self.one_embedding = kernel, one_embedding

    def get(self, name, *shape, mean=0.0):
        return super().get(f"model/{name}{END}", *shape, mean=mean)

    def dense(self, path, inputs, outputs):
        kernel = self.get(f"{path}/kernel", inputs, outputs)
        if not self.bias and "/ffn/" not in path:
            return kernel, None
        return kernel, self.get(f"{path}/bias", outputs)

    def norm(self, path):
        gain = self.get(f"{path}/gamma", SIZE, mean=1)
        return gain, self.get(f"{path}/beta", SIZE)

    def numbers(self, side):
        return range(2 if side == "encoder" else 1)

    def names(self, side, i, kind):
        word = {"self": "self_attention", "cross": "attention/0", "ffn": "ffn"}
        at = f"{side}/layers/{i}/{word[kind]}"
        norm = f"{at}/{'input' if self.pre_norm else 'output'}_layer_norm"
        if kind == "ffn":
            return [f"{at}/layer/inner", f"{at}/layer/outer"], norm
        words = ("queries", "keys", "values", "output")
        return [f"{at}/layer/linear_{one}" for one in words], norm

    def embedding(self, side):
        is_source = side == "encoder" or self.one_embedding
        name = "features" if is_source else "labels"
        rows = self.rows[not is_source]
        return self.get(
            f"examples_inputter/{name}_inputter/embedding", rows, SIZE
        )

    def embed(self, side, ids):
        ids = [1, *ids] if side == "decoder" else ids
        x = self.embedding(side)[ids] * SIZE**0.5
        if not self.learned:
            return x + timing(len(x), SIZE, first=1)
        name = f"{side}/position_encoder/position_embedding"
        table = self.get(name, TABLE, SIZE)
        return x + table[np.minimum(np.arange(len(x)) + 1, TABLE - 1)]

    def softmax(self, y):
        scope, rows = "decoder/output_layer", self.rows[1]
        kernel = self.embedding("decoder").T
        if self.kernel:
            kernel = self.get(f"{scope}/kernel", SIZE, rows)
        return y @ kernel + (
            self.get(f"{scope}/bias", rows) if self.bias else 0
        )


def arrays(rows=ROWS, **structure):
    """Return random arrays by OpenNMT-tf's names, as Model has them."""
    return Model(None, rows, **structure).drawn()


def write(folder, tensors, source=SOURCE, target=TARGET, data="", more=""):
    """Write the files of a model, whose description has `more` arguments."""
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
