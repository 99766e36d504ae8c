"""A SavedModel that TF Serving loads as it is: text in, text out.

Signatures (strings in and out, so that nothing can pad ids in between):

    serving_default  inputs [B]          -> outputs, scores, truncated [B]
    n_best           inputs [B]          -> outputs, scores [B, W], truncated
    score            inputs, targets [B] -> scores, lengths, truncated [B]
    attention        inputs [B]          -> outputs, truncated [B],
        source_pieces [B, L], source_lengths [B], target_pieces [B, T],
        target_lengths [B], weights [B, layers, T, L]

The last one's pieces end in EOS and are padded with "", and its weights are
means over heads: every output has a row for each sentence, by which a server
that makes batches splits it. (TF Serving would refuse flat values then.)

It has stock TensorFlow and TF Text operations only, and no Python.

Weights may be stored in 16 bits, which halves the file and the memory that it
takes at rest. A call computes in float32 all the same, with the rounded
weights: few CPUs have a fast float16, and scores come out alike anywhere. They
are cast once a call, before the search, which costs what reading them does.

The model card has the sha256 of graph and weights, which `serve` and `query`
compare as they load. TF Serving does not read it.
"""

import dataclasses
import pathlib
import re

import keras
import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf import saved_model_pb2

from t2t_repro import errors, files, json_files
from t2t_repro.decoding import score, search
from t2t_repro.serving import warm_up
from t2t_repro.text.subwords import EOS, PAD

MODEL_CARD = pathlib.Path("assets.extra") / "model_card.json"
WEIGHTS_DTYPES = ("float32", "float16", "bfloat16")
_TEXT = tf.TensorSpec([None], tf.string)
_VERSION = re.compile("0|[1-9][0-9]{0,17}")  # name of its folder


class ServedModel(tf.Module):
    """Vocabulary, models and search in one graph."""

    def __init__(self, models, subwords, decode_hparams, weights_dtype):
        """Takes what translate.Translator takes, and one of WEIGHTS_DTYPES."""
        super().__init__("served_model")
        self.weights = [
            _rounded(weight, weights_dtype)
            for model in models
            for weight in model.weights
        ]
        # In closures, out of SavedModel's sight, which would export Keras's
        # own functions with them: the variables are all it needs.
        call = _with_weights(models, self.weights)
        self._find = lambda ids, return_beams: call(
            search.search,
            ids,
            dataclasses.replace(decode_hparams, return_beams=return_beams),
        )
        self._sum = lambda *pair: call(score.score, *pair)
        self._look = lambda *pair: call(score.mean_attention, *pair)
        self._beams = decode_hparams.beam_size
        self.tokenizer = tensorflow_text.SentencepieceTokenizer(subwords.model)
        self._most = decode_hparams.max_input_length - 1  # and EOS

    def _encode(self, text):
        """Strings [B] -> ids [B, L] with EOS, lengths and truncated [B]."""
        ids = self.tokenizer.tokenize(text)
        truncated = ids.row_lengths() > self._most
        ids = ids[:, : self._most]
        eos = tf.fill((ids.nrows(), 1), EOS)
        ids = tf.concat([ids, eos], 1)
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        return ids.to_tensor(PAD), lengths, truncated

    def _detokenize(self, ids):
        """Ids [N, T], up to the first EOS -> strings [N], each one line."""
        before_eos = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) == 0
        text_ids = tf.ragged.boolean_mask(ids, before_eos & (ids != PAD))
        text = self.tokenizer.detokenize(text_ids)
        return tf.strings.regex_replace(text, r"[\t\n\r]", " ")

    def _pieces(self, ids, lengths):
        """Ids [B, L] -> strings [B, L], as the vocabulary spells them."""
        pieces = self.tokenizer.id_to_string(ids)
        return tf.where(tf.sequence_mask(lengths, tf.shape(ids)[1]), pieces, "")

    def _search(self, inputs, return_beams):
        ids, lengths, truncated = self._encode(inputs)
        found = self._find(ids, return_beams)
        flat = tf.reshape(found.ids, (-1, tf.shape(found.ids)[-1]))
        # Fixed, the number of beams is in the signature, for all to see.
        shape = (-1, self._beams if return_beams else 1)
        texts = tf.reshape(self._detokenize(flat), shape)
        blank = (lengths == 1)[:, None]  # EOS alone
        return {
            "outputs": tf.where(blank, "", texts),
            "scores": tf.where(blank, 0.0, tf.reshape(found.scores, shape)),
            "truncated": truncated,
        }

    @tf.function(input_signature=[_TEXT])
    def n_best(self, inputs):
        """All beams, best first."""
        return self._search(inputs, return_beams=True)

    @tf.function(input_signature=[_TEXT])
    def translate(self, inputs):
        """The best beam."""
        found = self._search(inputs, return_beams=False)
        return found | {
            "outputs": found["outputs"][:, 0],
            "scores": found["scores"][:, 0],
        }

    @tf.function(input_signature=[_TEXT, _TEXT])
    def score(self, inputs, targets):
        """Sums of log-probabilities of given targets, and their lengths."""
        input_ids, _, input_cut = self._encode(inputs)
        target_ids, lengths, target_cut = self._encode(targets)
        return {
            "scores": self._sum(input_ids, target_ids),
            "lengths": lengths,
            "truncated": input_cut | target_cut,
        }

    @tf.function(input_signature=[_TEXT])
    def attention(self, inputs):
        """The best beam, and where each of its pieces looked."""
        ids, lengths, truncated = self._encode(inputs)
        blank = lengths == 1  # EOS alone
        best = self._find(ids, return_beams=False).ids[:, 0]
        longest = tf.reduce_max(
            tf.reduce_sum(tf.cast(best != PAD, tf.int32), 1)
        )
        target_ids = tf.where(blank[:, None], PAD, best[:, :longest])
        target_lengths = tf.reduce_sum(tf.cast(target_ids != PAD, tf.int32), 1)
        return {
            "outputs": self._detokenize(target_ids),
            "truncated": truncated,
            "source_pieces": self._pieces(ids, lengths),
            "source_lengths": lengths,
            "target_pieces": self._pieces(target_ids, target_lengths),
            "target_lengths": target_lengths,
            "weights": self._look(ids, target_ids),
        }


