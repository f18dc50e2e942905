from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal

from philorag.model.locator import Locator

__all__ = [
    "Chunk",
    "Document",
    "DocumentFields",
    "DocumentKind",
    "KnownSource",
    "NewChunk",
    "Origin",
    "SourceState",
    "publication_day",
]

DocumentKind = Literal["captured", "generated", "material"]
Origin = Literal["philograph_ingest", "process_text_file", "put_document", "add_document"]

_DATE = re.compile(r"(\d{4})(?:-(\d{2}))?(?:-(\d{2}))?")


def publication_day(publication_date: str | None) -> date | None:
    """The first day that `YYYY`, `YYYY-MM` or `YYYY-MM-DD` may mean, for comparing; None when it is no such date."""
    match = _DATE.fullmatch(publication_date or "")
    if match is None:
        return None
    year, month, day = (int(part) if part else 1 for part in match.groups())
    try:
        return date(year, month, day)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """What was read: enough to know an unchanged file without opening it."""

    sha256: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentFields:
    """Everything about a document that whoever ingests it decides; the store adds ids, times and counts."""

    origin: Origin
    source_uri: str
    kind: DocumentKind = "captured"
    path: str | None = None
    title: str | None = None
    authors: tuple[str, ...] = ()
    publication_date: str | None = None
    language: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    extracted_text_hash: str | None = None
    source: SourceState | None = None
    pipeline_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A stored document without its text."""

    id: int
    kind: DocumentKind
    origin: Origin
    source_uri: str
    path: str | None
    title: str | None
    authors: tuple[str, ...]
    publication_date: str | None
    language: str | None
    category: str | None
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    extracted_text_hash: str | None
    word_count: int
    version: int
    created_at: datetime
    modified_at: datetime
    last_processed_at: datetime | None
    summary: str = ""

    @property
    def is_generated(self) -> bool:
        return self.kind == "generated"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSource:
    """What the store remembers of a file that was ingested before."""

    document_id: int
    version: int
    source: SourceState | None
    pipeline_version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChunk:
    """A passage that is about to be stored; `content[locator.char_start:locator.char_end] == text`.

    *index* is its number in the document, by default its position among the passages.
    """

    text: str
    content_hash: str
    token_count: int
    language: str | None
    locator: Locator
    index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A stored passage."""

    id: int
    document_id: int
    index: int
    text: str
    content_hash: str
    locator: Locator
