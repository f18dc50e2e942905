"""The ground floor: plain dataclasses that every layer shares. Imports nothing of ours but itself."""

from philorag.model.blocks import Block, BlockKind, Layer, NoteAuthor, ReadDocument
from philorag.model.caller import Caller
from philorag.model.documents import (
    Chunk,
    Document,
    DocumentFields,
    DocumentKind,
    KnownSource,
    NewChunk,
    Origin,
    SourceState,
    publication_day,
)
from philorag.model.jobs import IngestCounts, IngestReport, ItemFailure, Job, JobState
from philorag.model.locator import CanonicalReference, Locator
from philorag.model.search import DocumentHit, Hit, Leg, SearchFilters, StoredPassage

__all__ = [
    "Block",
    "BlockKind",
    "Caller",
    "CanonicalReference",
    "Chunk",
    "Document",
    "DocumentFields",
    "DocumentHit",
    "DocumentKind",
    "Hit",
    "IngestCounts",
    "IngestReport",
    "ItemFailure",
    "Job",
    "JobState",
    "KnownSource",
    "Layer",
    "Leg",
    "Locator",
    "NewChunk",
    "NoteAuthor",
    "Origin",
    "ReadDocument",
    "SearchFilters",
    "SourceState",
    "StoredPassage",
    "publication_day",
]
