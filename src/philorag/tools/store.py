"""Toolset `store`: documents, passages and vectors that a client makes by itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from philorag.errors import InvalidInput
from philorag.model import DocumentFields, SearchFilters
from philorag.plugins import CurrentToolContext, Plugin, Registrar, ToolContext
from philorag.tools._types import (
    Arguments,
    Day,
    DocumentId,
    JsonObject,
    Metadata,
    Path,
    Text,
    Untrusted,
    document_metadata,
    joined_authors,
    one_of,
    split_authors,
    storable,
    to_id,
)

__all__ = ["plugin"]

_LARGEST_CALL = 32_000_000
_BYTES_PER_NUMBER = 4

Vector = Annotated[list[float], Field(min_length=1, max_length=4_000)]


class AddedDocument(BaseModel):
    success: Literal[True] = True
    doc_id: int


class GivenChunk(Arguments):
    chunk_text: Annotated[Text, Field(min_length=1, max_length=100_000)]
    chunk_index: Annotated[int, Field(ge=0, le=10_000_000)]
    embedding: Vector


class InsertedChunks(BaseModel):
    success: Literal[True] = True
    inserted_count: int


class SimilarityFilters(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    publication_date_after: Day | None = None
    publication_date_before: Day | None = None

    @model_validator(mode="after")
    def _storable(self) -> SimilarityFilters:
        storable(self.model_extra or {})
        return self


class SimilarChunk(Untrusted):
    chunk_id: int
    document_id: int
    chunk_text: str
    score: Annotated[float, Field(description="Cosine distance")]
    metadata: dict[str, Any]


class SimilarChunks(BaseModel):
    success: Literal[True] = True
    results: list[SimilarChunk]


class DocumentMetadata(Untrusted):
    success: Literal[True] = True
    document_id: str
    path: str | None
    metadata: Metadata
    frontmatter: str


async def add_document(
    source_uri: Annotated[Text, Field(min_length=1, max_length=2_000, examples=["https://example.org/ethics"])],
    title: Annotated[Text, Field(max_length=1_000)] | None = None,
    authors: Annotated[Text, Field(max_length=2_000, examples=["A. One; B. Two"])] | None = None,
    publication_date: Day | None = None,
    metadata_jsonb: JsonObject | None = None,
    extracted_text_hash: Annotated[Text, Field(max_length=200)] | None = None,
    context: ToolContext = CurrentToolContext(),
) -> AddedDocument:
    """Add a document without text, or replace the fields of the one with this source_uri; what is omitted becomes null.

    Its text comes with batch_insert_chunks.
    """
    services, caller = await context.services(), await context.caller()
    fields = DocumentFields(
        origin="add_document",
        source_uri=source_uri,
        title=title,
        authors=split_authors(authors),
        publication_date=publication_date,
        metadata=metadata_jsonb or {},
        extracted_text_hash=extracted_text_hash,
    )
    return AddedDocument(doc_id=await services.store.add_document(caller, fields))


async def batch_insert_chunks(
    document_id: DocumentId,
    chunks: Annotated[
        list[GivenChunk],
        Field(min_length=1, max_length=2_000, examples=[[{"chunk_text": "...", "chunk_index": 0, "embedding": [0.1]}]]),
    ],
    context: ToolContext = CurrentToolContext(),
) -> InsertedChunks:
    """Insert passages with vectors of the library's embedding space, replacing those of the same index; all or none.

    The document's text becomes its passages in order, joined by blank lines.
    """
    from philorag.library.store import ClientChunk  # noqa: PLC0415 - numpy comes after tools/list

    _refuse_too_large(chunks)
    services, caller = await context.services(), await context.caller()
    given = [ClientChunk(chunk.chunk_text, chunk.chunk_index, chunk.embedding) for chunk in chunks]
    return InsertedChunks(inserted_count=await services.store.insert_chunks(caller, to_id(document_id), given))


async def query_similar_chunks(
    query_embedding: Vector,
    top_k: Annotated[int, Field(ge=1, le=100)] = 5,
    filters: Annotated[
        SimilarityFilters | None,
        Field(description="Dates are exclusive; any other key is contained in metadata_jsonb"),
    ] = None,
    context: ToolContext = CurrentToolContext(),
) -> SimilarChunks:
    """Find the passages whose vectors are nearest to a vector of the library's embedding space, nearest first."""
    services, caller = await context.services(), await context.caller()
    given = filters or SimilarityFilters.model_validate({})
    narrowed = SearchFilters(
        published_after=given.publication_date_after,
        published_before=given.publication_date_before,
        metadata=given.model_extra or {},
    )
    near = await services.store.query_similar(caller, query_embedding, top_k, narrowed)
    return SimilarChunks(
        results=[
            SimilarChunk(
                chunk_id=one.passage.chunk_id,
                document_id=one.passage.document.id,
                chunk_text=one.passage.text,
                score=1 - one.cosine,
                metadata={
                    "source_uri": one.passage.document.source_uri,
                    "title": one.passage.document.title,
                    "authors": joined_authors(one.passage.document),
                    "publication_date": one.passage.document.publication_date,
                    **one.passage.document.metadata,
                },
            )
            for one in near
        ]
    )


async def get_document_metadata(
    doc_id: DocumentId | None = None,
    document_id: DocumentId | None = None,
    path: Path | None = None,
    context: ToolContext = CurrentToolContext(),
) -> DocumentMetadata:
    """Everything that is known of a document, but its text. Give exactly one of doc_id, document_id and path."""
    one_of(doc_id=doc_id, document_id=document_id, path=path)
    services, caller = await context.services(), await context.caller()
    named = doc_id if doc_id is not None else document_id
    document = await services.documents.get(caller, document_id=None if named is None else to_id(named), path=path)
    return DocumentMetadata(
        document_id=str(document.id),
        path=document.path,
        metadata=Metadata.model_validate(document_metadata(document)),
        frontmatter="",
    )


def _refuse_too_large(chunks: list[GivenChunk]) -> None:
    size = sum(len(chunk.chunk_text.encode()) + _BYTES_PER_NUMBER * len(chunk.embedding) for chunk in chunks)
    if size > _LARGEST_CALL:
        raise InvalidInput(
            f"`chunks` is too large: {size} bytes of text and vectors, and a call may have {_LARGEST_CALL} (32 MB). "
            "Send fewer passages at once, such as 500.",
            argument="chunks",
        )


def register(registrar: Registrar) -> None:
    registrar.tool(title="Add a document", writes=True, destroys=True, idempotent=True)(add_document)
    registrar.tool(title="Insert passages", writes=True, destroys=True, idempotent=True)(batch_insert_chunks)
    registrar.tool(title="Find similar passages")(query_similar_chunks)
    registrar.tool(title="Get a document's metadata")(get_document_metadata)


plugin = Plugin("store", register)
