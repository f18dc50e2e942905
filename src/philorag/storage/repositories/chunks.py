from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, delete, func, select, text

from philorag.model import Chunk, Locator
from philorag.storage.analyzers import analyzer_for
from philorag.storage.repositories.base import Repository
from philorag.storage.repositories.postings import Indexed, PostingsRepository
from philorag.storage.tables import chunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy.ext.asyncio import AsyncConnection

    from philorag.model import NewChunk

__all__ = ["ChunkIdentity", "ChunkRepository", "MissingVectors", "identity_of", "not_among"]

ChunkIdentity = tuple[str, str]

_INCOMING = text("""
create temporary table incoming_chunks (
    id bigint, chunk_index integer, chunk_text text, cleaned_text text, content_hash text, char_start integer,
    char_end integer, token_count integer, layer text, language text, analyzer text, locator text, section_path text
) on commit drop
""")
_COLUMNS = (
    "id",
    "chunk_index",
    "chunk_text",
    "cleaned_text",
    "content_hash",
    "char_start",
    "char_end",
    "token_count",
    "layer",
    "language",
    "analyzer",
    "locator",
    "section_path",
)

# Two steps: a passage that moves up by one would meet its neighbour's index on the way.
_STEP_ASIDE = text("""
update chunks set chunk_index = -1 - chunk_index where library_id = :library_id and document_id = :document_id
""")
_MOVE = text("""
update chunks c
   set chunk_index = i.chunk_index, char_start = i.char_start, char_end = i.char_end, layer = i.layer,
       token_count = i.token_count, language = i.language, locator = i.locator::jsonb,
       section_path = i.section_path::jsonb
  from incoming_chunks i
 where c.library_id = :library_id and c.document_id = :document_id and c.id = i.id
""")
_INSERT = text("""
insert into chunks (library_id, document_id, id, chunk_index, chunk_text, cleaned_text, content_hash, char_start,
                    char_end, token_count, layer, language, analyzer, locator, section_path)
select :library_id, :document_id, i.id, i.chunk_index, i.chunk_text, i.cleaned_text, i.content_hash, i.char_start,
       i.char_end, i.token_count, i.layer, i.language, i.analyzer, i.locator::jsonb, i.section_path::jsonb
  from incoming_chunks i
 where not exists (select from chunks c where c.library_id = :library_id and c.id = i.id)
""")
_INCOMING_VECTORS = text("create temporary table incoming_vectors (chunk_id bigint, embedding vector) on commit drop")
_SAVE_VECTORS = text("""
insert into chunk_embeddings (library_id, chunk_id, space_id, embedding)
select :library_id, chunk_id, :space_id, embedding from incoming_vectors
on conflict (library_id, chunk_id, space_id) do update set embedding = excluded.embedding
""")
_NEW_IDS = text("select nextval('chunks_id_seq') from generate_series(1, :count)")


class MissingVectors(Exception):
    """Passages turned out to be new that were thought known: the document changed meanwhile. Embed and try again."""


def identity_of(chunk: NewChunk) -> ChunkIdentity:
    """What must be equal for a stored passage, its id and its vector to serve for *chunk*."""
    return chunk.content_hash, analyzer_for(chunk.language).name


def not_among(incoming: Sequence[NewChunk], known: Counter[ChunkIdentity]) -> list[int]:
    """The positions of *incoming* that no stored passage of *known* serves for, each serving once."""
    left = Counter(known)
    fresh = []
    for position, chunk in enumerate(incoming):
        identity = identity_of(chunk)
        if left[identity]:
            left[identity] -= 1
        else:
            fresh.append(position)
    return fresh


