"""The low-level store: documents, passages and vectors that a client makes by itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from philorag.errors import DocumentNotFound, InvalidInput, PermissionDenied
from philorag.ingestion.composition import SEPARATOR
from philorag.ingestion.language import language_of
from philorag.model import Locator, NewChunk, SearchFilters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from philorag.embedding.protocol import Embedder
    from philorag.model import Caller, Document, DocumentFields
    from philorag.storage.database import Database
    from philorag.storage.repositories.passages import NearPassage

__all__ = ["ClientChunk", "StoreService", "checked_vector"]

# The vector index holds half precision.
_LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class ClientChunk:
    """A passage with its vector, as a client computed it."""

    text: str
    index: int
    embedding: Sequence[float]


def checked_vector(values: Sequence[float], dimensions: int, argument: str) -> NDArray[np.float32]:
    """*values* as a vector of the space. Raises `InvalidInput` for what can't be compared or stored."""
    vector = np.asarray(values, dtype=np.float64)
    problem = None
    if len(vector) != dimensions:
        problem = f"has {len(vector)} numbers; this library's embedding space has {dimensions} dimensions"
    elif not np.isfinite(vector).all():
        problem = "holds NaN or infinity; give finite numbers"
    elif np.abs(vector).max() > _LARGEST_HALF:
        problem = f"holds a number beyond half precision (±{_LARGEST_HALF:.0f}); scale the vector down"
    elif not np.abs(vector.astype(np.float16)).any():
        problem = "is all zeros; a passage without direction can't be compared"
    if problem is not None:
        raise InvalidInput(f"`{argument}` {problem}, such as [0.12, -0.05, ...].", argument=argument)
    return vector.astype(np.float32)


class StoreService:
    """What the older database server offered, on this library."""

    def __init__(self, database: Database, embedder: Embedder) -> None:
        self._database = database
        self._embedder = embedder

    async def add_document(self, caller: Caller, fields: DocumentFields) -> int:
        """Insert or replace a document by `source_uri`, keeping its passages; returns its id."""
        async with self._database.unit_of_work(caller) as work:
            saved = await work.documents.save(fields, None)
            await work.commit()
            return saved.id

    async def insert_chunks(self, caller: Caller, document_id: int, given: Sequence[ClientChunk]) -> int:
        """Insert or replace passages by index, all or none; the document's text becomes its passages, in order.

        Raises `DocumentNotFound`, `InvalidInput` for a vector or a repeated index, `PermissionDenied` for a document
        that another tool made.
        """
        _refuse_repeated(given)
        async with self._database.unit_of_work(caller) as work:
            document = _appendable(await work.documents.lock(document_id), document_id)
            space = await work.libraries.adopt_space(self._embedder.space)
            vectors = {
                chunk.index: checked_vector(chunk.embedding, space.identity.dimensions, f"chunks[{n}].embedding")
                for n, chunk in enumerate(given)
            }
            texts = {chunk.index: chunk.text for chunk in await work.chunks.of_document(document_id)}
            texts |= {chunk.index: chunk.text for chunk in given}
            chunks = _joined(texts, document, self._embedder)
            fresh = {position: vectors[chunk.index] for position, chunk in enumerate(chunks) if chunk.index in vectors}
            await work.chunks.replace(document_id, chunks, fresh, space.id)
            ids = {chunk.index: chunk.id for chunk in await work.chunks.of_document(document_id)}
            await work.chunks.save_vectors({ids[index]: vector for index, vector in vectors.items()}, space.id)
            content = SEPARATOR.join(chunk.text for chunk in chunks)
            await work.documents.set_content(document_id, content)
            await work.commit()
        return len(given)

    async def query_similar(
        self, caller: Caller, embedding: Sequence[float], top_k: int, filters: SearchFilters
    ) -> list[NearPassage]:
        """The passages nearest to a vector of the library's space."""
        async with self._database.unit_of_work(caller) as work:
            space = await work.libraries.active_space()
            dimensions = space.identity.dimensions if space else self._embedder.space.dimensions
            vector = checked_vector(embedding, dimensions, "query_embedding")
            if space is None:
                return []
            everything = replace(filters, kinds=("captured", "generated"))
            return await work.passages.nearest(vector, space, everything, limit=top_k)


def _refuse_repeated(given: Sequence[ClientChunk]) -> None:
    seen: set[int] = set()
    for number, chunk in enumerate(given):
        if chunk.index in seen:
            raise InvalidInput(
                f"`chunks[{number}].chunk_index` repeats {chunk.index}. Number the passages of a call differently, "
                "such as 0, 1, 2.",
                argument=f"chunks[{number}].chunk_index",
            )
        seen.add(chunk.index)


def _appendable(document: Document | None, document_id: int) -> Document:
    if document is None:
        raise DocumentNotFound(
            "There is no such document in this library. Make it with `add_document` first.",
            document_id=str(document_id),
        )
    if document.origin != "add_document":
        raise PermissionDenied(
            f"This document was made by {document.origin}, which alone may change its passages.",
            document_id=str(document_id),
        )
    return document


def _joined(texts: dict[int, str], document: Document, embedder: Embedder) -> list[NewChunk]:
    """The passages in order of index, with the offsets that they have when joined by blank lines."""
    indexes = sorted(texts)
    tokens = embedder.count_tokens([texts[index] for index in indexes])
    chunks: list[NewChunk] = []
    position = 0
    for index, length in zip(indexes, tokens, strict=True):
        text = texts[index]
        locator = Locator(char_start=position, char_end=position + len(text), paragraph=len(chunks) + 1)
        chunks.append(
            NewChunk(
                text=text,
                # With the index: equal texts at two indexes have each their own vector.
                content_hash=hashlib.sha256(f"{index}\0{text}".encode()).hexdigest(),
                token_count=length,
                language=language_of(text, document.language),
                locator=locator,
                index=index,
            )
        )
        position = locator.char_end + len(SEPARATOR)
    return chunks
