"""One document's way into the library: compose, cut, embed, store; all of it or nothing."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from functools import partial
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
    from collections.abc import Callable, Sequence

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


@dataclass(frozen=True, slots=True)
class _Prepared:
    fields: DocumentFields
    content: str
    chunks: Sequence[NewChunk]
    space: EmbeddingSpace
    unit_length: bool


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

    def __init__(self, database: Database, embedder: Embedder, limits: ChunkLimits, batch: int = 32) -> None:
        self._database = database
        self._embedder = embedder
        self._limits = limits
        self._queue = EmbeddingQueue(embedder, batch=batch)

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
        self,
        caller: Caller,
        fields: DocumentFields,
        document: ReadDocument,
        *,
        unit_length: bool = False,
        on_embedded: Callable[[int, int], None] | None = None,
    ) -> StoredDocument:
        """Store *document* under *fields*, which win over what it declares of itself.

        With *unit_length* new vectors are scaled to length 1. *on_embedded* is told how many passages of how many
        have their vectors.
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
        prepared = _Prepared(fields, composition.content, chunks, space, unit_length)
        return await self._store_chunks(caller, prepared, on_embedded)

    async def close(self) -> None:
        await self._queue.close()

    async def _store_chunks(
        self, caller: Caller, prepared: _Prepared, on_embedded: Callable[[int, int], None] | None
    ) -> StoredDocument:
        chunks = prepared.chunks
        vectors: dict[int, NDArray[np.float32]] = {}
        for _ in range(_ATTEMPTS):
            missing = [position for position in await self._fresh(caller, prepared) if position not in vectors]
            told = None if on_embedded is None else partial(_tell, on_embedded, len(missing))
            embedded = await self._queue.embed([chunks[position].text for position in missing], told)
            vectors |= zip(missing, map(_unit, embedded) if prepared.unit_length else embedded, strict=True)
            try:
                async with self._database.unit_of_work(caller) as work:
                    saved = await work.documents.save(prepared.fields, prepared.content)
                    added = await work.chunks.replace(saved.id, chunks, vectors, prepared.space.id)
                    await work.commit()
            except MissingVectors:
                continue
            return StoredDocument(
                document_id=saved.id, created=saved.created, chunk_count=len(chunks), chunks_added=added
            )
        raise EmbeddingFailed("The document keeps changing while it is stored. Try again when nobody else writes it.")

    async def _fresh(self, caller: Caller, prepared: _Prepared) -> list[int]:
        """The passages that the store has no vector for. Raises `PermissionDenied` before anything is embedded."""
        async with self._database.unit_of_work(caller) as work:
            document_id = await work.documents.replaceable(prepared.fields)
            if document_id is None:
                return list(range(len(prepared.chunks)))
            return not_among(prepared.chunks, await work.chunks.identities(document_id))


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


def _tell(on_embedded: Callable[[int, int], None], total: int, done: int) -> None:
    on_embedded(done, total)


def _named_after(fields: DocumentFields) -> str | None:
    """A title in words from a file's name: `aristotle_nicomachean-ethics.md` is "Aristotle – Nicomachean Ethics"."""
    stem = PurePosixPath(fields.path).stem if fields.path else ""
    if not re.fullmatch(r"[^\WA-Z_]+(?:[-_]+[^\WA-Z_]+)*", stem):
        return stem or None
    parts = [part.replace("-", " ") for part in stem.split("_") if part]
    return " – ".join(" ".join(word[:1].upper() + word[1:] for word in part.split()) for part in parts)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
