"""All families of Hugging Face, against transformers; settings and weights.

tests/golden/golden_transformers.py wrote what the models give.
"""

import errno
import json
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
import vocabulary_graphs
from imported_models import GOLDEN, build, forward, write_huggingface

from t2t_repro import errors
from t2t_repro.data.corpus import Encoder
from t2t_repro.decoding import score, search
from t2t_repro.decoding.translate import BatchTranslator
from t2t_repro.importing import (
    arrays,
    huggingface,
    imported,
    run_writer,
    weights,
)
from t2t_repro.layers.embedding import SinesThenCosines
from t2t_repro.runs.run import Run
from t2t_repro.serving import graph_vocabularies
from t2t_repro.serving.served_model import ServedModel
from t2t_repro.text import sentence_piece
from t2t_repro.text.languages import tag_of
from t2t_repro.text.vocabulary import EOS

OPUS_MT = GOLDEN / "huggingface"
EVERY = 7  # logit that the writers store
# {family: direction of translation}; "": the model has one.
FAMILIES = {
    "huggingface": "",
    "bart": "",
    "fsmt": "",
    "mbart50": "en_XX-de_DE",
    "m2m_100": "en-de",
    "nllb": "eng_Latn-deu_Latn",
    "t5": "",
    "madlad": "de",
    "pegasus": "",
}
MULTILINGUAL = "mbart50", "m2m_100", "nllb"
WITH_GRAPH = [name for name in FAMILIES if name != "fsmt"]
SLOW = "m2m_100", "nllb", "madlad", "pegasus"


def families(*names, slow=SLOW):
    return [
        pytest.param(name, marks=[pytest.mark.slow] * (name in slow))
        for name in names
    ]


class Family(NamedTuple):
    name: str
    run: Run
    orders: Any  # their id of each of ours, on both sides
    expected: Any

    @property
    def source(self):
        return self.run.vocabularies.source

    @property
    def leads(self):
        """Whether a source begins with the first token of the output."""
        return self.source.leads_outputs

    @property
    def lines(self):
        """Lines with their tags; those of MADLAD have them."""
        lines = self.expected["lines"]
        if self.name in MULTILINGUAL:
            return [f"{tag_of(FAMILIES[self.name])} {line}" for line in lines]
        return lines

    @property
    def sources(self):
        return self.source.encode(self.lines)

    def theirs(self, rows, side=0):
        return [[self.orders[side][i] for i in row] for row in rows]

    def ours(self, row, side=0):
        return np.argsort(self.orders[side])[row].tolist()


@pytest.fixture(scope="module", params=families(*FAMILIES))
def family(request, tmp_path_factory):
    golden = GOLDEN / request.param
    folder = tmp_path_factory.mktemp(request.param) / "run"
    matrices, seen = imported.matrices, []

    def remember(orders, *arguments):
        seen.append(orders)
        return matrices(orders, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imported, "matrices", remember)
        found = huggingface.read(golden)
    run_writer.write(found, "huggingface", folder, imported.languages_of(found))
    return Family(
        request.param,
        Run.open(folder),
        *seen,
        json.loads((golden / "expected.json").read_text("utf-8")),
    )


@pytest.fixture(scope="module")
def model(family):
    (model,) = family.run.models()
    return model


def test_tokens_equal_those_of_transformers(family):
    rows = [row[family.leads :] for row in family.sources]
    assert family.theirs(rows) == family.expected["inputs"]
    if "targets" in family.expected:
        rows = family.run.vocabularies.target.encode(family.expected["lines"])
        assert family.theirs(rows, 1) == family.expected["targets"]
    assert family.source.encode([]) == []


@pytest.mark.parametrize("family", families("bart", "fsmt"), indirect=True)
def test_texts_equal_those_of_transformers(family):
    rows = [family.ours(row, 1) for row in family.expected["beam"]]
    found = family.run.vocabularies.target.decode(rows)
    theirs = [text.replace("\n", " ") for text in family.expected["texts"]]
    assert found == theirs


@pytest.mark.parametrize("family", families(*WITH_GRAPH), indirect=True)
def test_graph_has_the_same_tokens_and_texts(family):
    tag = tag_of(FAMILIES[family.name])
    tagged = [tag, f" {tag}\t", "<x2y> z"]
    graph, _ = graph_vocabularies.build(family.run.vocabularies)
    lines = [*family.expected["lines"], *family.lines, *tagged, ""]
    rows = [row[:-1] for row in family.source.encode(lines)]
    assert graph.encode(tf.constant(lines)).to_list() == rows
    if family.name == "bart":
        rows += [[i] for i in range(2, family.source.size)]
        vocabulary_graphs.assert_same_text(family.source, graph, rows)


