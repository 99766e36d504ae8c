"""The format of model.bin, and folders of CTranslate2 that are refused."""

import json
import struct

import numpy as np
import pytest

from t2t_repro import errors
from t2t_repro.importing import ctranslate2_files
from t2t_repro.importing.ctranslate2 import read

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="the extra ctranslate2 is not installed"
)
from ctranslate2_specs import TOKENS, build, save  # noqa: E402


def refused(folder, message):
    """Assert that a folder is refused with a message."""
    with pytest.raises(errors.UserError, match=message):
        read(folder)


def test_decoder_only_model_is_named(tmp_path):
    write(tmp_path / "model.bin", spec="TransformerDecoderSpec")
    refused(tmp_path, "specification in .* got 'TransformerDecoderSpec'")


def test_later_revision_is_named(tmp_path):
    write(tmp_path / "model.bin", revision=8)
    refused(tmp_path, "revision of its specification .* at most 7; got 8")


def test_text_vocabulary_is_read_as_ctranslate2_does(tmp_path):
    folder = save(build(), tmp_path / "model")
    vocabulary = folder / "shared_vocabulary.json"
    tokens = json.loads(vocabulary.read_text())
    vocabulary.unlink()
    text = folder / "shared_vocabulary.txt"
    text.write_bytes("".join(f"{token}\r\n" for token in tokens).encode())
    found = read(folder)
    assert set(tokens) < set(found.vocabularies.source.pieces(range(11)))
    # The unknown token comes last if the file lacks it.
    text.write_text("\n".join(tokens[1:]))
    found = read(folder)
    assert found.vocabularies.source.pieces([found.vocabularies.source.unknown])


def test_awq_is_refused(tmp_path):
    folder = save(build(), tmp_path / "model")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"quantization_type": 1}))
    refused(folder, "quantization_type in .* must be absent; got 1")
    path.write_text(json.dumps(config | {"quantization_type": 0}))
    assert read(folder)


def test_files_of_both_sides_are_named(tmp_path):
    folder = save(build(), tmp_path / "model")
    shared = folder / "shared_vocabulary.json"
    shared.rename(folder / "target_vocabulary.json")
    source = folder / "source_vocabulary.json"
    source.write_text(json.dumps([*TOKENS[:-1], TOKENS[3]]))
    refused(folder, "Cannot use .*source_vocabulary.json")
    source.write_text(json.dumps(TOKENS))
    assert [file.name for file in read(folder).files] == [
        *("model.bin", "config.json"),
        *("source_vocabulary.json", "target_vocabulary.json"),
    ]


def write(file, version=6, spec="TransformerSpec", revision=7, variables=()):
    """Write a model.bin of variables (name, shape, type, bytes of values)."""

    def text(value):
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    parts = [struct.pack("<I", version)]
    if version > 1:
        parts += [text(spec), struct.pack("<I", revision)]
    parts.append(struct.pack("<I", len(variables)))
    for name, shape, kind, values in variables:
        size = len(values) if version > 3 else len(values) // kind
        parts += [text(name), struct.pack("<B", len(shape))]
        parts += [struct.pack("<I", n) for n in shape]
        parts += [struct.pack("<BI", kind, size), values]
    if version > 2:
        parts.append(struct.pack("<I", 0))
    file.write_bytes(b"".join(parts))


