from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import ColumnElement, Select, and_, delete, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert

from philorag.errors import PermissionDenied
from philorag.model import Document, DocumentFields, KnownSource, SourceState, publication_day
from philorag.storage.repositories.base import Repository
from philorag.storage.tables import document_tags, documents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from philorag.storage.repositories.chunks import ChunkRepository

__all__ = ["SUMMARY_CHARS", "DocumentListing", "DocumentRepository", "SavedDocument", "document_columns", "to_document"]

SUMMARY_CHARS = 200
# Of thousands of files at once, as after a fresh checkout.
_TOUCH = text("""
update documents d set source_size = t.size, source_mtime_ns = t.mtime_ns
  from unnest(cast(:ids as bigint[]), cast(:sizes as bigint[]), cast(:times as bigint[])) as t (id, size, mtime_ns)
 where d.library_id = :library_id and d.id = t.id
""")
SortKey = Literal["created_at", "modified_at", "title"]


@dataclass(frozen=True, slots=True)
class SavedDocument:
    id: int
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentListing:
    """Which documents to list, in which order, and which page of them. Dates are inclusive, UTC."""

    tags: tuple[str, ...] = ()
    category: str | None = None
    is_generated: bool | None = None
    created_from: date | None = None
    created_to: date | None = None
    search_title: str | None = None
    sort_by: SortKey = "created_at"
    descending: bool = True
    limit: int = 50
    offset: int = 0


def document_columns() -> list[ColumnElement[Any]]:
    """Every column of a document but its text, with the text's beginning as `summary`."""
    without_text = [column for column in documents.c if column.name != "content"]
    return [*without_text, func.left(documents.c.content, SUMMARY_CHARS).label("summary")]


def to_document(row: Mapping[Any, Any]) -> Document:
    """A `Document` from a row of `document_columns`."""
    return Document(
        id=row["id"],
        kind=row["kind"],
        origin=row["origin"],
        source_uri=row["source_uri"],
        path=row["path"],
        title=row["title"],
        authors=tuple(row["authors"]),
        publication_date=row["publication_date"],
        language=row["language"],
        category=row["category"],
        tags=tuple(row["tags"]),
        metadata=row["metadata_jsonb"],
        extracted_text_hash=row["extracted_text_hash"],
        word_count=row["word_count"],
        version=row["version"],
        created_at=row["created_at"],
        modified_at=row["modified_at"],
        last_processed_at=row["last_processed_at"],
        summary=row["summary"],
    )