def test_logits_equal_those_of_transformers(model, family):
    expected, every = family.expected, EVERY
    logits, sources = [expected["logits"]], expected["inputs"]
    targets = sources[1:]
    if "targets" in expected:  # of several pairs, all logits
        logits, every = expected["logits"], 1
        targets = expected["targets"][len(logits) :]
    size = len(family.orders[1])
    columns = np.argsort(family.orders[1])[::every]
    for source, target, theirs in zip(sources, targets, logits, strict=False):
        target = family.ours([i % size for i in target], 1)
        if family.name in MULTILINGUAL:
            target[0] = family.sources[0][0]  # the language
        found = forward(model, family.ours(source), target)[:, columns]
        count = min(len(found), len(theirs))
        np.testing.assert_allclose(found[:count], theirs[:count], atol=1e-4)


@pytest.mark.parametrize(
    "family",
    families(*FAMILIES, slow=(*SLOW, "t5", "bart", "mbart50")),
    indirect=True,
)
@pytest.mark.parametrize(
    ("name", "beams"),
    [pytest.param("greedy", 1, marks=pytest.mark.slow), ("beam", 4)],
)
def test_outputs_equal_those_of_generate(family, model, name, beams):
    """Of a batch of sentences whose searches end at different steps."""
    extra_length = 12 if family.name == "huggingface" else 8
    hparams = family.run.search.override(
        {"beam_size": beams, "extra_length": extra_length}
    )
    translator = BatchTranslator([model], family.run.vocabularies, hparams)
    found = search.search(
        [model], score.pad_rows(family.sources), hparams, rule=translator._rule
    )
    rows = [[i for i in row if i] for row in found.ids[:, 0].numpy()]
    assert family.theirs(rows, 1) == family.expected[name]


@pytest.mark.slow
@pytest.mark.parametrize("family", families(*WITH_GRAPH), indirect=True)
def test_export_has_the_outputs_of_the_decoder(family, model):
    lines = family.expected["lines"][:3]
    run = family.run
    if language := FAMILIES[family.name]:
        run = run.toward(language)
        lines = [line.removeprefix("<2de> ") for line in lines]
    tagged = [*map(run.problem.normalizers[0], lines)]
    assert tagged == family.lines[:3]
    settings = run.vocabularies, run.search.override({"extra_length": 2})
    translator = BatchTranslator([model], *settings)
    decoded = [*translator.translate(tagged)]
    scored = translator.score(zip(tagged, lines, strict=True))
    served = ServedModel([model], *settings, "float32")
    served.tag = run.problem.tag
    texts = tf.constant([*lines, ""])
    found = served.translate(texts)
    outputs = [text.decode() for text in found["outputs"].numpy()]
    assert outputs == [*(each.text for each in decoded), ""]
    np.testing.assert_allclose(
        found["scores"][:3], [each.scores[0] for each in decoded], rtol=1e-4
    )
    np.testing.assert_allclose(
        served.score(texts, texts)["scores"][:3],
        [each.total for each in scored],
        rtol=1e-4,
    )
    if family.leads:
        trace, found = translator.attention(tagged[0]), served.attention(texts)
        pieces = [piece.decode() for piece in found["source_pieces"][0].numpy()]
        assert [*filter(None, pieces)] == trace.source
        _, _, *size = trace.weights.cross.shape
        found = found["weights"].numpy()[0, :, : size[0], : size[1]]
        expected = trace.weights.cross.mean(1)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("family", families(*MULTILINGUAL), indirect=True)
def test_languages_that_are_missing_or_unknown_are_refused(family):
    near = {"m2m_100": "zhh", "nllb": "deu_Latin", "mbart50": "de_D"}
    near, message = near[family.name], "Did you mean (zh|deu_Latn|de_DE)"
    with pytest.raises(errors.UserError, match=message):
        family.run.problem.toward(near)
    with pytest.raises(errors.UserError, match="of the target .* got ''"):
        family.run.problem.normalizers[0]("Two dogs.")


def test_targets_of_training_begin_with_what_leads_outputs(family):
    """The language that the tag of the source names, or <s> of BART."""
    tag = family.lines[0].removesuffix(family.expected["lines"][0])
    pair = f"{tag}Two dogs", "play"
    pairs = Encoder(family.run.vocabularies, None).encode([pair, ("", "")])
    found = [pairs.ids[name].to_pylist() for name in ("inputs", "targets")]
    (source, *_), (target, *_) = (
        side.encode([text])
        for side, text in zip(family.run.vocabularies, pair, strict=True)
    )
    lead, source = source[: family.leads], source[family.leads :]
    assert found == [[source, [EOS]], [lead + target, [EOS]]]


