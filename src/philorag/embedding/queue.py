"""One line of passages for the model: documents that are read at the same time share its batches."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from philorag.embedding.retrying import closing
from philorag.errors import EmbeddingFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from philorag.embedding.protocol import Embedder

    Vector = NDArray[np.float32]

__all__ = ["EmbeddingQueue"]

_BATCH = 32


@dataclass(slots=True)
class _Request:
    texts: deque[str]
    done: asyncio.Future[None]
    on_delivered: Callable[[int], None] | None
    vectors: list[Vector] = field(default_factory=list)


class EmbeddingQueue:
    """Embeds passages in batches of up to *batch*, outside the event loop.

    Who waits takes turns: each batch begins with the next one's passages, so that a note isn't kept behind a book.
    """

    def __init__(self, embedder: Embedder, *, batch: int = _BATCH) -> None:
        self._embedder = embedder
        self._batch = batch
        self._waiting: deque[_Request] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def embed(self, texts: Sequence[str], on_delivered: Callable[[int], None] | None = None) -> list[Vector]:
        """A vector for each text, in order; *on_delivered* is told how many are there. Raises `EmbeddingFailed`."""
        if self._closed:
            raise closing()
        if not texts:
            return []
        request = _Request(deque(texts), asyncio.get_running_loop().create_future(), on_delivered)
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            await request.done
        finally:
            request.texts.clear()
        return request.vectors

    async def close(self) -> None:
        """Stop after the batch that is under way; who still waits gets `EmbeddingFailed`."""
        self._closed = True
        for request in self._waiting:
            request.texts.clear()
            if not request.done.done():
                request.done.set_exception(closing())
        if self._worker is not None:
            await self._worker

    async def _work(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            if not batch:
                continue
            texts = [text for _, text in batch]
            try:
                vectors = await asyncio.to_thread(self._embed, texts)
            except Exception as error:  # noqa: BLE001 - whatever the provider raises belongs to those who wait for it
                self._fail(batch, error)
            else:
                self._deliver(batch, vectors)

    def _embed(self, texts: Sequence[str]) -> list[Vector]:
        vectors = list(self._embedder.embed_passages(texts))
        if len(vectors) != len(texts):
            raise EmbeddingFailed(f"The model answered {len(vectors)} vectors for {len(texts)} passages.")
        return vectors

    def _next_batch(self) -> list[tuple[_Request, str]]:
        batch: list[tuple[_Request, str]] = []
        while self._waiting and len(batch) < self._batch:
            request = self._waiting[0]
            while request.texts and len(batch) < self._batch:
                batch.append((request, request.texts.popleft()))
            if not request.texts:
                self._waiting.popleft()
        self._waiting.rotate(-1)
        return batch

    def _deliver(self, batch: Sequence[tuple[_Request, str]], vectors: Sequence[Vector]) -> None:
        for (request, _), vector in zip(batch, vectors, strict=True):
            request.vectors.append(vector)
        for request in {id(request): request for request, _ in batch}.values():
            if request.done.done():
                continue
            if request.on_delivered is not None:
                request.on_delivered(len(request.vectors))
            if not request.texts:
                request.done.set_result(None)

    def _fail(self, batch: Sequence[tuple[_Request, str]], error: Exception) -> None:
        for request, _ in batch:
            request.texts.clear()
            if not request.done.done():
                request.done.set_exception(error)
