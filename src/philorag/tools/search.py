"""Toolset `search`: passages by both legs, documents by meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from philorag.model import DocumentHit, Hit, SearchFilters
from philorag.plugins import CurrentToolContext, Plugin, Registrar, ToolContext
from philorag.tools._types import (
    DateRange,
    DocumentId,
    LocatorObject,
    Tag,
    Text,
    Untrusted,
    moment,
    storable,
    to_id,
    written,
)

__all__ = ["plugin"]

Year = Annotated[int, Field(ge=1, le=9999)]
Name = Annotated[Text, Field(min_length=1, max_length=300)]


class Filters(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    author: Name | None = None
    title: Name | None = None
    year: Year | None = None
    year_from: Year | None = None
    year_to: Year | None = None
    language: Annotated[str, Field(pattern="^[a-z]{2,3}$", examples=["de"])] | None = None
    tags: Annotated[list[Tag], Field(max_length=20)] | None = None
    category: Name | None = None
    document_id: DocumentId | None = None
    kind: Literal["captured", "generated"] | None = None
    layer: Literal["main", "note", "apparatus"] | None = None

    @model_validator(mode="after")
    def _usable(self) -> Filters:
        storable(self.model_extra or {})
        if self.year is not None and (self.year_from, self.year_to) != (None, None):
            raise ValueError("`year` stands alone: give it, or `year_from` and `year_to`")
        if self.year_from is not None and self.year_to is not None and self.year_from > self.year_to:
            raise ValueError("`year_from` is after `year_to`")
        return self


class Scores(BaseModel):
    dense: float | None
    lexical: float | None


class PassageResult(Untrusted):
    chunk_id: int
    document_id: str
    title: str | None
    authors: list[str]
    text: str
    score: float
    scores: Scores
    matched_by: list[Literal["dense", "lexical"]]
    locator: LocatorObject
    citation: str
    metadata: dict[str, Any]


class PassageResults(BaseModel):
    result: list[PassageResult]
    warnings: list[str]


class DocumentResultMetadata(BaseModel):
    url: str
    tags: list[str]
    category: str | None
    created_at: str | None


class DocumentResult(Untrusted):
    document_id: str
    path: str | None
    title: str | None
    snippet: str
    similarity_score: float
    metadata: DocumentResultMetadata
    locator: LocatorObject


class DocumentResults(BaseModel):
    results: list[DocumentResult]
    total_found: int
    query_embedding_time_ms: int
    warnings: list[str]


Query = Annotated[
    Text, Field(min_length=1, max_length=1_000, examples=["Is virtue knowledge?"]), AfterValidator(written)
]


async def philograph_search(
    query: Query,
    filters: Annotated[
        Filters | None,
        Field(
            description="Narrows; any other key must equal that key of the documents' metadata",
            examples=[{"author": "Plato"}],
        ),
    ] = None,
    limit: Annotated[int, Field(ge=1, le=100)] = 10,
    context: ToolContext = CurrentToolContext(),
) -> PassageResults:
    """Find passages by meaning and by words, best first, each with its citation and exact locator."""
    services, caller = await context.services(), await context.caller()
    answer = await services.search.passages(caller, query, _search_filters(filters), limit)
    return PassageResults(result=[_passage(hit) for hit in answer.hits], warnings=list(answer.warnings))


async def search_documents(
    query: Query,
    max_results: Annotated[int, Field(ge=1, le=100)] | None = None,
    similarity_threshold: Annotated[float, Field(ge=0, le=1)] | None = None,
    filter_generated: Annotated[bool, Field(description="Include documents that agents wrote")] = False,
    filter_tags: Annotated[list[Tag], Field(max_length=20, description="All must match")] | None = None,
    date_range: Annotated[DateRange | None, Field(description="Of creation, inclusive, UTC")] = None,
    context: ToolContext = CurrentToolContext(),
) -> DocumentResults:
    """Find documents by meaning: one row each, with its best passage. Defaults: 10 results, threshold 0.6."""
    services, caller = await context.services(), await context.caller()
    settings, dates = services.settings, date_range or DateRange()
    filters = SearchFilters(
        kinds=("captured", "generated") if filter_generated else ("captured",),
        tags=tuple(filter_tags or ()),
        created_from=dates.start,
        created_to=dates.end,
    )
    answer = await services.search.documents(
        caller,
        query,
        filters,
        limit=settings.search_max_results if max_results is None else max_results,
        threshold=settings.search_similarity_threshold if similarity_threshold is None else similarity_threshold,
    )
    return DocumentResults(
        results=[_document(hit) for hit in answer.hits],
        total_found=answer.total_found,
        query_embedding_time_ms=answer.embedding_ms,
        warnings=list(answer.warnings),
    )


def _search_filters(given: Filters | None) -> SearchFilters:
    if given is None:
        return SearchFilters()
    return SearchFilters(
        author=given.author,
        title=given.title,
        year_from=given.year_from if given.year is None else given.year,
        year_to=given.year_to if given.year is None else given.year,
        language=given.language,
        tags=tuple(given.tags or ()),
        category=given.category,
        document_id=None if given.document_id is None else to_id(given.document_id),
        kinds=(given.kind or "captured",),
        layer=given.layer,
        metadata=given.model_extra or {},
    )


def _passage(hit: Hit) -> PassageResult:
    from philorag.retrieval.citation import cite  # noqa: PLC0415 - nothing of retrieval before tools/list

    document = hit.passage.document
    return PassageResult(
        chunk_id=hit.passage.chunk_id,
        document_id=str(document.id),
        title=document.title,
        authors=list(document.authors),
        text=hit.passage.text,
        score=round(hit.score, 6),
        scores=Scores(dense=hit.dense, lexical=hit.lexical),
        matched_by=list(hit.matched_by),
        locator=LocatorObject.of(hit.passage.locator),
        citation=cite(hit.passage),
        metadata={
            "path": document.path,
            "publication_date": document.publication_date,
            "tags": list(document.tags),
            "category": document.category,
            **document.metadata,
        },
    )


def _document(hit: DocumentHit) -> DocumentResult:
    document = hit.passage.document
    return DocumentResult(
        document_id=str(document.id),
        path=document.path,
        title=document.title,
        snippet=hit.passage.text,
        similarity_score=round(hit.similarity, 6),
        metadata=DocumentResultMetadata(
            url=document.source_uri,
            tags=list(document.tags),
            category=document.category,
            created_at=moment(document.created_at),
        ),
        locator=LocatorObject.of(hit.passage.locator),
    )


def register(registrar: Registrar) -> None:
    registrar.tool(title="Search passages")(philograph_search)
    registrar.tool(title="Search documents")(search_documents)


plugin = Plugin("search", register)