def test_newer_files_of_mbart50_have_the_same_tokens(tmp_path):
    found = huggingface.read(GOLDEN / "mbart50").vocabularies
    content = (GOLDEN / "mbart50" / "sentencepiece.bpe.model").read_bytes()
    pieces = sentence_piece.piece_names(content)[3:]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces, *found.codes, "<mask>"]
    stored = {
        "model": {"vocab": [[token, 0.0] for token in tokens[:-1]]},
        "added_tokens": [{"id": len(tokens) - 1, "content": "<mask>"}],
    }
    forced = {"forced_bos_token_id": tokens.index("de_DE")}
    files = {"tokenizer.json": stored, "generation_config.json": forced}
    newer = write_huggingface(tmp_path, files=files, golden="mbart50")()
    newer = newer.vocabularies
    assert newer.pair.source.model == found.pair.source.model
    assert newer.languages == ("en_XX", "de_DE")


def test_output_of_bart_may_begin_with_any_token(tmp_path):
    files = {"generation_config.json": {"forced_bos_token_id": None}}
    found = write_huggingface(tmp_path, files=files, golden="bart")()
    assert found.vocabularies.pair.is_shared
    assert not found.vocabularies.pair.source.leads_outputs
    (row,) = found.vocabularies.pair.source.encode(["x"])
    assert found.vocabularies.pair.source.pieces(row) == ["<s>", "x", "</s>"]
    older = {"forced_bos_token_id": None}
    older["force_bos_token_to_be_generated"] = True
    files = {"generation_config.json": None}
    found = write_huggingface(tmp_path, older, files=files, golden="bart")()
    assert found.vocabularies.pair.source.leads_outputs


def test_arrays_of_the_bare_model_are_read(tmp_path):
    """They have no prefix, and numbers of versions, as bart-large's."""
    read = write_huggingface(tmp_path, golden="bart")
    expected, file = read(), tmp_path / "model.safetensors"
    bare = {
        name.removeprefix("model."): array
        for name, array in safetensors.numpy.load_file(file).items()
        if name.startswith("model.")
    }
    bare["encoder.version"] = np.ones(1, np.float32)
    safetensors.numpy.save_file(bare, file)
    found = read()
    assert expected.weights.keys() - found.weights.keys() == {"softmax/bias"}
    for path, array in found.weights.items():
        np.testing.assert_array_equal(array, expected.weights[path])


def test_newer_files_of_bart_have_the_same_tokens(tmp_path):
    golden = GOLDEN / "bart"
    ids = json.loads((golden / "vocab.json").read_text("utf-8"))
    lines = (golden / "merges.txt").read_text("utf-8").split("\n")[1:-1]
    stored = {
        "model": {"vocab": ids, "merges": lines, "type": "BPE"},
        "added_tokens": [{"id": ids["<mask>"], "content": "<mask>"}],
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "use_regex": True,
        },
    }
    files = {"tokenizer.json": stored, "vocab.json": None, "merges.txt": None}
    newer = write_huggingface(tmp_path, files=files, golden="bart")()
    older = huggingface.read(golden)
    assert newer.vocabularies.pair.sha256 == older.vocabularies.pair.sha256


@pytest.mark.parametrize("name", ["embed_tokens", "output_projection"])
def test_softmax_of_older_fsmt_has_either_name(tmp_path, name):
    arrays = {f"model.decoder.{name}.weight": None}
    read = write_huggingface(tmp_path, arrays=arrays, golden="fsmt")
    found = read().hparams
    assert found["shared_targets_embedding_and_softmax_weights"]


def test_decoder_may_be_wider_than_the_encoder(tmp_path):
    """Three units of FSMT's that do nothing; its first id has a default."""
    stored = safetensors.numpy.load_file(GOLDEN / "fsmt" / "model.safetensors")
    arrays = {}
    for part, axis in ("fc1.weight", 0), ("fc1.bias", 0), ("fc2.weight", 1):
        array = stored[name := f"model.decoder.layers.0.{part}"]
        arrays[name] = np.append(array, 0 * array.take([0] * 3, axis), axis)
    settings = {"decoder_ffn_dim": 27, "decoder_start_token_id": None}
    found = write_huggingface(tmp_path, settings, arrays, golden="fsmt")()
    models = huggingface.read(GOLDEN / "fsmt"), found
    plain, wider = (forward(build(m), [5, 6, 1], [7, 1]) for m in models)
    np.testing.assert_allclose(wider, plain, atol=1e-5)
    assert found.hparams["decoder_filter_size"] == 27


