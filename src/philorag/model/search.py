from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from philorag.model.blocks import Layer
from philorag.model.documents import Document, DocumentKind
from philorag.model.locator import Locator

__all__ = ["DocumentHit", "Hit", "Leg", "SearchFilters", "StoredPassage"]

Leg = Literal["dense", "lexical"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilters:
    """How a caller narrows a search. What the server imposes (the library) is not in here."""

    author: str | None = None
    title: str | None = None
    year_from: int | None = None
    year_to: int | None = None
    published_after: str | None = None
    published_before: str | None = None
    created_from: str | None = None
    created_to: str | None = None
    language: str | None = None
    tags: tuple[str, ...] = ()
    category: str | None = None
    document_id: int | None = None
    kinds: tuple[DocumentKind, ...] = ("captured",)
    layer: Layer | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPassage:
    """A passage with what is needed to show and cite it."""

    chunk_id: int
    text: str
    locator: Locator
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage that a search found.

    *score* is in 0..1 and comparable within one answer; *dense* is the cosine similarity, *lexical* the BM25 score;
    *matched_by* names the legs whose best passages it is among.
    """

    passage: StoredPassage
    score: float
    dense: float | None
    lexical: float | None
    matched_by: tuple[Leg, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentHit:
    """A document with its best passage and that passage's similarity to the query in 0..1."""

    passage: StoredPassage
    similarity: float
