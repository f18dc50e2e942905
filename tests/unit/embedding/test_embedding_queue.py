from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from philorag.embedding.protocol import SpaceIdentity
from philorag.embedding.queue import EmbeddingQueue
from philorag.errors import EmbeddingFailed


class Recorder:
    """An embedder that notes its batches, waits at a gate, and fails where a text says so."""

    space = SpaceIdentity("test", "recorder", "1", 1, "none")
    max_tokens = 512

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def embed_passages(self, texts: Sequence[str]) -> np.ndarray:
        self.batches.append(list(texts))
        self.threads.add(threading.get_ident())
        self.entered.set()
        assert self.gate.wait(20)
        if "bug" in texts:
            raise ZeroDivisionError
        if "refused" in texts:
            raise EmbeddingFailed("no")
        lost = texts.count("lost")
        return np.array([[len(text)] for text in texts], np.float32)[lost:]

    def embed_query(self, text: str) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    async def at_work(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 20)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def queue(recorder: Recorder) -> AsyncIterator[EmbeddingQueue]:
    queue = EmbeddingQueue(recorder, batch=3)
    yield queue
    recorder.gate.set()
    await queue.close()


async def held(
    recorder: Recorder, queue: EmbeddingQueue, *requests: Sequence[str]
) -> list[asyncio.Task[list[np.ndarray]]]:
    """Tasks for *requests*, of which the first one's first batch is at the gate."""
    recorder.gate.clear()
    tasks = []
    for texts in requests:
        tasks.append(asyncio.create_task(queue.embed(texts)))
        await asyncio.sleep(0)
    await recorder.at_work()
    return tasks


def lengths(vectors: Sequence[np.ndarray]) -> list[float]:
    return [float(vector[0]) for vector in vectors]


async def test_vectors_come_in_the_order_of_their_texts(queue: EmbeddingQueue):
    """A request that takes several batches gets its vectors in its own order."""
    assert lengths(await queue.embed(["x" * n for n in range(1, 8)])) == [1, 2, 3, 4, 5, 6, 7]


async def test_nothing_costs_nothing(queue: EmbeddingQueue, recorder: Recorder):
    """No texts need no batch."""
    assert await queue.embed([]) == []
    assert not recorder.batches


async def test_documents_share_batches(queue: EmbeddingQueue, recorder: Recorder):
    """What waits is put together in batches of full size, first come first served."""
    tasks = await held(recorder, queue, ["a"], ["bb", "bbb"], ["c", "cc", "ccc"])
    recorder.gate.set()
    answers = [lengths(vectors) for vectors in await asyncio.gather(*tasks)]
    assert recorder.batches == [["a"], ["bb", "bbb", "c"], ["cc", "ccc"]]
    assert answers == [[1], [2, 3], [1, 2, 3]]


async def test_the_event_loop_goes_on(queue: EmbeddingQueue, recorder: Recorder):
    """The model runs in another thread."""
    await queue.embed(["a"])
    assert threading.get_ident() not in recorder.threads


@pytest.mark.parametrize(
    ("text", "failure"), [("refused", EmbeddingFailed), ("bug", ZeroDivisionError), ("lost", EmbeddingFailed)]
)
async def test_a_failed_batch_fails_those_in_it_alone(
    queue: EmbeddingQueue, recorder: Recorder, text: str, failure: type[Exception]
):
    """Whoever has a text in a batch that fails, or comes back short, gets the failure; the others get vectors."""
    before, guilty, beside, after = await held(recorder, queue, ["a"], [text, "b"], ["c", "cc", "ccc", "cccc"], ["dd"])
    recorder.gate.set()
    await asyncio.wait([before, guilty, beside, after])
    assert lengths(before.result()) == [1]
    assert isinstance(guilty.exception(), failure)
    assert isinstance(beside.exception(), failure)
    assert lengths(after.result()) == [2]
    assert recorder.batches[-1] == ["dd"]


async def test_who_gives_up_disturbs_nobody(queue: EmbeddingQueue, recorder: Recorder):
    """A cancelled request leaves the line; those before and behind it are served."""
    first, gone, last = await held(recorder, queue, ["a", "aa", "aaa", "aaaa"], ["gone"] * 5, ["b"])
    gone.cancel()
    await asyncio.wait([gone])
    recorder.gate.set()
    assert lengths(await first) == [1, 2, 3, 4]
    assert lengths(await last) == [1]
    assert not any("gone" in batch for batch in recorder.batches)


async def test_who_gives_up_within_a_batch_disturbs_nobody(queue: EmbeddingQueue, recorder: Recorder):
    """A request that is cancelled while its batch runs doesn't take the batch with it."""
    _, gone, beside = await held(recorder, queue, ["x"] * 3, ["gone"], ["b"])
    recorder.gate.set()
    gone.cancel()
    assert lengths(await beside) == [1]


async def test_the_line_begins_again(queue: EmbeddingQueue):
    """An empty line isn't the end of it."""
    for n in range(3):
        assert [n + 1] == lengths(await queue.embed(["x" * (n + 1)]))


async def test_closing_finishes_the_batch_under_way(queue: EmbeddingQueue, recorder: Recorder):
    """Who is being served is served; who waits is told, and nobody is left waiting."""
    served, halfway, waiting = await held(recorder, queue, ["a", "b", "c"], ["d"] * 4, ["e"])
    closing = asyncio.create_task(queue.close())
    await asyncio.sleep(0)
    recorder.gate.set()
    await closing
    assert lengths(await served) == [1, 1, 1]
    for task in (halfway, waiting):
        with pytest.raises(EmbeddingFailed):
            await task
    assert len(recorder.batches) == 1
    with pytest.raises(EmbeddingFailed):
        await queue.embed(["late"])


async def test_an_idle_line_closes_twice(recorder: Recorder):
    """Closing what never worked, or is closed, is nothing."""
    queue = EmbeddingQueue(recorder)
    await queue.close()
    await queue.close()
