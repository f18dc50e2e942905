"""Ingest as its callers see it: a file or folder, one file with given metadata, or a text."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from philorag.errors import DatabaseUnavailable, PhiloragError, ProcessingError, error_payload, new_incident
from philorag.ingestion.sources import SourceFile, SourceFolder, Walk, hash_unchanged
from philorag.model import DocumentFields, IngestCounts, IngestReport, ItemFailure, JobState, SourceState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from philorag.ingestion.guard import ReaderPool, ReadResult
    from philorag.ingestion.pipeline import DocumentPipeline, StoredDocument
    from philorag.model import Caller, KnownSource
    from philorag.storage.database import Database

__all__ = ["IngestProgress", "IngestService", "ProgressReport"]

_LOG = logging.getLogger(__name__)
_SLICE = 5_000
_TOGETHER = 3
_INDEX_FROM = 10_000


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far an ingest is, in documents, and the one that was last finished."""

    done: int
    total: int
    path: str
    counts: IngestCounts


if TYPE_CHECKING:
    ProgressReport = Callable[[IngestProgress], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Run:
    caller: Caller
    total: int
    counts: IngestCounts
    progress: ProgressReport | None


class IngestService:
    """Brings files and texts into a library."""

    def __init__(
        self, database: Database, pipeline: DocumentPipeline, readers: ReaderPool, source_folder: Path
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._readers = readers
        self._source_folder = source_folder

    @property
    def sources(self) -> SourceFolder:
        """The folder that callers may ingest from; made when it isn't there."""
        self._source_folder.mkdir(parents=True, exist_ok=True)
        return SourceFolder(self._source_folder)

    async def ingest(
        self,
        caller: Caller,
        path: str,
        *,
        recursive: bool = True,
        force: bool = False,
        progress: ProgressReport | None = None,
    ) -> IngestReport:
        """Ingest a file or a folder of the source folder.

        A file that is named and fails raises its error; inside a folder it is a row of `counts.failed`.
        """
        sources = self.sources
        return await self._ingest(caller, sources, sources.resolve(path), recursive, force, progress)

    async def ingest_folder(
        self, caller: Caller, path: Path, *, force: bool = False, progress: ProgressReport | None = None
    ) -> IngestReport:
        """Ingest any file or folder of this machine, for the operator: outside the source folder it becomes a root."""
        target = Path(os.path.abspath(path))  # noqa: PTH100 - links are resolved where they are vetted
        if target.is_relative_to(self._source_folder):
            sources = self.sources
        else:
            folder = target if target.is_dir() else target.parent
            SourceFolder(folder).resolve(str(target))
            async with self._database.unit_of_work(caller) as work:
                name = await work.roots.name_of(str(folder), self._free_name(folder.name or "root"))
                await work.commit()
            sources = SourceFolder(folder, f"documents/{name}")
        return await self._ingest(caller, sources, sources.resolve(str(target)), True, force, progress)

    def _free_name(self, wanted: str) -> str:
        """*wanted*, with a number where a folder of the source folder has that name already."""
        numbered = (f"{wanted}-{number}" if number > 1 else wanted for number in itertools.count(1))
        return next(name for name in numbered if not os.path.lexists(self._source_folder / name))

    async def ingest_file(self, caller: Caller, file_path: str, fields: DocumentFields) -> StoredDocument | None:
        """Ingest one file of the source folder under *fields*; None when it is empty."""
        sources = self.sources
        file = sources.file(sources.resolve(file_path, "file_path"))
        try:
            read = await self._readers.read(file.path)
        except ProcessingError as error:
            if error.reason == "empty":
                return None
            raise
        return await self._pipeline.store(caller, replace(fields, source=_state(read)), read.document)

    async def ingest_text(
        self, caller: Caller, text: str, suffix: str, fields: DocumentFields, *, unit_length: bool = False
    ) -> StoredDocument:
        """Ingest *text*, read as a file whose name ends in *suffix* (`.md`, `.html` or `.txt`).

        With *unit_length* its vectors are scaled to length 1 before they are stored.
        """
        with tempfile.TemporaryDirectory(prefix="philorag-") as folder:
            path = Path(folder) / f"text{suffix}"
            await asyncio.to_thread(path.write_text, text, encoding="utf-8")
            read = await self._readers.read(path)
        return await self._pipeline.store(caller, fields, read.document, unit_length=unit_length)

    async def _ingest(
        self,
        caller: Caller,
        sources: SourceFolder,
        target: Path,
        recursive: bool,
        force: bool,
        progress: ProgressReport | None,
    ) -> IngestReport:
        begun = time.monotonic()
        await self._pipeline.space(caller)
        counts = IngestCounts()
        arguments = {"path": sources.logical(target), "recursive": recursive, "force": force}
        async with self._job(caller, arguments, counts) as job_id:
            if target.is_dir():
                walk = await asyncio.to_thread(sources.walk, target, recursive=recursive)
            else:
                walk = Walk(files=[sources.file(target)])
            counts.failed.extend(walk.failed)
            run = _Run(caller, len(walk.files) + len(walk.failed), counts, progress)
            await self._ingest_files(run, await self._changed(run, walk.files, force=force), alone=not target.is_dir())
            await self._tidy(caller, counts)
        return IngestReport(
            job_id=job_id, state="completed", counts=counts, duration_s=round(time.monotonic() - begun, 3)
        )

    @asynccontextmanager
    async def _job(self, caller: Caller, arguments: dict[str, Any], counts: IngestCounts) -> AsyncIterator[int]:
        async with self._database.unit_of_work(caller) as work:
            job_id = await work.jobs.start("ingest", arguments)
            await work.commit()
        state: JobState = "failed"
        try:
            yield job_id
            state = "completed"
        except asyncio.CancelledError:
            state = "cancelled"
            raise
        finally:
            await asyncio.shield(self._finish(caller, job_id, state, counts))

    async def _finish(self, caller: Caller, job_id: int, state: JobState, counts: IngestCounts) -> None:
        result = {name: value for name, value in asdict(counts).items() if name != "failed"}
        try:
            async with self._database.unit_of_work(caller) as work:
                await work.jobs.finish(job_id, state, result=result, failures=counts.failed)
                await work.commit()
        except DatabaseUnavailable:
            _LOG.warning("The end of job %d could not be recorded: the database is gone", job_id)

    async def _changed(self, run: _Run, files: Sequence[SourceFile], *, force: bool) -> list[SourceFile]:
        """The files that need reading; the others are counted as unchanged."""
        changed: list[SourceFile] = []
        for start in range(0, len(files), _SLICE):
            part = files[start : start + _SLICE]
            known = await self._known(run.caller, part)
            verdicts = {file: await self._same(file, known.get(file.logical), force=force) for file in part}
            touched = {k.document_id: s for f, s in verdicts.items() if s and (k := known[f.logical]).source != s}
            await self._touch(run.caller, touched)
            changed.extend(file for file, state in verdicts.items() if state is None)
            run.counts.unchanged += sum(state is not None for state in verdicts.values())
        if run.counts.documents:
            await self._report(run, files[-1].logical if files else "")
        return changed

    async def _known(self, caller: Caller, files: Sequence[SourceFile]) -> dict[str, KnownSource]:
        async with self._database.unit_of_work(caller) as work:
            return await work.documents.known_sources([file.logical for file in files])

    async def _touch(self, caller: Caller, states: Mapping[int, SourceState]) -> None:
        if states:
            async with self._database.unit_of_work(caller) as work:
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

    async def _ingest_files(self, run: _Run, files: Iterable[SourceFile], *, alone: bool) -> None:
        waiting = iter(files)

        async def take_turns() -> None:
            for file in waiting:
                await self._ingest_one(run, file, alone=alone)
                await self._report(run, file.logical)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_TOGETHER):
                    group.create_task(take_turns())
        except ExceptionGroup as failures:
            # The first failure ended the others' work; it is the one that says why.
            raise failures.exceptions[0] from failures

    async def _ingest_one(self, run: _Run, file: SourceFile, *, alone: bool) -> None:
        try:
            stored = await self._read_and_store(run.caller, file)
        except DatabaseUnavailable:
            raise
        except PhiloragError as error:
            if alone:
                raise
            reason = error.reason if isinstance(error, ProcessingError) else error.message
            run.counts.failed.append(ItemFailure(file.logical, error.code, reason))
        except Exception as error:
            if alone:
                raise
            # One bad file must never stop the others, not even one that meets a bug of ours.
            run.counts.failed.append(_bug(file, error))
        else:
            run.counts.added += stored.created
            run.counts.updated += not stored.created
            run.counts.chunks_added += stored.chunks_added

    async def _read_and_store(self, caller: Caller, file: SourceFile) -> StoredDocument:
        read = await self._readers.read(file.path)
        fields = DocumentFields(
            origin="philograph_ingest",
            source_uri=f"file:{file.logical}",
            path=file.logical,
            source=_state(read),
            metadata={"media_type": read.document.media_type},
        )
        return await self._pipeline.store(caller, fields, read.document)

    async def _tidy(self, caller: Caller, counts: IngestCounts) -> None:
        if not counts.chunks_added:
            return
        async with self._database.unit_of_work(caller) as work:
            await work.postings.compact()
            size, space = await work.passages.size(), await work.libraries.active_space()
            await work.commit()
        if space is not None and size >= _INDEX_FROM:
            await self._database.index_space(space.id)

    @staticmethod
    async def _report(run: _Run, path: str) -> None:
        if run.progress is not None:
            await run.progress(IngestProgress(run.counts.documents, run.total, path, run.counts))


def _state(read: ReadResult) -> SourceState:
    return SourceState(sha256=read.sha256, size=read.size, mtime_ns=read.mtime_ns)


def _bug(file: SourceFile, error: Exception) -> ItemFailure:
    incident = new_incident()
    _LOG.error("Incident %s while ingesting %s", incident, file.logical, exc_info=error)
    payload = error_payload(error, incident=incident)["error"]
    return ItemFailure(file.logical, payload["code"], payload["message"])
