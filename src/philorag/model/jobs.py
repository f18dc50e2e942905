from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["IngestCounts", "IngestReport", "ItemFailure", "Job", "JobState"]

JobState = Literal["running", "completed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """One file that an ingest could not take, by its logical path, with the contract's error code."""

    path: str
    code: str
    reason: str


@dataclass(slots=True)
class IngestCounts:
    """How far an ingest is; *failed* grows with it."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    chunks_added: int = 0
    failed: list[ItemFailure] = field(default_factory=list)

    @property
    def documents(self) -> int:
        return self.added + self.updated + self.unchanged + len(self.failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """What an ingest did."""

    job_id: int
    state: JobState
    counts: IngestCounts
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Long work of a library; the row outlives the call that began it."""

    id: int
    kind: str
    state: JobState
    progress: dict[str, Any]
    failures: tuple[ItemFailure, ...]
    result: dict[str, Any] | None