class ChunkRepository(Repository):
    """A document's passages with their vectors and postings, always all three together."""

    def __init__(self, connection: AsyncConnection, library_id: int, postings: PostingsRepository) -> None:
        super().__init__(connection, library_id)
        self._postings = postings

    async def identities(self, document_id: int) -> Counter[ChunkIdentity]:
        """What is stored of a document, to know which passages need no new vector."""
        query = select(chunks.c.content_hash, chunks.c.analyzer).where(self._of(document_id))
        return Counter((row.content_hash, row.analyzer) for row in await self._connection.execute(query))

    async def of_document(self, document_id: int) -> list[Chunk]:
        """A document's passages in order."""
        query = select(chunks).where(self._of(document_id)).order_by(chunks.c.chunk_index)
        return [_chunk(row) for row in (await self._connection.execute(query)).mappings()]

    async def replace(
        self,
        document_id: int,
        incoming: Sequence[NewChunk],
        vectors: Mapping[int, NDArray[np.float32]],
        space_id: int,
    ) -> int:
        """Make *incoming* the document's passages and return how many are new.

        A stored passage with the same text keeps its id, vector and postings. *vectors* holds a vector by position
        for the others (`not_among`); raises `MissingVectors` when one of them is not there.
        """
        ids, fresh = await self._match(document_id, incoming)
        if not vectors.keys() >= set(fresh):
            raise MissingVectors
        removed = await self._remove_except(document_id, ids.values())
        for position, chunk_id in zip(fresh, await self._new_ids(len(fresh)), strict=True):
            ids[position] = chunk_id
        await self._store(document_id, incoming, ids)
        await self.save_vectors({ids[position]: vectors[position] for position in fresh}, space_id)
        added = [_indexed(ids[position], incoming[position]) for position in fresh]
        await self._postings.change(removed=removed, added=added)
        return len(fresh)

    async def save_vectors(self, vectors: Mapping[int, NDArray[np.float32]], space_id: int) -> None:
        """Store vectors by chunk id, replacing those that are there."""
        if not vectors:
            return
        await self._connection.execute(_INCOMING_VECTORS)
        await self._copy("incoming_vectors", ("chunk_id", "embedding"), list(vectors.items()))
        await self._connection.execute(_SAVE_VECTORS, {"library_id": self._library_id, "space_id": space_id})
        await self._connection.execute(text("drop table incoming_vectors"))

    async def delete_all(self, document_id: int) -> None:
        """Remove a document's passages, vectors and postings."""
        await self._postings.change(removed=await self._remove_except(document_id, ()))

    def _of(self, document_id: int) -> Any:
        return and_(chunks.c.library_id == self._library_id, chunks.c.document_id == document_id)

    async def _match(self, document_id: int, incoming: Sequence[NewChunk]) -> tuple[dict[int, int], list[int]]:
        query = select(chunks.c.id, chunks.c.content_hash, chunks.c.analyzer).where(self._of(document_id))
        stored: dict[ChunkIdentity, deque[int]] = defaultdict(deque)
        for row in await self._connection.execute(query.order_by(chunks.c.chunk_index)):
            stored[row.content_hash, row.analyzer].append(row.id)
        ids: dict[int, int] = {}
        fresh = []
        for position, chunk in enumerate(incoming):
            candidates = stored.get(identity_of(chunk))
            if candidates:
                ids[position] = candidates.popleft()
            else:
                fresh.append(position)
        return ids, fresh

    async def _remove_except(self, document_id: int, kept: Iterable[int]) -> list[Indexed]:
        doomed = and_(self._of(document_id), chunks.c.id != func.all(list(kept)))
        query = select(chunks.c.id, chunks.c.analyzer, chunks.c.chunk_text).where(doomed)
        rows = (await self._connection.execute(query)).all()
        if rows:
            await self._connection.execute(delete(chunks).where(doomed))
        return [Indexed(row.id, row.analyzer, row.chunk_text) for row in rows]

    async def _new_ids(self, count: int) -> Sequence[int]:
        return (await self._connection.execute(_NEW_IDS, {"count": count})).scalars().all()

    async def _store(self, document_id: int, incoming: Sequence[NewChunk], ids: Mapping[int, int]) -> None:
        scope = {"library_id": self._library_id, "document_id": document_id}
        await self._connection.execute(_INCOMING)
        records = [_record(ids[position], position, chunk) for position, chunk in enumerate(incoming)]
        await self._copy("incoming_chunks", _COLUMNS, records)
        await self._connection.execute(_STEP_ASIDE, scope)
        await self._connection.execute(_MOVE, scope)
        await self._connection.execute(_INSERT, scope)
        await self._connection.execute(text("drop table incoming_chunks"))


def _indexed(chunk_id: int, chunk: NewChunk) -> Indexed:
    return Indexed(chunk_id, analyzer_for(chunk.language).name, chunk.text)


def _record(chunk_id: int, position: int, chunk: NewChunk) -> tuple[Any, ...]:
    locator = chunk.locator
    return (
        chunk_id,
        position if chunk.index is None else chunk.index,
        chunk.text,
        " ".join(chunk.text.split()),
        chunk.content_hash,
        locator.char_start,
        locator.char_end,
        chunk.token_count,
        locator.layer,
        chunk.language,
        analyzer_for(chunk.language).name,
        json.dumps(locator.to_json(), ensure_ascii=False),
        json.dumps(list(locator.section_path), ensure_ascii=False),
    )


def _chunk(row: Mapping[Any, Any]) -> Chunk:
    return Chunk(
        id=row["id"],
        document_id=row["document_id"],
        index=row["chunk_index"],
        text=row["chunk_text"],
        content_hash=row["content_hash"],
        locator=Locator.from_json(row["locator"]),
    )