class DocumentRepository(Repository):
    """The library's documents. One that is missing and one of another library look the same: None."""

    def __init__(self, connection: AsyncConnection, library_id: int, chunks: ChunkRepository) -> None:
        super().__init__(connection, library_id)
        self._chunks = chunks

    async def save(self, fields: DocumentFields, content: str | None) -> SavedDocument:
        """Insert, or replace what the same tool stored under the same `source_uri`; the id stays.

        *content* None leaves the text as it is. The row is locked until the transaction ends. Raises
        `PermissionDenied` when another tool made it.
        """
        mine = documents.c.library_id == self._library_id
        # Two who bring the same new document at once: the second waits here, and then replaces what the first made.
        await self._connection.execute(
            select(func.pg_advisory_xact_lock(_lock_key(self._library_id, fields.source_uri)))
        )
        existing = await self.replaceable(fields, lock=True)
        values = {**_values(fields), **({} if content is None else _text_values(content))}
        if existing is None:
            insertion = insert(documents).values(library_id=self._library_id, **values).returning(documents.c.id)
            document_id = (await self._connection.execute(insertion)).scalar_one()
        else:
            document_id = existing
            change = {**values, "version": documents.c.version + 1, "modified_at": func.now()}
            await self._connection.execute(
                update(documents).where(mine, documents.c.id == document_id).values(**change)
            )
        await self._replace_tags(document_id, fields.tags)
        return SavedDocument(document_id, created=existing is None)

    async def replaceable(self, fields: DocumentFields, *, lock: bool = False) -> int | None:
        """The id of the document that *fields* would replace; None when it would be new.

        Raises `PermissionDenied` when another tool made it.
        """
        query = select(documents.c.id, documents.c.origin).where(
            documents.c.library_id == self._library_id, documents.c.source_uri == fields.source_uri
        )
        row = (await self._connection.execute(query.with_for_update() if lock else query)).one_or_none()
        if row is not None and row.origin != fields.origin:
            raise PermissionDenied(
                f"This document was made by {row.origin}, and only {row.origin} may replace it. "
                "Choose another source_uri or path.",
                source_uri=fields.source_uri,
            )
        return None if row is None else int(row.id)

    async def set_content(self, document_id: int, content: str) -> None:
        """Replace a document's text alone."""
        change = {**_text_values(content), "version": documents.c.version + 1, "modified_at": func.now()}
        await self._connection.execute(update(documents).where(self._is(document_id)).values(**change))

    async def get(self, document_id: int) -> Document | None:
        return await self._one(self._is(document_id))

    async def lock(self, document_id: int) -> Document | None:
        """Like `get`, and nobody else changes the document until the transaction ends."""
        return await self._one(self._is(document_id), lock=True)

    async def id_of(self, source_uri: str) -> int | None:
        query = select(documents.c.id).where(
            documents.c.library_id == self._library_id, documents.c.source_uri == source_uri
        )
        document_id: int | None = await self._connection.scalar(query)
        return document_id

    async def by_path(self, path: str) -> Document | None:
        return await self._one(and_(documents.c.library_id == self._library_id, documents.c.path == path))

    async def content(self, document_id: int, offset: int = 0, max_chars: int | None = None) -> tuple[str, int]:
        """The text from code point *offset* on, and how many code points the whole has."""
        length = func.char_length(documents.c.content)
        part = func.substring(documents.c.content, offset + 1, length if max_chars is None else max_chars)
        row = (await self._connection.execute(select(part, length).where(self._is(document_id)))).one_or_none()
        return ("", 0) if row is None else (row[0], row[1])

    async def known_sources(self, paths: Sequence[str]) -> dict[str, KnownSource]:
        """What is remembered of the files at *paths* (logical paths)."""
        query = select(
            documents.c.path,
            documents.c.id,
            documents.c.version,
            documents.c.source_sha256,
            documents.c.source_size,
            documents.c.source_mtime_ns,
            documents.c.pipeline_version,
        ).where(documents.c.library_id == self._library_id, documents.c.path == func.any(paths))
        return {row.path: _known(row._asdict()) for row in await self._connection.execute(query)}

    async def touch_sources(self, states: Mapping[int, SourceState]) -> None:
        """Remember new times of files whose contents are the same."""
        columns = {
            "ids": list(states),
            "sizes": [state.size for state in states.values()],
            "times": [state.mtime_ns for state in states.values()],
        }
        await self._connection.execute(_TOUCH, {"library_id": self._library_id, **columns})

    async def delete(self, document_id: int) -> None:
        """Remove a document with everything that hangs on it."""
        await self._chunks.delete_all(document_id)
        await self._connection.execute(delete(documents).where(self._is(document_id)))

    async def page(self, listing: DocumentListing) -> tuple[list[Document], int]:
        """A page of documents, and how many there are in all. Materials are never listed."""
        conditions = self._listed(listing)
        total = await self._connection.scalar(select(func.count()).select_from(documents).where(*conditions))
        key = func.lower(documents.c.title) if listing.sort_by == "title" else documents.c[listing.sort_by]
        order = (
            (key.desc().nulls_last(), documents.c.id.desc())
            if listing.descending
            else (
                key.asc().nulls_last(),
                documents.c.id.asc(),
            )
        )
        query = select(*document_columns()).where(*conditions).order_by(*order)
        rows = await self._connection.execute(query.limit(listing.limit).offset(listing.offset))
        return [to_document(row) for row in rows.mappings()], total or 0

    def _is(self, document_id: int) -> ColumnElement[bool]:
        return and_(documents.c.library_id == self._library_id, documents.c.id == document_id)

    async def _one(self, condition: ColumnElement[bool], *, lock: bool = False) -> Document | None:
        query: Select[Any] = select(*document_columns()).where(condition, documents.c.kind != "material")
        row = (await self._connection.execute(query.with_for_update() if lock else query)).mappings().one_or_none()
        return None if row is None else to_document(row)

    def _listed(self, listing: DocumentListing) -> list[ColumnElement[bool]]:
        conditions = [documents.c.library_id == self._library_id, documents.c.kind != "material"]
        if listing.is_generated is not None:
            conditions.append((documents.c.kind == "generated") == listing.is_generated)
        if listing.category is not None:
            conditions.append(documents.c.category == listing.category)
        if listing.search_title is not None:
            conditions.append(documents.c.title.icontains(listing.search_title, autoescape=True))
        if listing.created_from is not None:
            conditions.append(documents.c.created_at >= _midnight(listing.created_from))
        if listing.created_to is not None:
            conditions.append(documents.c.created_at < _midnight(listing.created_to + timedelta(days=1)))
        for tag in listing.tags:
            tagged = select(document_tags.c.document_id).where(
                document_tags.c.library_id == self._library_id, document_tags.c.tag == tag
            )
            conditions.append(documents.c.id.in_(tagged))
        return conditions

    async def _replace_tags(self, document_id: int, tags: Sequence[str]) -> None:
        mine = and_(document_tags.c.library_id == self._library_id, document_tags.c.document_id == document_id)
        await self._connection.execute(delete(document_tags).where(mine))
        rows = [{"library_id": self._library_id, "document_id": document_id, "tag": tag} for tag in dict.fromkeys(tags)]
        if rows:
            await self._connection.execute(upsert(document_tags).on_conflict_do_nothing(), rows)


def _lock_key(library_id: int, source_uri: str) -> int:
    digest = hashlib.sha256(f"{library_id}:{source_uri}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def _values(fields: DocumentFields) -> dict[str, Any]:
    source = fields.source
    return {
        "kind": fields.kind,
        "origin": fields.origin,
        "source_uri": fields.source_uri,
        "path": fields.path,
        "title": fields.title,
        "authors": list(fields.authors),
        "publication_date": fields.publication_date,
        "publication_day": publication_day(fields.publication_date),
        "language": fields.language,
        "category": fields.category,
        "tags": list(fields.tags),
        "metadata_jsonb": fields.metadata,
        "extracted_text_hash": fields.extracted_text_hash,
        "pipeline_version": fields.pipeline_version,
        "source_sha256": source.sha256 if source else None,
        "source_size": source.size if source else None,
        "source_mtime_ns": source.mtime_ns if source else None,
        "last_processed_at": func.now() if fields.pipeline_version else None,
    }


def _text_values(content: str) -> dict[str, Any]:
    return {
        "content": content,
        "content_sha256": hashlib.sha256(content.encode()).hexdigest(),
        "word_count": len(content.split()),
    }


def _known(row: dict[str, Any]) -> KnownSource:
    read_before = row["source_sha256"] is not None
    return KnownSource(
        document_id=row["id"],
        version=row["version"],
        pipeline_version=row["pipeline_version"],
        source=SourceState(sha256=row["source_sha256"], size=row["source_size"], mtime_ns=row["source_mtime_ns"])
        if read_before
        else None,
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, tzinfo=UTC)
