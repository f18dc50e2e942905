"""Search: by both legs for passages, by the dense leg for documents."""

from __future__ import annotations

import asyncio
import difflib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from philorag.errors import InvalidInput
from philorag.ingestion.pipeline import require_space
from philorag.model import DocumentHit, Hit, SearchFilters
from philorag.retrieval.similarity import calibration, similarity
from philorag.storage.repositories.passages import DEFAULT_FUSION, Fusion

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from philorag.embedding.protocol import Embedder
    from philorag.model import Caller
    from philorag.storage.database import Database
    from philorag.storage.repositories.libraries import EmbeddingSpace
    from philorag.storage.repositories.passages import NearPassage
    from philorag.storage.unit_of_work import UnitOfWork

__all__ = ["DocumentAnswer", "PassageAnswer", "SearchService"]

_DOCUMENT_POOL = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageAnswer:
    """Passages, best first, and what the caller should know about how they were found."""

    hits: Sequence[Hit]
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentAnswer:
    """Documents, best first; *total_found* counts those over the threshold among the first 1,000 passages."""

    hits: Sequence[DocumentHit]
    total_found: int
    embedding_ms: int
    warnings: Sequence[str]


class SearchService:
    """Finds passages and documents in a library."""

    def __init__(self, database: Database, embedder: Embedder, fusion: Fusion = DEFAULT_FUSION) -> None:
        self._database = database
        self._embedder = embedder
        self._fusion = fusion

    async def passages(self, caller: Caller, query: str, filters: SearchFilters, limit: int) -> PassageAnswer:
        """Hybrid search. A library whose space isn't the configured model's is searched lexically, with a warning.

        Raises `InvalidInput` for a metadata filter that no document knows, `EmbeddingFailed`.
        """
        async with self._database.unit_of_work(caller) as work:
            await _refuse_unknown_keys(work, filters)
            space = await work.libraries.active_space()
        warnings = list(self._warnings(space))
        vector = await self._embed(query) if space is not None and not warnings else None
        async with self._database.unit_of_work(caller) as work:
            hits = await work.passages.hybrid(query, vector, space, filters, limit=limit, fusion=self._fusion)
        return PassageAnswer(hits=hits, warnings=warnings)

    async def documents(
        self, caller: Caller, query: str, filters: SearchFilters, *, limit: int, threshold: float
    ) -> DocumentAnswer:
        """The documents whose best passage is similar enough to *query*. Raises `EmbeddingFailed`."""
        async with self._database.unit_of_work(caller) as work:
            space = await work.libraries.active_space()
        if space is None:
            return DocumentAnswer(hits=(), total_found=0, embedding_ms=0, warnings=())
        require_space(space, self._embedder)
        begun = time.perf_counter()
        vector = await self._embed(query)
        embedding_ms = round(1000 * (time.perf_counter() - begun))
        async with self._database.unit_of_work(caller) as work:
            near = await work.passages.nearest(vector, space, filters, limit=_DOCUMENT_POOL)
        found = [hit for hit in _best_of_each(near, space) if hit.similarity >= threshold]
        return DocumentAnswer(hits=found[:limit], total_found=len(found), embedding_ms=embedding_ms, warnings=())

    async def _embed(self, query: str) -> NDArray[np.float32]:
        return await asyncio.to_thread(self._embedder.embed_query, query)

    def _warnings(self, space: EmbeddingSpace | None) -> Sequence[str]:
        if space is None or space.identity == self._embedder.space:
            return ()
        theirs, ours = (f"{identity.provider}/{identity.model}" for identity in (space.identity, self._embedder.space))
        return (f"Only words were searched: the library's vectors were made by {theirs}, and {ours} is configured.",)


async def _refuse_unknown_keys(work: UnitOfWork, filters: SearchFilters) -> None:
    for key in filters.metadata:
        if not await work.passages.has_metadata_key(key):
            known = ("author", "title", "year", "year_from", "year_to", "language", "tags", "category")
            near = difflib.get_close_matches(key, (*known, "document_id", "kind", "layer"), n=1)
            hint = f" Did you mean `{near[0]}`?" if near else f" Known filters are {', '.join(known)}."
            raise InvalidInput(
                f"`filters.{key}` is neither a filter nor a metadata key of any document.{hint}",
                argument=f"filters.{key}",
            )


def _best_of_each(near: Sequence[NearPassage], space: EmbeddingSpace) -> list[DocumentHit]:
    best: dict[int, NearPassage] = {}
    for candidate in near:
        best.setdefault(candidate.passage.document.id, candidate)
    curve = calibration(space)
    return [DocumentHit(passage=one.passage, similarity=similarity(one.cosine, curve)) for one in best.values()]
