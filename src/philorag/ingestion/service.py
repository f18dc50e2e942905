"""Ingest as its callers see it: a file or folder, one file with given metadata, or a text."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from philorag.errors import DatabaseUnavailable, ProcessingError
from philorag.ingestion.run import IngestRun, read_state
from philorag.ingestion.sources import SourceFolder
from philorag.model import DocumentFields, IngestCounts, IngestReport, JobState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from philorag.ingestion.guard import ReaderPool
    from philorag.ingestion.pipeline import DocumentPipeline, StoredDocument
    from philorag.ingestion.run import ProgressReport
    from philorag.model import Caller
    from philorag.storage.database import Database

__all__ = ["IngestService"]

_LOG = logging.getLogger(__name__)
_INDEX_FROM = 10_000


class IngestService:
    """Brings files and texts into a library."""

    def __init__(
        self, database: Database, pipeline: DocumentPipeline, readers: ReaderPool, source_folder: Path
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._readers = readers
        self._source_folder = source_folder

    async def sources(self, caller: Caller) -> SourceFolder:
        """The folder that callers may ingest from; made when it isn't there.

        Where it was ingested from the command line before, as a root or below one, its files keep the paths that they
        got then.
        """
        folder = self._source_folder
        folder.mkdir(parents=True, exist_ok=True)
        async with self._database.unit_of_work(caller) as work:
            names = await work.roots.names()
        return _below_root(folder, names) or SourceFolder(folder)

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
        sources = await self.sources(caller)
        return await self._ingest(caller, sources, sources.resolve(path), recursive, force, progress)

    async def ingest_folder(
        self, caller: Caller, path: Path, *, force: bool = False, progress: ProgressReport | None = None
    ) -> IngestReport:
        """Ingest any file or folder of this machine, for the operator: outside the source folder it becomes a root."""
        target = Path(os.path.abspath(path))  # noqa: PTH100 - links are resolved where they are vetted
        if target.is_relative_to(self._source_folder):
            sources = await self.sources(caller)
        else:
            folder = target if target.is_dir() else target.parent
            SourceFolder(folder).resolve(str(target))
            async with self._database.unit_of_work(caller) as work:
                rooted = _below_root(folder, await work.roots.names())
                if rooted is None:
                    name = await work.roots.name_of(str(folder), self._free_name(folder.name or "root"))
                    await work.commit()
            sources = rooted or SourceFolder(folder, f"documents/{name}")
        return await self._ingest(caller, sources, sources.resolve(str(target)), True, force, progress)

    def _free_name(self, wanted: str) -> str:
        """*wanted*, with a number where a folder of the source folder has that name already."""
        numbered = (f"{wanted}-{number}" if number > 1 else wanted for number in itertools.count(1))
        return next(name for name in numbered if not os.path.lexists(self._source_folder / name))

    async def ingest_file(self, caller: Caller, file_path: str, fields: DocumentFields) -> StoredDocument | None:
        """Ingest one file of the source folder under *fields*; None when it is empty."""
        sources = await self.sources(caller)
        file = sources.file(sources.resolve(file_path, "file_path"))
        try:
            read = await self._readers.read(file.path)
        except ProcessingError as error:
            if error.reason == "empty":
                return None
            raise
        return await self._pipeline.store(caller, replace(fields, source=read_state(read)), read.document)

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
        run = IngestRun(caller, self._database, self._pipeline, self._readers, progress)
        arguments = {"path": sources.logical(target), "recursive": recursive, "force": force}
        async with self._job(caller, arguments, run.counts) as job_id:
            if target.is_dir():
                await run.folder(await asyncio.to_thread(sources.walk, target, recursive=recursive), force=force)
            else:
                await run.file(sources.file(target), force=force)
            await self._tidy(caller, run.counts)
        duration_s = round(time.monotonic() - begun, 3)
        return IngestReport(job_id=job_id, state="completed", counts=run.counts, duration_s=duration_s)

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

    async def _tidy(self, caller: Caller, counts: IngestCounts) -> None:
        if not counts.chunks_added:
            return
        async with self._database.unit_of_work(caller) as work:
            await work.postings.compact()
            size, space = await work.passages.size(), await work.libraries.active_space()
            await work.commit()
        if space is not None and size >= _INDEX_FROM:
            await self._database.index_space(space.id)


def _below_root(folder: Path, names: Mapping[str, str]) -> SourceFolder | None:
    """*folder* under the paths that a registered root gave its files, if it is one or lies below one."""
    for root in (folder, *folder.parents):
        if str(root) in names:
            prefix = PurePosixPath("documents", names[str(root)], folder.relative_to(root).as_posix())
            return SourceFolder(folder, prefix.as_posix())
    return None
