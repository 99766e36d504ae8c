"""Requests with prefixes, settings of the search and subwords."""

import concurrent.futures
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from exported_models import predict_request, refusal, stub_of
from forked import error, ok

import t2t_repro
from t2t_repro import errors
from t2t_repro.decoding import translate, translation
from t2t_repro.serving import client, saved_model, served_model

LINES = ["two birds sing", "", "a dog ran in the park", "🐶"]
PREFIXES = ["ZWEI", "DIE", "", "QUAKT DIE"]


@pytest.fixture(scope="module", params=["grpc", "rest"])
def remote(server, request):
    return t2t_repro.load(server.url(request.param))


def assert_same(found, expected):
    assert [each.texts for each in found] == [each.texts for each in expected]
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(each.scores, other.scores, rtol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 2, "alpha": 1.5},
        pytest.param({"beam_size": 4}, marks=pytest.mark.slow),
        pytest.param({"beam_size": 1, "alpha": 0.0}, marks=pytest.mark.slow),
    ],
)
def test_request_is_translated_as_by_a_search_with_its_settings(
    build_exportable, loaded, settings
):
    """Also with prefixes: the export has the weights in bfloat16."""
    models, vocabularies, search = build_exportable(1)
    for weight in models[0].weights:
        weight.assign(tf.cast(tf.cast(weight.value, "bfloat16"), tf.float32))
    search = dataclasses.replace(search, **settings, return_beams=True)
    translator = translate.BatchTranslator(models, vocabularies, search)
    beams = settings["beam_size"]
    for prefixes in (None, PREFIXES):
        found = loaded.translate(LINES, beams, prefixes=prefixes, **settings)
        starts = prefixes or [""] * len(LINES)
        expected = list(translator.translate(LINES, prefixes=starts))
        expected[1] = translation.Translation([""] * beams, [0.0] * beams)
        assert_same(found, expected)
    assert all(
        text.startswith(prefix)
        for prefix, each in zip(PREFIXES, found, strict=True)
        for text in each.texts
        if any(each.texts)
    )


def test_export_is_as_ever_without_request_settings(exported, build_exportable):
    model = served_model.ServedModel(*build_exportable(1), "bfloat16")
    plain = set(model.signatures())
    assert plain == {"serving_default", "n_best", "score", "attention"}
    definitions = saved_model.read_graph(exported / "2").signature_def
    assert not any(definitions[name].defaults for name in plain)
    for name in ("translate", "subwords"):
        assert sorted(definitions[name].defaults) == [
            "alpha",
            "beam_size",
            "n_best",
            "prefixes",
        ]


def test_servers_answer_requests_like_a_loaded_export(remote, loaded):
    requests = [
        {"beam_size": 4, "n_best": 3},
        {"n_best": 3},
        {"alpha": 0.0, "prefixes": PREFIXES},
        {"subwords": True},
        {"beam_size": np.int64(1)},
        {"n_best": 2, "distinct": True, "beam_size": 3},
        {},
    ]
    # At the same time, so that a batch has several settings.
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        answers = pool.map(
            lambda request: remote.translate(iter(LINES), **request), requests
        )
    for request, answer in zip(requests, answers, strict=True):
        assert_same(answer, loaded.translate(LINES, **request))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"beam_size": 5}, r"beam_size\[0\] must be from 1 to 4.* got 5"),
        ({"beam_size": -1}, r"beam_size\[0\] must be from 1 to 4.* got -1"),
        ({"alpha": 11.0}, r"alpha\[0\] must be from 0 to 10.* got 11"),
        ({"n_best": 4}, r"n_best\[0\] must be at most beam_size, 3; got 4"),
        ({"beam_size": 2.0}, "beam_size must be an integer of 32 bits; got 2."),
        ({"beam_size": 2**31}, "beam_size must be an integer of 32 bits; got"),
        ({"alpha": "1"}, "alpha must be a number of 32 bits; got '1'"),
        ({"min_length": 3}, "may name beam_size and alpha; got min_length"),
        ({"prefixes": []}, "needs one prefix; got 0 for 1 sources"),
    ],
)
def test_what_an_export_refuses_is_an_error(loaded, remote, request_, message):
    request = request_ | {"alpha": request_.get("alpha", 1.0)}
    for model in (loaded, remote):
        with pytest.raises(errors.UserError, match=message):
            model.translate(["a dog"], **request)


