"""One pass over files: which are unchanged, reading and storing the others, and saying how far it is."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from philorag.errors import DatabaseUnavailable, PhiloragError, ProcessingError, error_payload, new_incident
from philorag.ingestion.sources import SourceFile, Walk, hash_unchanged
from philorag.model import DocumentFields, IngestCounts, ItemFailure, SourceState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from philorag.ingestion.guard import ReaderPool, ReadResult
    from philorag.ingestion.pipeline import DocumentPipeline, StoredDocument
    from philorag.model import Caller, KnownSource
    from philorag.storage.database import Database

__all__ = ["IngestProgress", "IngestRun", "read_state"]

_LOG = logging.getLogger(__name__)
_SLICE = 5_000
_TOGETHER = 3


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far an ingest is.

    *done* counts documents, those under way by the share of their passages that is embedded, and never falls;
    *message* names what was worked on last.
    """

    done: float
    total: int
    message: str
    counts: IngestCounts


if TYPE_CHECKING:
    ProgressReport = Callable[[IngestProgress], Awaitable[None]]


class IngestRun:
    """Brings files into a library, a few at a time; *counts* is right at every moment."""

    def __init__(
        self,
        caller: Caller,
        database: Database,
        pipeline: DocumentPipeline,
        readers: ReaderPool,
        progress: ProgressReport | None,
    ) -> None:
        self.counts = IngestCounts()
        self._caller = caller
        self._database = database
        self._pipeline = pipeline
        self._readers = readers
        self._progress = progress
        self._total = 0
        self._shares: dict[str, float] = {}
        self._message = ""
        self._news = asyncio.Event()

    async def file(self, file: SourceFile, *, force: bool) -> None:
        """Ingest one file. Raises what is wrong with it."""
        self._total = 1
        reporting = asyncio.create_task(self._report_news())
        try:
            for changed in await self._changed([file], force=force):
                self._count(await self._read_and_store(changed))
        finally:
            await self._last_report(reporting)

    async def folder(self, walk: Walk, *, force: bool) -> None:
        """Ingest what a walk found; a file that fails is counted and stops nothing."""
        self.counts.failed.extend(walk.failed)
        self._total = len(walk.files) + len(walk.failed)
        reporting = asyncio.create_task(self._report_news())
        try:
            await self._ingest_all(await self._changed(walk.files, force=force))
        finally:
            await self._last_report(reporting)

    async def _changed(self, files: Sequence[SourceFile], *, force: bool) -> list[SourceFile]:
        """The files that need reading; the others are counted as unchanged."""
        changed: list[SourceFile] = []
        for start in range(0, len(files), _SLICE):
            part = files[start : start + _SLICE]
            known = await self._known(part)
            verdicts = {file: await self._same(file, known.get(file.logical), force=force) for file in part}
            await self._touch(
                {k.document_id: s for f, s in verdicts.items() if s and (k := known[f.logical]).source != s}
            )
            changed.extend(file for file, state in verdicts.items() if state is None)
            self.counts.unchanged += sum(state is not None for state in verdicts.values())
            self._tell("looking for changes")
        return changed

    async def _known(self, files: Sequence[SourceFile]) -> dict[str, KnownSource]:
        async with self._database.unit_of_work(self._caller) as work:
            return await work.documents.known_sources([file.logical for file in files])

    async def _touch(self, states: Mapping[int, SourceState]) -> None:
        if states:
            async with self._database.unit_of_work(self._caller) as work:
                await work.documents.touch_sources(states)
                await work.commit()

    async def _same(self, file: SourceFile, known: KnownSource | None, *, force: bool) -> SourceState | None:
        """What to remember of an unchanged file; None for one that must be read."""
        if force or known is None or known.source is None or known.pipeline_version != self._pipeline.version:
            return None
        same_times = (known.source.size, known.source.mtime_ns) == (file.size, file.mtime_ns)
        if same_times or await asyncio.to_thread(hash_unchanged, file, known.source):
            return SourceState(sha256=known.source.sha256, size=file.size, mtime_ns=file.mtime_ns)
        return None

    async def _ingest_all(self, files: Sequence[SourceFile]) -> None:
        waiting = iter(files)

        async def take_turns() -> None:
            for file in waiting:
                await self._ingest_one(file)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_TOGETHER):
                    group.create_task(take_turns())
        except ExceptionGroup as failures:
            # The first failure ended the others' work; it is the one that says why.
            raise failures.exceptions[0] from failures

    async def _ingest_one(self, file: SourceFile) -> None:
        try:
            self._count(await self._read_and_store(file))
        except DatabaseUnavailable:
            raise
        except PhiloragError as error:
            reason = error.reason if isinstance(error, ProcessingError) else error.message
            self.counts.failed.append(ItemFailure(file.logical, error.code, reason))
        except Exception as error:  # noqa: BLE001
            # One bad file must never stop the others, not even one that meets a bug of ours.
            self.counts.failed.append(_bug(file, error))
        finally:
            self._shares.pop(file.logical, None)
            self._tell(file.logical)

    async def _read_and_store(self, file: SourceFile) -> StoredDocument:
        self._tell(file.logical)
        read = await self._readers.read(file.path)
        fields = DocumentFields(
            origin="philograph_ingest",
            source_uri=f"file:{file.logical}",
            path=file.logical,
            source=read_state(read),
            metadata={"media_type": read.document.media_type},
        )

        def embedded(done: int, total: int) -> None:
            self._shares[file.logical] = done / total
            self._tell(f"{file.logical}: {done} of {total} passages")

        return await self._pipeline.store(self._caller, fields, read.document, on_embedded=embedded)

    def _count(self, stored: StoredDocument) -> None:
        self.counts.added += stored.created
        self.counts.updated += not stored.created
        self.counts.chunks_added += stored.chunks_added

    def _tell(self, message: str) -> None:
        self._message = message
        self._news.set()

    async def _report_news(self) -> None:
        """Report the latest state; what happens while a report is on its way is told with the next."""
        reported = -1.0
        while self._progress is not None:
            await self._news.wait()
            self._news.clear()
            reported = max(reported, self.counts.documents + sum(self._shares.values()))
            await self._progress(IngestProgress(round(reported, 3), self._total, self._message, self.counts))

    async def _last_report(self, reporting: asyncio.Task[None]) -> None:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        if self._progress is not None:
            await self._progress(IngestProgress(self.counts.documents, self._total, self._message, self.counts))


def read_state(read: ReadResult) -> SourceState:
    """What to remember of a file that was read."""
    return SourceState(sha256=read.sha256, size=read.size, mtime_ns=read.mtime_ns)


def _bug(file: SourceFile, error: Exception) -> ItemFailure:
    incident = new_incident()
    _LOG.error("Incident %s while ingesting %s", incident, file.logical, exc_info=error)
    payload = error_payload(error, incident=incident)["error"]
    return ItemFailure(file.logical, payload["code"], payload["message"])
