"""Toolset `ingest`: bringing files and texts into the library."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from philorag.model import DocumentFields, publication_day
from philorag.plugins import CurrentToolContext, Plugin, Registrar, ToolContext
from philorag.tools._types import Path, Text, split_authors, storable, written

if TYPE_CHECKING:
    from philorag.ingestion.run import IngestProgress

__all__ = ["plugin"]

_LONGEST_TEXT = 2_000_000
_SUFFIXES = {"md": ".md", "markdown": ".md", "html": ".html", "htm": ".html", "xhtml": ".html"}


class FailedItem(BaseModel):
    path: str
    code: str
    reason: str


class IngestResult(BaseModel):
    message: str
    job_id: str
    status: Literal["completed", "running", "failed"]
    documents_added: int
    documents_updated: int
    documents_unchanged: int
    documents_failed: list[FailedItem]
    chunks_added: int
    duration_s: float


class DocMetadata(BaseModel):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    source_uri: Annotated[Text, Field(min_length=1, max_length=2_000, examples=["file:plato/republic.txt"])]
    title: Annotated[Text, Field(max_length=1_000)] | None = None
    authors: Annotated[Text, Field(max_length=2_000, examples=["Plato; B. Jowett"])] | None = None
    publication_date: Annotated[str, Field(pattern=r"^\d{4}(-\d{2}){0,2}$", examples=["1892"])] | None = None

    @model_validator(mode="after")
    def _storable(self) -> DocMetadata:
        storable(self.model_extra or {})
        if self.publication_date is not None and publication_day(self.publication_date) is None:
            raise ValueError("`publication_date` is no date of the calendar")
        return self


class ProcessedFile(BaseModel):
    success: Literal[True] = True
    doc_id: int | None
    chunk_count: int


class PutDetails(BaseModel):
    count: int
    collection: str
    filepath: str
    vector_dimension: int
    persist_directory: Literal["postgresql"] = "postgresql"
    document_id: str
    chunk_count: int


class PutResult(BaseModel):
    status: Literal["success"] = "success"
    message: str
    details: PutDetails


async def philograph_ingest(
    path: Annotated[Path, Field(description="File or folder, relative to the source folder", examples=["plato"])],
    recursive: bool = True,
    force: Annotated[bool, Field(description="Read unchanged files again")] = False,
    context: ToolContext = CurrentToolContext(),
) -> IngestResult:
    """Ingest a file or a folder (Markdown, text, HTML, EPUB, PDF) of the source folder into the library.

    Unchanged files cost nothing. One bad file never stops the others: it is listed in documents_failed.
    """
    services, caller = await context.services(), await context.caller()

    async def progress(state: IngestProgress) -> None:
        await context.report_progress(state.done, state.total, state.message)

    report = await services.ingestion.ingest(caller, path, recursive=recursive, force=force, progress=progress)
    counts = report.counts
    return IngestResult(
        message=f"{counts.added} added, {counts.updated} updated, {counts.unchanged} unchanged, "
        f"{len(counts.failed)} failed.",
        job_id=str(report.job_id),
        status="completed",
        documents_added=counts.added,
        documents_updated=counts.updated,
        documents_unchanged=counts.unchanged,
        documents_failed=[FailedItem(path=one.path, code=one.code, reason=one.reason) for one in counts.failed],
        chunks_added=counts.chunks_added,
        duration_s=report.duration_s,
    )


async def process_text_file(
    file_path: Annotated[Path, Field(description="Relative to the source folder", examples=["plato/republic.txt"])],
    doc_metadata: Annotated[
        DocMetadata,
        Field(description="Further members become metadata", examples=[{"source_uri": "file:republic.txt"}]),
    ],
    context: ToolContext = CurrentToolContext(),
) -> ProcessedFile:
    """Ingest one file under metadata that you give. An empty file is no document: doc_id is null."""
    services, caller = await context.services(), await context.caller()
    stored = await services.ingestion.ingest_file(caller, file_path, _fields(doc_metadata))
    if stored is None:
        return ProcessedFile(doc_id=None, chunk_count=0)
    return ProcessedFile(doc_id=stored.document_id, chunk_count=stored.chunk_count)


async def put_document(
    text: Annotated[
        Text,
        Field(min_length=1, max_length=_LONGEST_TEXT, examples=["All men by nature desire to know."]),
        AfterValidator(written),
    ],
    filepath: Annotated[
        Path, Field(description="Identifies the document; no file is opened", examples=["notes/a.txt"])
    ],
    file_type: Annotated[
        Text, Field(min_length=1, max_length=50, description="md, html or txt; others are read as plain text")
    ],
    normalize: Annotated[bool, Field(description="Store vectors with unit length")] = False,
    context: ToolContext = CurrentToolContext(),
) -> PutResult:
    """Store a text under an identifier, replacing what was stored under it before."""
    services, caller = await context.services(), await context.caller()
    filepath = unicodedata.normalize("NFC", filepath)
    fields = DocumentFields(
        origin="put_document",
        source_uri=f"put:{filepath}",
        path=f"put/{filepath}",
        metadata={"file_type": file_type},
    )
    suffix = _SUFFIXES.get(file_type.lower().lstrip("."), ".txt")
    stored = await services.ingestion.ingest_text(caller, text, suffix, fields, unit_length=normalize)
    return PutResult(
        message=f"Stored {filepath} as document {stored.document_id} with {stored.chunk_count} passages.",
        details=PutDetails(
            count=stored.chunk_count,
            collection=caller.library,
            filepath=filepath,
            vector_dimension=services.embedder.space.dimensions,
            document_id=str(stored.document_id),
            chunk_count=stored.chunk_count,
        ),
    )


def _fields(given: DocMetadata) -> DocumentFields:
    return DocumentFields(
        origin="process_text_file",
        source_uri=given.source_uri,
        title=given.title,
        authors=split_authors(given.authors),
        publication_date=given.publication_date,
        metadata=given.model_extra or {},
    )


def register(registrar: Registrar) -> None:
    registrar.tool(title="Ingest files", writes=True, destroys=True, idempotent=True)(philograph_ingest)
    registrar.tool(title="Ingest one file with metadata", writes=True, destroys=True, idempotent=True)(
        process_text_file
    )
    registrar.tool(title="Store a text", writes=True, destroys=True, idempotent=True, status_in_errors=True)(
        put_document
    )


plugin = Plugin("ingest", register)
