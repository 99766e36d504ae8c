"""Queues of requests, with functions in place of a model."""

import asyncio

import grpc
import numpy as np
import prometheus_client
import pytest

from t2t_repro.server import batching, request_errors
from t2t_repro.serving import requests

SECONDS = 60  # timeout


def echo(inputs):
    """Return each sentence, and the size of its batch."""
    texts = np.array(inputs["inputs"], object)
    return {"outputs": texts, "batch_size": np.full(len(texts), len(texts))}


def test_foreign_models_may_have_numbers_or_no_inputs():
    inputs = {"inputs": [1, 2]}
    assert batching.with_tags(inputs, {}) == inputs
    with pytest.raises(request_errors.RequestError, match="has no inputs"):
        batching.check_inputs({}, requests.Limits())


def test_target_language_of_a_request_is_one():
    asked = {"inputs": [b"x"], "target_language": [b"en-de"]}
    card = {"data": {"target_languages": ["de", "en"]}}
    with pytest.raises(request_errors.RequestError, match="got 'en-de'"):
        batching.with_tags(asked, card)
    for line in b"<2de> x", b"":  # needs none
        batching.with_tags(asked | {"inputs": [line]}, card)


class BlockedModel:
    """A model that blocks until `go` is set, and records its batches."""

    def __init__(self, run=echo):
        self.run, self.go, self.batches = run, asyncio.Event(), []
        self.entered = asyncio.Event()

    async def __call__(self, inputs):
        self.batches.append(inputs["inputs"])
        self.entered.set()
        await asyncio.wait_for(self.go.wait(), SECONDS)
        return self.run(inputs)


def blocked(run=echo, **settings):
    """Make a test of a coroutine function, with a queue of a blocked model.

    Its arguments are the model, the queue, and the answer to a request that is
    in the model.
    """
    defaults = {"max_batch_size": 4, "batch_timeout_ms": 0.0}

    async def main(test):
        registry = prometheus_client.CollectorRegistry()
        sizes = prometheus_client.Histogram("s", "", registry=registry)
        waiting = prometheus_client.Gauge("w", "", registry=registry)
        queue_limits = requests.Limits(**defaults | settings)
        model = BlockedModel(run)
        queue = batching.Queue(
            model, queue_limits, sizes=sizes, waiting=waiting
        )
        try:
            first = submit(queue, "a")
            await model.entered.wait()
            await asyncio.wait_for(test(model, queue, first), SECONDS)
        finally:
            model.go.set()
            await asyncio.wait_for(queue.close(), SECONDS)
        assert registry.get_sample_value("w") == 0

    return lambda test: lambda: asyncio.run(main(test))


def submit(queue, *texts):
    return queue.submit({"inputs": [text.encode() for text in texts]})


@blocked()
async def test_inputs_without_text_are_no_reason_to_fail(model, queue, first):
    numbers = queue.submit({"inputs": [1, 2]})
    model.go.set()
    assert (await numbers)["outputs"].tolist() == [1, 2]


def texts(outputs):
    return [text.decode() for text in outputs["outputs"]]


def words(*lengths):
    """Return a request of one word for each length."""
    return [("x" * length,) for length in lengths]


@pytest.mark.parametrize(
    ("others", "max_batch_bytes", "batches"),
    [
        ([("b",), ("c", "d"), ("e",)], 100, [[1, 1, 1, 1]]),
        ([("b", "c", "d"), ("e", "f")], 100, [[1, 1, 1], [1, 1]]),
        (words(9, 1, 8, 2, 9, 3, 9, 9), 100, [[9, 9, 9, 9], [1, 2, 3, 8]]),
        (words(6, 1, 6, 5, 1), 15, [[6, 6], [1, 1, 5]]),
        # As tags make it, which are added after the check of the limits.
        (words(1, 16, 1), 15, [[1, 1], [16]]),
    ],
    ids=["shared", "never split", "similar lengths", "fewer", "longer"],
)
def test_requests_that_arrive_during_a_batch_share_the_next(
    others, max_batch_bytes, batches
):
    """Without a time limit, long requests do not let others pass."""

    @blocked(max_batch_bytes=max_batch_bytes, timeout_secs=0.0)
    async def test(model, queue, first):
        answers = [submit(queue, *request) for request in others]
        model.go.set()
        assert texts(await first) == ["a"]
        for request, answer in zip(others, answers, strict=True):
            assert texts(await answer) == [*request]
        _, *found = model.batches
        assert [list(map(len, batch)) for batch in found] == batches

    test()


@blocked(max_batch_bytes=100)
async def test_long_requests_leave_room_to_short_ones_and_let_them_pass(
    model, queue, first
):
    """They are refused by bytes: 7 x 100 of 800, of which each took half."""
    answers = [first, *(submit(queue, "x" * 100) for _ in range(7))]
    with pytest.raises(
        request_errors.RequestError, match="700 bytes wait, too m"
    ) as error:
        submit(queue, "x" * 100)
    assert error.value.code == grpc.StatusCode.UNAVAILABLE
    answers += [submit(queue, "b") for _ in range(40)]
    model.go.set()
    await asyncio.gather(*answers)
    long, short = 7 * [[b"x" * 100]], 10 * [4 * [b"b"]]
    assert model.batches == [[b"a"], *short, *long]


@blocked(max_waiting=2)
async def test_full_queue_is_unavailable(model, queue, first):
    second = submit(queue, "b", "c")
    with pytest.raises(
        request_errors.RequestError, match="2 sentences wait"
    ) as error:
        submit(queue, "d")
    assert error.value.code == grpc.StatusCode.UNAVAILABLE
    model.go.set()
    await asyncio.gather(first, second)
    assert texts(await submit(queue, "d")) == ["d"]


@blocked()
async def test_cancelled_request_leaves_queue(model, queue, first):
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(submit(queue, "b"), 0.001)
    third = submit(queue, "c")
    model.go.set()
    await asyncio.gather(first, third)
    assert model.batches == [[b"a"], [b"c"]]


def picky(inputs):
    if b"bad" in inputs["inputs"]:
        raise ValueError("no")
    return echo(inputs)


@blocked(picky)
async def test_bad_request_fails_alone(model, queue, first):
    others = [submit(queue, "b"), submit(queue, "bad"), submit(queue, "c")]
    model.go.set()
    await first
    assert texts(await others[0]) == ["b"]
    with pytest.raises(
        request_errors.RequestError, match="The model failed: no"
    ):
        await others[1]
    assert texts(await others[2]) == ["c"]
    assert texts(await submit(queue, "d")) == ["d"]


@blocked()
async def test_close_answers_waiting_requests(model, queue, first):
    second = submit(queue, "b")
    closing = asyncio.ensure_future(queue.close())
    model.go.set()
    await closing
    assert texts(await first) + texts(await second) == ["a", "b"]