def test_graph_itself_refuses_numbers_out_of_bounds(local):
    """As TensorFlow Serving does, which does not read the card."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 4"):
        local(
            "translate",
            inputs=["a"],
            prefixes=[""],
            beam_size=[5],
            n_best=[1],
            alpha=[-1.0],
        )


@pytest.mark.parametrize("row", [{}, {"beam_size": 1}])
def test_row_over_rest_may_omit_inputs(server, loaded, row):
    lines = ["two birds", "a dog"]
    rows = [{"inputs": line} | row for line in lines]
    body = {"signature_name": "translate", "instances": rows}
    status, answer = server.predict(body)
    assert status == 200
    found = [each["outputs"][0] for each in answer["predictions"]]
    assert found == [each.text for each in loaded.translate(lines, **row)]


def test_request_over_grpc_may_omit_inputs(channel, loaded):
    request = predict_request(("two birds", "a dog"), signature="translate")
    request.inputs["beam_size"].CopyFrom(tf.make_tensor_proto([1, 1], tf.int32))
    answer = stub_of(channel).Predict(request, timeout=60)
    texts = tf.make_ndarray(answer.outputs["outputs"])[:, 0]
    expected = loaded.translate(["two birds", "a dog"], beam_size=1)
    assert [t.decode() for t in texts] == [each.text for each in expected]
    for name, tensor, message in (
        ("beam_size", tf.make_tensor_proto([1, 1], tf.int64), "of integers"),
        ("alpha", tf.make_tensor_proto([[1.0]] * 2, tf.float32), "of numbers"),
        ("size", tf.make_tensor_proto([1, 1], tf.int32), "optional: alpha"),
    ):
        wrong = predict_request(("two birds", "a dog"), signature="translate")
        wrong.inputs[name].CopyFrom(tensor)
        found = refusal(stub_of(channel).Predict, wrong)
        assert found.startswith("INVALID_ARGUMENT") and message in found


@pytest.mark.slow
def test_query_prints_outputs_and_scores_of_words(exported, forked, loaded):
    lines, prefixes = ["two birds", "a dog"], ["ZWEI", ""]
    flags = [f"--export_dir={exported}", "--n_best=2", "--word_scores"]
    flags += ["--beam_size=2", "--alpha=0"]
    flags += [f"--inputs={line}" for line in lines]
    flags += [f"--prefixes={prefix}" for prefix in prefixes]
    printed = ok(forked("query", *flags)).splitlines()
    search = {"beam_size": 2, "alpha": 0, "prefixes": prefixes}
    found = loaded.translate(lines, 2, subwords=True, **search)
    for line, each in zip(printed, found, strict=True):
        texts, scores = line.split("\t")[::2], line.split("\t")[1::2]
        assert texts == each.texts
        for row, subwords in zip(scores, each.subwords, strict=True):
            words = [float(score) for score in row.split()]
            expected = subwords.word_log_probs
            np.testing.assert_allclose(words, expected, atol=1e-4)
    refused = error(forked("query", *flags[:-1]))
    assert "--prefixes must be given as often as --inputs" in refused


@pytest.mark.slow
def test_side_inputs_are_an_input_of_requests(
    build_exportable, embedded, say, tmp_path
):
    models, vocabularies, search = build_exportable(1)
    search = dataclasses.replace(search, rules="say:field=1")
    model = models, vocabularies, search, tmp_path
    with pytest.raises(errors.UserError, match="Say it, or omit the rule"):
        saved_model.export(*model, {})
    saved_model.export(*model, {}, max_beam_size=3)
    lines, side = ["two birds", "", "a dog"], ["DIE\tZWEI", "", "QUAKT DIE\tX"]
    loaded = client.ExportedModel(tmp_path)
    with embedded(tmp_path) as server:
        remote = t2t_repro.load(server.url("grpc"))
        for found in (loaded, remote):
            translations = found.translate(lines, side=side)
            assert [each.text for each in translations] == ["ZWEI", "", "X"]
            with pytest.raises(errors.UserError, match="side"):
                found.translate(lines, beam_size=2)
        status, answer = server.predict(
            {
                "signature_name": "translate",
                "instances": [{"inputs": "a dog", "side": "DIE\tZWEI"}],
            }
        )
        assert status == 200
        assert answer["predictions"][0]["outputs"][0] == "ZWEI"
    with pytest.raises(errors.UserError, match="rules read side inputs"):
        loaded.translate(lines)