def test_variables_of_all_types_are_read(tmp_path):
    rows = np.array([[1.5, -2.0], [0.25, 3.0]], np.float32)
    bfloat16 = (rows.view(np.uint32) >> 16).astype(np.uint16)
    scale = np.array([2, 4], np.float32)
    variables = [
        ("a/weight", (2, 2), 0, rows.tobytes()),
        ("b/weight", (2, 2), 4, rows.astype(np.float16).tobytes()),
        ("c/weight", (2, 2), 5, bfloat16.tobytes()),
        ("d/weight", (2, 2), 1, np.int8([[2, 4], [6, 8]]).tobytes()),
        ("d/weight_scale", (2,), 0, scale.tobytes()),
        ("e/weight", (2, 2), 2, np.int16([[500, 4], [6, 8]]).tobytes()),
        ("eos_token", (4,), 1, b"</s>"),
        ("heads", (), 2, np.int16(8).tobytes()),
        ("flag", (), 1, b"\1"),
        ("scale", (), 0, np.float32(0.5).tobytes()),
    ]
    write(tmp_path / "model.bin", version=5, variables=variables)
    found = ctranslate2_files.read_model(tmp_path / "model.bin")
    for name in "abc":
        np.testing.assert_array_equal(
            found.tensors.take(f"{name}/weight"), rows
        )
    np.testing.assert_array_equal(
        found.tensors.take("d/weight"), [[1, 2], [1.5, 2]]
    )
    np.testing.assert_allclose(
        found.tensors.take("e/weight"), [[0.5, 0.004], [0.006, 0.008]]
    )
    take = found.attributes.take
    assert take("eos_token", "") == "</s>" and take("heads", 1) == 8
    assert take(("other", "flag"), False) is True and take("no", 3) == 3
    assert take("scale", None) == 0.5
    found.tensors.refuse_rest()
    found.attributes.refuse_rest()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_old_versions_are_read(tmp_path, version):
    name = "transformer/decoder/layer_0/masked_multi_head/conv1d_1/kernel:0"
    values = np.arange(4, dtype=np.float32)
    write(
        tmp_path / "model.bin",
        version=version,
        revision=1,
        variables=[(name, (2, 2), 4, values.tobytes())],
    )
    found = ctranslate2_files.read_model(tmp_path / "model.bin")
    path = "decoder/layer_0/self_attention/linear_1/weight"
    np.testing.assert_array_equal(found.tensors.take(path).ravel(), values)


BYTE = "a", (), 1, b"\1"


@pytest.mark.parametrize(
    ("version", "variables", "message"),
    [
        (7, [BYTE], "its version is 7"),
        (6, [("a", (1,) * 4, 0, b"1234")], "a has 4 dimensions"),
        (6, [("a", (1,), 9, b"1234")], "a has the unknown data type 9"),
        (3, [("a", (1,), 3, b"123")], "a has the unknown data type 3"),
        (6, [("a", (2,), 0, b"1234")], "a has 4 bytes and the shape"),
        (6, [("a", (4,), 1, b"1234")], "a has int8 and no scale"),
        (6, [("a", (1,), 3, b"1234")], "a has int32 and no scale"),
        (6, [BYTE, BYTE], "it has a twice"),
        (
            6,
            [("a", (2, 1), 1, b"12"), ("a_scale", (1,), 0, bytes(4))],
            r"a has 2 rows and scales \[1\]",
        ),
        (
            6,
            [("a", (2, 1), 1, b"12"), ("a_scale", (2,), 0, bytes(8))],
            "a scale of a is not above 0",
        ),
    ],
)
def test_damaged_file_is_refused(version, variables, message, tmp_path):
    write(tmp_path / "model.bin", version, variables=variables)
    with pytest.raises(
        errors.UserError, match=f"as a model of CTranslate2: {message}"
    ):
        ctranslate2_files.read_model(tmp_path / "model.bin")


def test_bytes_after_the_end_are_refused(tmp_path):
    file = tmp_path / "model.bin"
    write(file)
    file.write_bytes(file.read_bytes() + b"12")
    with pytest.raises(errors.UserError, match="2 bytes follow its end"):
        ctranslate2_files.read_model(file)


def test_attribute_has_one_value_of_its_type(tmp_path):
    variables = [BYTE, ("b", (), 1, b"\2"), ("heads", (), 0, b"\0\0\0@")]
    write(tmp_path / "model.bin", variables=variables)
    take = ctranslate2_files.read_model(tmp_path / "model.bin").attributes.take
    with pytest.raises(errors.UserError, match="a and b .* one meaning"):
        take(("a", "b"), 0)
    with pytest.raises(errors.UserError, match="heads in .*type int; got 2.0"):
        take("heads", 8)