SHARED = "model.shared.weight"


@pytest.mark.parametrize(
    ("stored", "shortest"),
    [
        ({"min_length": 5}, 5),  # EOS is the fifth at least
        ({"min_new_tokens": 5}, 6),  # five before EOS
        ({"min_length": 7, "min_new_tokens": 5, "bad_words_ids": [[42]]}, 6),
        ({"min_length": 7, "min_new_tokens": 0}, 0),
        ({"do_sample": False, "suppress_tokens": []}, 0),
        (None, 9),  # of config.json, which is not read otherwise
    ],
)
def test_shortest_output_is_of_generation_config(tmp_path, stored, shortest):
    files = {"generation_config.json": stored}
    found = write_huggingface(tmp_path, {"min_length": 9}, files=files)()
    assert found.search["min_length"] == shortest


@pytest.mark.parametrize(
    ("stored", "has_none"),
    [
        ({"bad_words_ids": [[42]], "renormalize_logits": True}, True),
        ({"bad_words_ids": [[42]]}, False),
        ({"renormalize_logits": True}, False),
    ],
)
def test_pad_has_no_probability_where_generate_gives_it_none(
    tmp_path, stored, has_none
):
    files = {"generation_config.json": stored}
    found = write_huggingface(tmp_path, files=files)()
    biases = huggingface.read(OPUS_MT).weights["softmax/bias"]
    biases[0] = imported.PAD_BIAS if has_none else biases[0]
    np.testing.assert_array_equal(found.weights["softmax/bias"], biases)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"source_lang": "en", "target_lang": "zh-Hans"}, "and 'zh-Hans'"),
        ({}, "files name '' and ''. Say --languages=en-de"),
    ],
)
def test_languages_that_are_no_extensions_are_named(tmp_path, stored, message):
    files = {"tokenizer_config.json": stored}
    found = write_huggingface(tmp_path, files=files)()
    with pytest.raises(errors.UserError, match=message) as error:
        imported.languages_of(found)
    assert "Say --languages=en-de." in str(error.value)


def shard(folder, changes=()):
    """Divide the weights into two files with an index; None removes a name."""
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = {}
    for number in (1, 2):
        part = f"model-0000{number}-of-00002.safetensors"
        names = sorted(arrays)[number - 1 :: 2]
        index |= dict.fromkeys(names, part)
        safetensors.numpy.save_file(
            {name: arrays[name] for name in names}, folder / part
        )
    index = {k: v for k, v in (index | dict(changes)).items() if v}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": index}))


def test_weights_in_several_files_are_read_by_their_index(tmp_path):
    read = write_huggingface(tmp_path)
    whole = read()
    shard(tmp_path)
    found = read()
    np.testing.assert_array_equal(
        found.weights["softmax/weight"], whole.weights["softmax/weight"]
    )
    names = {file.name for file in found.files}
    assert "model.safetensors.index.json" in names
    assert "model-00002-of-00002.safetensors" in names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({SHARED: None}, f"arrays are not .* {SHARED}"),
        ({"extra": "model-00001-of-00002.safetensors"}, "are not .* extra"),
        ({SHARED: "../model.safetensors"}, "is not the name of a file"),
        ({SHARED: "no.safetensors"}, "has no no"),
    ],
)
def test_index_of_other_arrays_is_refused(tmp_path, changes, message):
    read = write_huggingface(tmp_path)
    shard(tmp_path, changes)
    with pytest.raises(errors.UserError, match=message):
        read()


