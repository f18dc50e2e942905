"""Toolset `documents`: reading and listing what is in the library."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from philorag.model import Document
from philorag.plugins import CurrentToolContext, Plugin, Registrar, ToolContext
from philorag.tools._types import Arguments, DateRange, DocumentId, Path, Tag, Text, Untrusted, moment, one_of, to_id

__all__ = ["plugin"]


class DocumentFacts(BaseModel):
    title: str | None
    url: str
    tags: list[str]
    category: str | None
    created_at: str | None
    modified_at: str | None
    is_generated: bool
    word_count: int


class DocumentText(Untrusted):
    document_id: str
    path: str | None
    content: str
    metadata: DocumentFacts | None
    frontmatter: str
    next_offset: int | None
    total_chars: int


class ListFilter(Arguments):
    tags: Annotated[list[Tag], Field(max_length=20)] | None = None
    category: Annotated[Text, Field(max_length=300)] | None = None
    is_generated: bool | None = None
    date_range: DateRange | None = None
    search_title: Annotated[Text, Field(min_length=1, max_length=300)] | None = None


class ListedDocument(Untrusted):
    document_id: str
    path: str | None
    title: str | None
    summary: str
    tags: list[str]
    category: str | None
    created_at: str | None
    modified_at: str | None
    is_generated: bool
    word_count: int


class DocumentList(BaseModel):
    documents: list[ListedDocument]
    total: int
    limit: int
    offset: int


async def get_document(
    document_id: DocumentId | None = None,
    path: Annotated[Path | None, Field(examples=["documents/plato/republic.md"])] = None,
    include_metadata: bool = True,
    offset: Annotated[int, Field(ge=0, le=2**31 - 2, description="First character (code point)")] = 0,
    max_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000,
    context: ToolContext = CurrentToolContext(),
) -> DocumentText:
    """Read a document's text, a page at a time: go on at next_offset. Give exactly one of document_id and path."""
    one_of(document_id=document_id, path=path)
    services, caller = await context.services(), await context.caller()
    number = None if document_id is None else to_id(document_id)
    page = await services.documents.page(caller, document_id=number, path=path, offset=offset, max_chars=max_chars)
    return DocumentText(
        document_id=str(page.document.id),
        path=page.document.path,
        content=page.content,
        metadata=_facts(page.document) if include_metadata else None,
        frontmatter="",
        next_offset=page.next_offset,
        total_chars=page.total_chars,
    )


async def list_documents(
    filter: Annotated[ListFilter | None, Field(examples=[{"search_title": "ethics"}])] = None,  # noqa: A002 - contract
    sort_by: Literal["created_at", "modified_at", "title"] = "created_at",
    sort_order: Literal["asc", "desc"] = "desc",
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
    offset: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0,
    context: ToolContext = CurrentToolContext(),
) -> DocumentList:
    """List the library's documents, a page at a time."""
    from philorag.storage.repositories.documents import DocumentListing  # noqa: PLC0415 - SQL comes after tools/list

    services, caller = await context.services(), await context.caller()
    wanted = filter or ListFilter()
    dates = wanted.date_range or DateRange()
    listing = DocumentListing(
        tags=tuple(wanted.tags or ()),
        category=wanted.category,
        is_generated=wanted.is_generated,
        created_from=_day(dates.start),
        created_to=_day(dates.end),
        search_title=wanted.search_title,
        sort_by=sort_by,
        descending=sort_order == "desc",
        limit=limit,
        offset=offset,
    )
    documents, total = await services.documents.listing(caller, listing)
    return DocumentList(documents=[_listed(one) for one in documents], total=total, limit=limit, offset=offset)


def _day(value: str | None) -> date | None:
    return None if value is None else date.fromisoformat(value)


def _facts(document: Document) -> DocumentFacts:
    return DocumentFacts(
        title=document.title,
        url=document.source_uri,
        tags=list(document.tags),
        category=document.category,
        created_at=moment(document.created_at),
        modified_at=moment(document.modified_at),
        is_generated=document.is_generated,
        word_count=document.word_count,
    )


def _listed(document: Document) -> ListedDocument:
    facts = _facts(document).model_dump(exclude={"url"})
    return ListedDocument(document_id=str(document.id), path=document.path, summary=document.summary, **facts)


def register(registrar: Registrar) -> None:
    registrar.tool(title="Read a document")(get_document)
    registrar.tool(title="List documents")(list_documents)


plugin = Plugin("documents", register)