def _rounded(weight, dtype):
    """A variable of a Keras variable's value in `dtype`."""
    value = tf.cast(weight.value, dtype)
    if not tf.reduce_all(tf.math.is_finite(value)):
        raise errors.UserError(
            f"{dtype} cannot hold {weight.path}: its values go to "
            f"{tf.reduce_max(abs(weight.value)):.3g}, and {dtype}'s to "
            f"{value.dtype.max:.3g}. Say --weights_dtype=bfloat16 or float32."
        )
    return tf.Variable(value, trainable=False)


def _with_weights(models, stored):
    """A function that calls others, on models with the values of `stored`."""
    weights = [weight for model in models for weight in model.weights]

    def call(function, *arguments):
        values = [
            (weight, tf.cast(value, weight.dtype))
            for weight, value in zip(weights, stored, strict=True)
        ]
        with keras.StatelessScope(values):
            return function(models, *arguments)

    return call


def export(
    models, subwords, decode_hparams, export_dir, card, weights_dtype="float32"
) -> pathlib.Path:
    """Writes the next version of a SavedModel.

    TF Serving polls the folder, so a version is written under a name that is
    no number, and renamed.

    Args:
        models, subwords, decode_hparams: of translate.Translator.
        export_dir: gets a folder 1, or one more than the highest there.
        card: what the model card is to say, beside the operations.
        weights_dtype: that they are stored in, one of WEIGHTS_DTYPES.

    Returns:
        The version's folder.

    Raises:
        UserError: a weight is beyond `weights_dtype`.
    """
    served = ServedModel(models, subwords, decode_hparams, weights_dtype)
    export_dir = files.path(export_dir)
    export_dir.mkdir(parents=True, exist_ok=True)
    folder = export_dir / str(max(versions(export_dir), default=0) + 1)
    with files.making_folder(folder) as temporary:
        tf.saved_model.save(
            served,
            str(temporary),
            signatures={
                "serving_default": served.translate,
                "n_best": served.n_best,
                "score": served.score,
                "attention": served.attention,
            },
        )
        graph = read_graph(temporary)
        made = {
            "weights_dtype": weights_dtype,
            "operations": operations(graph),
            "files": _checksums(temporary),
        }
        (temporary / MODEL_CARD).parent.mkdir()
        json_files.write(temporary / MODEL_CARD, card | made, sealed=True)
        warm_up.write(temporary, graph.signature_def, subwords)
    return folder


def _checksums(folder):
    """{path: sha256} of a version's files; not of those in assets.extra.

    The card has a seal, and the records of warm-up requests have checksums.
    """
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {
        name: files.sha256(path)
        for name, path in sorted(
            (path.relative_to(folder).as_posix(), path) for path in paths
        )
        if not name.startswith(MODEL_CARD.parts[0])
    }


def verified_card(folder: pathlib.Path) -> dict:
    """The model card of a version, whose files are as it says.

    {} where there is none: the SavedModel is another program's.

    Raises:
        UserError: names the file that is damaged.
    """
    path = folder / MODEL_CARD
    if not path.exists():
        return {}
    card = json_files.read(path)
    wanted, found = card.get("files", {}), _checksums(folder)
    for name in wanted:
        if found.get(name) != wanted[name]:
            raise errors.UserError(
                f"{folder / name} is damaged: sha256 is "
                f"{found.get(name, 'no file')} instead of {wanted[name]}. "
                "Export the model again."
            )
    return card


def read_graph(folder: pathlib.Path):
    """The MetaGraphDef of a version's folder."""
    saved = saved_model_pb2.SavedModel.FromString(
        (folder / "saved_model.pb").read_bytes()
    )
    (graph,) = saved.meta_graphs
    return graph


def operations(graph) -> list[str]:
    """Names of all operations of a MetaGraphDef, its functions' among them."""
    functions = graph.graph_def.library.function
    nodes = [graph.graph_def.node, *(one.node_def for one in functions)]
    return sorted({node.op for some in nodes for node in some})


def newest(export_dir: pathlib.Path) -> int:
    """The newest version in an export folder.

    Raises:
        UserError: there is none.
    """
    found = versions(export_dir) if export_dir.is_dir() else []
    if not found:
        raise errors.UserError(
            f"There is no exported model in {export_dir}. Make one with the "
            "exporter, or name the right --export_dir."
        )
    return found[-1]


def versions(export_dir: pathlib.Path) -> list[int]:
    """Versions in an export folder, in rising order."""
    return sorted(
        int(path.name)
        for path in export_dir.iterdir()
        if _VERSION.fullmatch(path.name)
    )