HEAD = "lm_head.weight"
SIDES = [f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")]


@pytest.fixture(scope="module")
def matrix():
    return safetensors.numpy.load_file(OPUS_MT / "model.safetensors")[SHARED]


def test_matrices_of_their_own_are_used_and_the_unused_one_is_named(
    matrix, tmp_path
):
    arrays = {
        name: (matrix + number + 1).tolist()
        for number, name in enumerate([*SIDES, HEAD])
    }
    settings = {"tie_word_embeddings": False}
    found = write_huggingface(tmp_path, settings, arrays)()
    assert found.left_over == (SHARED,)
    inputs, targets, softmax = (
        found.weights[f"{name}/weight"]
        for name in ("inputs_embedding", "targets_embedding", "softmax")
    )
    for array, base in ((targets, inputs), (softmax, targets)):
        np.testing.assert_allclose(array - base, 1, atol=1e-5)


def test_stored_positions_may_be_the_formula(tmp_path):
    zeros, numbers = np.zeros((1, 64, 16)), np.arange(64)[None]
    table = np.asarray(SinesThenCosines()(zeros, numbers))[0].tolist()
    arrays = {"model.encoder.embed_positions.weight": table}
    found = write_huggingface(tmp_path, arrays=arrays)()
    assert found.hparams["pos"] == "sines_then_cosines"


def test_start_that_is_not_zero_is_learned(matrix, tmp_path):
    arrays = {SHARED: [*matrix[:-1].tolist(), [1.0] * 16]}
    found = write_huggingface(tmp_path, arrays=arrays)()
    assert found.hparams["learned_start"]
    np.testing.assert_array_equal(found.weights["start"], np.ones(16))


@pytest.mark.parametrize(
    ("card", "license"),
    [
        ("---\nlicense: apache-2.0\ntags: [a]\n---\n# Model", "apache-2.0"),
        ("---\nlanguage: en\nlicense: 'mit' \n---\n", "mit"),
        ("---\nlanguage: en\n---\nlicense: mit\n", ""),
        ("---\nlicense: [a, b]\n---\n", ""),
        ("---\nlicense: unknown\n---\n", ""),
    ],
)
def test_licence_is_that_of_the_card_of_the_hub(tmp_path, card, license):
    folder, files = tmp_path / "model", {"README.md": card}
    found = write_huggingface(folder, files=files)()
    origin = run_writer.origin_of(found, "huggingface")
    assert (origin["name"], origin["license"]) == ("model", license)
    assert "model.safetensors" in origin["sha256"]


def test_run_has_a_folder_of_its_own(tmp_path, monkeypatch):
    found = huggingface.read(OPUS_MT)

    def write(folder):
        run_writer.write(found, "huggingface", folder, "en-de")

    def fail(*_):
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(run_writer.run_json, "start", fail)
    with pytest.raises(OSError, match="full"):
        write(tmp_path / "new")
    assert not (tmp_path / "new").exists()  # the importer can run again
    mine = tmp_path / "other" / "mine"
    mine.parent.mkdir()
    # Another importer writes while this one builds the model.
    monkeypatch.setattr(run_writer, "compare", lambda *_: mine.touch())
    for _ in range(2):
        with pytest.raises(errors.UserError, match="is not empty"):
            write(mine.parent)
        assert mine.exists()
    with pytest.raises(errors.UserError, match="has a colon"):
        run_writer._problem(
            huggingface.read(GOLDEN / "fsmt"), tmp_path / "a:b", "en-de"
        )


def test_hparams_that_do_not_fit_are_refused(tmp_path):
    found = huggingface.read(OPUS_MT)
    with pytest.raises(errors.UserError, match="decoder/layer_1.* missing"):
        run_writer.write(
            found,
            "huggingface",
            tmp_path / "run",
            "en-de",
            "num_decoder_layers=2",
        )
    assert not (tmp_path / "run").exists()


def test_variable_shares_the_memory_of_aligned_arrays_only():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    aligned = arrays.aligned_copy(array.T)
    shared, copied = map(arrays.variable, (aligned, array.T))
    np.testing.assert_array_equal(shared, copied)
    aligned[0, 1] = array[1, 0] = 7.0
    assert shared[0, 1].numpy() == 7.0
    assert copied[0, 1].numpy() == 3.0


def test_one_array_stays_one():
    tied = np.ones((3, 2), np.float32)
    found = imported.matrices([[2, -1], [2, -1]], tied, tied, tied)
    assert len(set(map(id, found.values()))) == 1
    other = imported.matrices([[2, -1], [2, 0]], tied, tied, tied.copy())
    assert len(set(map(id, other.values()))) == 3


@pytest.mark.parametrize("family", ["huggingface", "t5"])
def test_matrices_of_the_file_are_dropped_before_the_layers_are_read(
    family, monkeypatch
):
    """With them, a model of 0.6 billion weights needs 1 GB more."""
    taken, left = [], []
    take, read_stacks = arrays.Tensors.take, weights.read_stacks

    def remember(*arguments):
        found = take(*arguments)
        taken.append(weakref.ref(found))
        return found

    def count(*arguments):
        left.extend(ref for ref in taken if ref() is not None)
        return read_stacks(*arguments)

    monkeypatch.setattr(arrays.Tensors, "take", remember)
    monkeypatch.setattr(weights, "read_stacks", count)
    huggingface.read(GOLDEN / family)
    assert taken and not left
