"""Queues, with functions in the model's place."""

import asyncio
import threading

import grpc
import numpy as np
import prometheus_client
import pytest

from t2t_repro.serving import batching, failure, limits

SECONDS = 60  # what takes longer hangs


def echo(inputs):
    """Each sentence's answer is itself, beside the size of its batch."""
    texts = np.array(inputs["inputs"], object)
    return {"outputs": texts, "together": np.full(len(texts), len(texts))}


class Held:
    """A model that waits to be let go, and keeps what it was asked."""

    def __init__(self, run=echo):
        self.run, self.go, self.asked = run, threading.Event(), []
        self.entered = asyncio.Event()

    def __call__(self, inputs):
        self.asked.append(inputs["inputs"])
        self.loop.call_soon_threadsafe(self.entered.set)
        assert self.go.wait(SECONDS)
        return self.run(inputs)


def run_with(run, test, **settings):
    """Runs the coroutine function `test` of a queue before `run`."""
    defaults = {"max_batch_size": 4, "batch_timeout_ms": 0.0}

    async def main():
        run.loop = asyncio.get_running_loop()
        registry = prometheus_client.CollectorRegistry()
        sizes = prometheus_client.Histogram("s", "", registry=registry)
        waiting = prometheus_client.Gauge("w", "", registry=registry)
        taken = limits.Limits(**defaults | settings)
        queue = batching.Queue(run, taken, sizes=sizes, waiting=waiting)
        try:
            await asyncio.wait_for(test(queue), SECONDS)
        finally:
            run.go.set()
            await asyncio.wait_for(queue.close(), SECONDS)
        assert registry.get_sample_value("w") == 0

    asyncio.run(main())


def ask(queue, *texts):
    return queue.submit({"inputs": [text.encode() for text in texts]})


def texts(outputs):
    return [text.decode() for text in outputs["outputs"]]


def test_what_arrives_meanwhile_goes_together():
    model = Held()

    async def test(queue):
        first = ask(queue, "a")
        await model.entered.wait()
        others = [ask(queue, "b"), ask(queue, "c", "d"), ask(queue, "e")]
        model.go.set()
        assert texts(await first) == ["a"]
        answers = [await other for other in others]
        assert [texts(answer) for answer in answers] == [
            ["b"],
            ["c", "d"],
            ["e"],
        ]
        assert answers[0]["together"].tolist() == [4]

    run_with(model, test)


def test_a_request_is_not_split():
    model = Held()

    async def test(queue):
        first = ask(queue, "a")
        await model.entered.wait()
        others = [ask(queue, "b", "c", "d"), ask(queue, "e", "f")]
        model.go.set()
        await asyncio.gather(first, *others)
        assert model.asked == [[b"a"], [b"b", b"c", b"d"], [b"e", b"f"]]

    run_with(model, test)


def test_like_lengths_go_together_but_the_oldest_first():
    model = Held()
    words = ["x" * length for length in (9, 1, 8, 2, 9, 3, 9, 9)]

    async def test(queue):
        first = ask(queue, "a")
        await model.entered.wait()
        others = [ask(queue, word) for word in words]
        model.go.set()
        await first
        for word, other in zip(words, others, strict=True):
            assert texts(await other) == [word]
        assert [list(map(len, asked)) for asked in model.asked] == [
            [1],
            [9, 9, 9, 9],
            [1, 2, 3, 8],
        ]

    run_with(model, test)


def test_long_ones_go_in_batches_of_fewer():
    model = Held()

    async def test(queue):
        first = ask(queue, "a")
        await model.entered.wait()
        others = [ask(queue, "x" * length) for length in (6, 1, 6, 5, 1)]
        model.go.set()
        await asyncio.gather(first, *others)
        assert [list(map(len, asked)) for asked in model.asked] == [
            [1],
            [6, 6],
            [1, 1, 5],
        ]

    run_with(model, test, max_batch_bytes=15)


def test_the_first_waits_for_others():
    model = Held()
    model.go.set()

    async def test(queue):
        found = await asyncio.gather(*(ask(queue, letter) for letter in "abcd"))
        assert [one["together"].tolist() for one in found] == [[4]] * 4

    # Longer than the test may take: a full batch must not wait it out.
    run_with(model, test, batch_timeout_ms=10_000 * SECONDS)


def test_a_full_queue_refuses():
    model = Held()

    async def test(queue):
        first = ask(queue, "a")
        await model.entered.wait()
        second = ask(queue, "b", "c")
        with pytest.raises(failure.Failure, match="2 sentences wait") as error:
            ask(queue, "d")
        assert error.value.code == grpc.StatusCode.UNAVAILABLE
        model.go.set()
        await asyncio.gather(first, second)
        assert texts(await ask(queue, "d")) == ["d"]

    run_with(model, test, max_waiting=2)


def test_who_gives_up_leaves_the_queue():
    model = Held()

    async def test(queue):
        first = ask(queue, "a")
        await model.entered.wait()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ask(queue, "b"), 0.001)
        third = ask(queue, "c")
        model.go.set()
        await asyncio.gather(first, third)
        assert model.asked == [[b"a"], [b"c"]]

    run_with(model, test)


def test_a_bad_request_spoils_no_other():
    def picky(inputs):
        if b"bad" in inputs["inputs"]:
            raise ValueError("no")
        return echo(inputs)

    model = Held(picky)

    async def test(queue):
        first = ask(queue, "a")
        await model.entered.wait()
        others = [ask(queue, "b"), ask(queue, "bad"), ask(queue, "c")]
        model.go.set()
        await first
        assert texts(await others[0]) == ["b"]
        with pytest.raises(failure.Failure, match="The model failed: no"):
            await others[1]
        assert texts(await others[2]) == ["c"]
        assert texts(await ask(queue, "d")) == ["d"]

    run_with(model, test)


def test_closing_answers_what_waits():
    model = Held()

    async def test(queue):
        first = ask(queue, "a")
        await model.entered.wait()
        second = ask(queue, "b")
        closing = asyncio.ensure_future(queue.close())
        model.go.set()
        await closing
        assert texts(await first) + texts(await second) == ["a", "b"]

    run_with(model, test)


@pytest.mark.parametrize("shape", [(), (2, 3)], ids=["no rows", "other rows"])
def test_outputs_without_a_row_for_each_sentence_fail(shape):
    """And the queue goes on."""
    model = Held(lambda inputs: echo(inputs) | {"odd": np.zeros(shape)})
    model.go.set()

    async def test(queue):
        for _ in range(2):
            with pytest.raises(failure.Failure, match="its output odd has the"):
                await ask(queue, "a")

    run_with(model, test)
