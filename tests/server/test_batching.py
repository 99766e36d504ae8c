"""Queues of requests, with functions in place of a model."""

import asyncio

import grpc
import numpy as np
import prometheus_client
import pytest

from t2t_repro.server import batching, request_errors
from t2t_repro.serving import connection

SECONDS = 60  # timeout


def echo(inputs):
    """Return each sentence, and the size of its batch."""
    texts = np.array(inputs["inputs"], object)
    return {"outputs": texts, "batch_size": np.full(len(texts), len(texts))}


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


def run_with(run, test, **settings):
    """Run the coroutine function `test` with a queue of the model `run`."""
    defaults = {"max_batch_size": 4, "batch_timeout_ms": 0.0}

    async def main():
        registry = prometheus_client.CollectorRegistry()
        sizes = prometheus_client.Histogram("s", "", registry=registry)
        waiting = prometheus_client.Gauge("w", "", registry=registry)
        queue_limits = connection.Limits(**defaults | settings)
        queue = batching.Queue(run, queue_limits, sizes=sizes, waiting=waiting)
        try:
            await asyncio.wait_for(test(queue), SECONDS)
        finally:
            run.go.set()
            await asyncio.wait_for(queue.close(), SECONDS)
        assert registry.get_sample_value("w") == 0

    asyncio.run(main())


def submit(queue, *texts):
    return queue.submit({"inputs": [text.encode() for text in texts]})


def texts(outputs):
    return [text.decode() for text in outputs["outputs"]]


def test_requests_that_arrive_during_a_batch_share_the_next():
    model = BlockedModel()

    async def test(queue):
        first = submit(queue, "a")
        await model.entered.wait()
        others = [
            submit(queue, "b"),
            submit(queue, "c", "d"),
            submit(queue, "e"),
        ]
        model.go.set()
        assert texts(await first) == ["a"]
        answers = [await other for other in others]
        assert [texts(answer) for answer in answers] == [
            ["b"],
            ["c", "d"],
            ["e"],
        ]
        assert answers[0]["batch_size"].tolist() == [4]

    run_with(model, test)


def test_request_is_never_split():
    model = BlockedModel()

    async def test(queue):
        first = submit(queue, "a")
        await model.entered.wait()
        others = [submit(queue, "b", "c", "d"), submit(queue, "e", "f")]
        model.go.set()
        await asyncio.gather(first, *others)
        assert model.batches == [[b"a"], [b"b", b"c", b"d"], [b"e", b"f"]]

    run_with(model, test)


def test_similar_lengths_share_a_batch_and_oldest_goes_first():
    """Without a time limit, long requests do not let others pass."""
    model = BlockedModel()
    words = ["x" * length for length in (9, 1, 8, 2, 9, 3, 9, 9)]

    async def test(queue):
        first = submit(queue, "a")
        await model.entered.wait()
        others = [submit(queue, word) for word in words]
        model.go.set()
        await first
        for word, other in zip(words, others, strict=True):
            assert texts(await other) == [word]
        assert [list(map(len, batch)) for batch in model.batches] == [
            [1],
            [9, 9, 9, 9],
            [1, 2, 3, 8],
        ]

    run_with(model, test, timeout_secs=0.0)


def test_long_sentences_form_smaller_batches():
    model = BlockedModel()

    async def test(queue):
        first = submit(queue, "a")
        await model.entered.wait()
        others = [submit(queue, "x" * length) for length in (6, 1, 6, 5, 1)]
        model.go.set()
        await asyncio.gather(first, *others)
        assert [list(map(len, batch)) for batch in model.batches] == [
            [1],
            [6, 6],
            [1, 1, 5],
        ]

    run_with(model, test, max_batch_bytes=15, timeout_secs=0.0)


def test_long_requests_leave_room_to_short_ones_and_let_them_pass():
    """They are refused by bytes: 7 x 100 of 800, of which each took half."""
    model = BlockedModel()

    async def test(queue):
        answers = [submit(queue, "a")]
        await model.entered.wait()
        answers += [submit(queue, "x" * 100) for _ in range(7)]
        with pytest.raises(
            request_errors.RequestError, match="700 bytes wait, too m"
        ) as error:
            submit(queue, "x" * 100)
        assert error.value.code == grpc.StatusCode.UNAVAILABLE
        answers += [submit(queue, "b") for _ in range(40)]
        model.go.set()
        await asyncio.gather(*answers)
        assert model.batches == [[b"a"]] + 10 * [4 * [b"b"]] + 7 * [
            [b"x" * 100]
        ]

    run_with(model, test, max_batch_bytes=100)


def test_first_request_waits_for_others():
    model = BlockedModel()
    model.go.set()

    async def test(queue):
        answers = await asyncio.gather(
            *(submit(queue, letter) for letter in "abcd")
        )
        assert [one["batch_size"].tolist() for one in answers] == [[4]] * 4

    # Beyond the test's timeout: a full batch starts before it.
    run_with(model, test, batch_timeout_ms=10_000 * SECONDS)


def test_full_queue_is_unavailable():
    model = BlockedModel()

    async def test(queue):
        first = submit(queue, "a")
        await model.entered.wait()
        second = submit(queue, "b", "c")
        with pytest.raises(
            request_errors.RequestError, match="2 sentences wait"
        ) as error:
            submit(queue, "d")
        assert error.value.code == grpc.StatusCode.UNAVAILABLE
        model.go.set()
        await asyncio.gather(first, second)
        assert texts(await submit(queue, "d")) == ["d"]

    run_with(model, test, max_waiting=2)


def test_cancelled_request_leaves_queue():
    model = BlockedModel()

    async def test(queue):
        first = submit(queue, "a")
        await model.entered.wait()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(submit(queue, "b"), 0.001)
        third = submit(queue, "c")
        model.go.set()
        await asyncio.gather(first, third)
        assert model.batches == [[b"a"], [b"c"]]

    run_with(model, test)


def test_bad_request_fails_alone():
    def picky(inputs):
        if b"bad" in inputs["inputs"]:
            raise ValueError("no")
        return echo(inputs)

    model = BlockedModel(picky)

    async def test(queue):
        first = submit(queue, "a")
        await model.entered.wait()
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

    run_with(model, test)


def test_close_answers_waiting_requests():
    model = BlockedModel()

    async def test(queue):
        first = submit(queue, "a")
        await model.entered.wait()
        second = submit(queue, "b")
        closing = asyncio.ensure_future(queue.close())
        model.go.set()
        await closing
        assert texts(await first) + texts(await second) == ["a", "b"]

    run_with(model, test)


@pytest.mark.parametrize("shape", [(), (2, 3)], ids=["no rows", "wrong number"])
def test_output_without_a_row_per_sentence_fails(shape):
    """The queue continues afterwards."""
    model = BlockedModel(lambda inputs: echo(inputs) | {"odd": np.zeros(shape)})
    model.go.set()

    async def test(queue):
        for _ in range(2):
            with pytest.raises(
                request_errors.RequestError, match="its output odd has the"
            ):
                await submit(queue, "a")

    run_with(model, test)
