"""What an export consists of, and that it needs nothing of ours to run."""

import collections
import math
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors, hparam, json_files
from t2t_repro.decoding import translate
from t2t_repro.serving import saved_model, served_model, warm_up

SECONDS = 300  # what takes longer hangs
SIGNATURES = ["attention", "n_best", "score", "serving_default"]
TEXT_OPERATIONS = {  # TF Text's, which TensorFlow Serving has in it
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
    "SentencepieceIdToStringOp",
    "SentencepieceDetokenizeOp",
}
HOSTILE = [b"", b"\xff\xfe a dog", "🐶".encode(), b"\0", b"x" * 1_000_000]
ALONE = """
import sys
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load(sys.argv[1])
found = model.signatures["serving_default"](inputs=tf.constant(sys.argv[2:]))
assert not {"t2t_repro", "sentencepiece"} & set(sys.modules)
sys.stdout.buffer.write(b"\\n".join(found["outputs"].numpy()))
"""


def test_operations_are_those_of_tensorflow_and_tf_text(exported):
    found = set(saved_model.operations(saved_model.read_graph(exported / "2")))
    card = json_files.read(exported / "2" / saved_model.MODEL_CARD)
    assert card["operations"] == sorted(found)
    assert "StatefulPartitionedCall" in found
    assert any("While" in name for name in found)  # functions, too
    assert found - set(dir(tf.raw_ops)) == TEXT_OPERATIONS
    assert not {name for name in found if "PyFunc" in name}
    # TF Serving has no compiler for GPUs, and does not use the one for CPUs.
    assert not {name for name in found if "Xla" in name}


def test_outputs_are_lines(vocabulary, vocabularies):
    """As the decoder's are, even where a model spells line ends in bytes."""
    served = served_model.ServedModel(
        [], vocabularies, hparam.DecodeHParams(), "float32"
    )
    spelled = range(vocabulary.size)
    names = [f"<0x{byte:02X}>" for byte in (9, 10, 13, 0)]
    marks = [vocabulary.pieces(spelled).index(name) for name in names]
    rows = [[*marks, 290, 1], [290, marks[1], 1, 0, 0]]
    texts = served._decode(tf.ragged.constant(rows).to_tensor())
    expected = vocabulary.decode(rows)
    assert [text.decode() for text in texts.numpy()] == expected
    assert "   \0" in expected[0] and "\n" not in expected[1]


def test_it_runs_where_there_is_nothing_of_ours(exported, local, tmp_path):
    texts = ["two birds sing", "", "the cat"]
    result = subprocess.run(
        [sys.executable, "-c", ALONE, exported / "2", *texts],
        cwd=tmp_path,
        capture_output=True,
        timeout=SECONDS,
    )
    assert result.returncode == 0, result.stderr
    expected = local("serving_default", inputs=texts)["outputs"]
    assert result.stdout.split(b"\n") == expected.tolist()


@pytest.mark.parametrize("signature", SIGNATURES)
def test_any_bytes_get_a_row_in_every_output(local, signature):
    inputs = {"inputs": HOSTILE}
    if signature == "score":
        inputs["targets"] = HOSTILE[::-1]
    for name, array in local(signature, **inputs).items():
        assert len(array) == len(HOSTILE), name
    cut = local("serving_default", inputs=HOSTILE)["truncated"]
    assert cut.tolist() == [False, False, False, False, True]


def test_warm_up_requests_ask_every_signature(exported, local):
    requests = list(warm_up.read(exported / "2"))
    assert [one.model_spec.signature_name for one in requests] == SIGNATURES
    for request in requests:
        inputs = {
            name: tf.make_ndarray(tensor)
            for name, tensor in request.inputs.items()
        }
        found = local(request.model_spec.signature_name, **inputs)
        assert not found["truncated"].any()
        short, long = (len(text) for text in inputs["inputs"])
        assert 0 < short < long


def test_every_weight_is_stored_in_16_bits(exported, parts):
    (model,), *_ = parts(1)
    card = json_files.read(exported / "2" / saved_model.MODEL_CARD)
    assert card["weights_dtype"] == "bfloat16"
    path = exported / "2" / "variables" / "variables"
    stored = tf.train.load_checkpoint(str(path))
    numbers = collections.Counter()
    for name, dtype in stored.get_variable_to_dtype_map().items():
        shape = stored.get_variable_to_shape_map()[name]
        numbers[dtype] += math.prod(shape)
    assert numbers[tf.bfloat16] == model.count_params()
    assert not numbers[tf.float32]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_compute_as_rounded_weights_in_float32(parts, local, dtype):
    (model,), vocabularies, search = parts(1)
    lines = ["two birds sing", "", "a dog ran in the park today", "🐶"]
    if dtype == "bfloat16":  # as they are exported
        found = local("serving_default", inputs=lines)
    else:
        served = served_model.ServedModel([model], vocabularies, search, dtype)
        found = served.translate(tf.constant(lines))
    for weight in model.weights:
        weight.assign(tf.cast(tf.cast(weight.value, dtype), tf.float32))
    translator = translate.Translator([model], vocabularies, search)
    expected = list(translator.translate(lines))
    assert [text.decode() for text in np.array(found["outputs"])] == [
        one.texts[0] for one in expected
    ]
    np.testing.assert_allclose(
        found["scores"], [one.scores[0] for one in expected], rtol=1e-5
    )


def test_a_weight_beyond_float16(parts, tmp_path):
    (model,), vocabularies, search = parts(2)
    weight = model.weights[0]
    weight.assign(weight + 1e5)
    with pytest.raises(
        errors.UserError, match=f"float16 cannot hold {weight.path}.*1e\\+05"
    ):
        saved_model.export(
            [model], vocabularies, search, tmp_path, {}, "float16"
        )
    assert not any(tmp_path.iterdir())
