"""One document's way into the library: compose, cut, embed, store; all of it or nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from philorag.embedding.queue import EmbeddingQueue
from philorag.errors import EmbeddingFailed
from philorag.ingestion.chunking import ChunkLimits, cut
from philorag.ingestion.composition import compose
from philorag.ingestion.language import language_of, normalised_code
from philorag.model import DocumentFields, publication_day
from philorag.storage.repositories.chunks import MissingVectors, not_among

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from philorag.embedding.protocol import Embedder
    from philorag.model import Caller, NewChunk, ReadDocument
    from philorag.storage.database import Database
    from philorag.storage.repositories.libraries import EmbeddingSpace

__all__ = ["PIPELINE", "DocumentPipeline", "StoredDocument", "require_space"]

# Raise it when the same file would give other text or other passages: what is stored is then made anew.
PIPELINE = "1"
_ATTEMPTS = 3
_LANGUAGE_SAMPLE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """What became of a document."""

    document_id: int
    created: bool
    chunk_count: int
    chunks_added: int


def require_space(space: EmbeddingSpace, embedder: Embedder) -> None:
    """Raise `EmbeddingFailed` unless *embedder* makes vectors of the library's *space*."""
    if space.identity != embedder.space:
        theirs, ours = space.identity, embedder.space
        raise EmbeddingFailed(
            f"This library's vectors were made by {theirs.provider}/{theirs.model} ({theirs.revision}), but "
            f"{ours.provider}/{ours.model} ({ours.revision}) is configured. Configure the library's model, or choose "
            "another library with PHILORAG_LIBRARY.",
            library_space=f"{theirs.provider}/{theirs.model}",
            configured=f"{ours.provider}/{ours.model}",
        )


class DocumentPipeline:
    """Brings read documents into a library."""

    def __init__(self, database: Database, embedder: Embedder, limits: ChunkLimits) -> None:
        self._database = database
        self._embedder = embedder
        self._limits = limits
        self._queue = EmbeddingQueue(embedder)

    @property
    def version(self) -> str:
        """What must be equal for an unchanged file to need nothing."""
        return f"{PIPELINE}/{self._limits.size}/{self._limits.overlap}"

    async def space(self, caller: Caller) -> EmbeddingSpace:
        """The library's embedding space, adopted if it has none. Raises `EmbeddingFailed` when it is another."""
        async with self._database.unit_of_work(caller) as work:
            space = await work.libraries.adopt_space(self._embedder.space)
            await work.commit()
        require_space(space, self._embedder)
        return space

    async def store(
        self, caller: Caller, fields: DocumentFields, document: ReadDocument, *, unit_length: bool = False
    ) -> StoredDocument:
        """Store *document* under *fields*, which win over what it declares of itself.

        With *unit_length* new vectors are scaled to length 1.
        Raises `EmbeddingFailed`, `PermissionDenied` when another tool made the document, `DatabaseUnavailable`.
        """
        space = await self.space(caller)
        composition = compose(document.blocks)
        declared = normalised_code(document.language)
        language = language_of(composition.content[:_LANGUAGE_SAMPLE], declared)
        chunks = await asyncio.to_thread(
            cut,
            composition,
            self._limits,
            self._embedder.count_tokens,
            lambda text, own: language_of(text, own or declared) or language,
        )
        fields = replace(
            _completed(fields, document), language=fields.language or language, pipeline_version=self.version
        )
        return await self._store_chunks(caller, fields, composition.content, chunks, space, unit_length=unit_length)

    async def close(self) -> None:
        await self._queue.close()

    async def _store_chunks(
        self,
        caller: Caller,
        fields: DocumentFields,
        content: str,
        chunks: Sequence[NewChunk],
        space: EmbeddingSpace,
        *,
        unit_length: bool,
    ) -> StoredDocument:
        vectors: dict[int, NDArray[np.float32]] = {}
        for _ in range(_ATTEMPTS):
            missing = [position for position in await self._fresh(caller, fields, chunks) if position not in vectors]
            embedded = await self._queue.embed([chunks[position].text for position in missing])
            vectors |= zip(missing, map(_unit, embedded) if unit_length else embedded, strict=True)
            try:
                async with self._database.unit_of_work(caller) as work:
                    saved = await work.documents.save(fields, content)
                    added = await work.chunks.replace(saved.id, chunks, vectors, space.id)
                    await work.commit()
            except MissingVectors:
                continue
            return StoredDocument(
                document_id=saved.id, created=saved.created, chunk_count=len(chunks), chunks_added=added
            )
        raise EmbeddingFailed("The document keeps changing while it is stored. Try again when nobody else writes it.")

    async def _fresh(self, caller: Caller, fields: DocumentFields, chunks: Sequence[NewChunk]) -> list[int]:
        async with self._database.unit_of_work(caller) as work:
            document_id = await work.documents.id_of(fields.source_uri)
            if document_id is None:
                return list(range(len(chunks)))
            return not_among(chunks, await work.chunks.identities(document_id))


def _completed(fields: DocumentFields, document: ReadDocument) -> DocumentFields:
    declared = dict(document.metadata)
    tags, category = _names(declared.pop("tags", ())), declared.pop("category", None)
    date = document.publication_date
    if date is not None and publication_day(date) is None:
        declared.setdefault("date", date)
        date = None
    return replace(
        fields,
        title=fields.title or document.title or _named_after(fields),
        authors=fields.authors or document.authors,
        publication_date=fields.publication_date or date,
        tags=fields.tags or tags,
        category=fields.category or (category if isinstance(category, str) else None),
        metadata={**declared, **fields.metadata},
    )


def _names(value: object) -> tuple[str, ...]:
    values = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    return tuple(name.strip() for name in values if isinstance(name, str) and name.strip())


def _named_after(fields: DocumentFields) -> str | None:
    return PurePosixPath(fields.path).stem if fields.path else None


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
