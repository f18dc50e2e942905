"""`ingest`: what a whole ingest costs beside embedding, and how much memory it takes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure, Goal
from benchmarks.libraries import data_folder
from benchmarks.memory import watched
from benchmarks.transports import TRANSPORTS, philorag
from philorag.embedding.local import LocalEmbedder
from philorag.model import SearchFilters
from philorag.services import Services
from philorag.settings import Settings
from philorag.storage.embedded import EmbeddedPostgres
from philorag.testing import temporary_database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.memory import Peaks
    from benchmarks.talk import Talk

__all__ = ["measure"]

_LIBRARY = "books"
_POLL_S = 0.2


async def measure(sample: int | None) -> list[Figure]:
    """A sample is that many of the books, smallest first."""
    with temporary_database() as data_dir, tempfile.TemporaryDirectory() as folder:
        books = sorted((data_folder() / "books").glob("*_*.md"), key=lambda book: book.stat().st_size)[:sample]
        for book in books:
            shutil.copy(book, folder)
        whole, peaks = await asyncio.to_thread(_ingest, data_dir, Path(folder))
        settings = Settings(data_dir=data_dir, library=_LIBRARY)
        texts = await _passages(settings)
        alone = await asyncio.to_thread(_embed, settings, texts)
    return [
        Figure(
            what="embedding alone / whole ingest",
            value=alone / whole,
            goal=Goal("≥", 0.80),
            note=f"{alone:.1f} s / {whole:.1f} s, {len(texts):,} passages of {len(books)} books",
        ),
        Figure(what="resident memory, gateway", value=peaks.gateway, unit="MB", digits=0, goal=Goal("<", 700)),
        Figure(what="resident memory, largest reader", value=peaks.reader, unit="MB", digits=0, goal=Goal("<", 256)),
        Figure(what="memory, PostgreSQL", value=peaks.postgres, unit="MB", digits=0, note="all its processes"),
    ]


def _ingest(data_dir: Path, folder: Path) -> tuple[float, Peaks]:
    """Seconds and peaks of one ingest by a gateway that is up."""
    server = philorag(PHILORAG_DATA_DIR=data_dir, PHILORAG_LIBRARY=_LIBRARY, PHILORAG_SOURCE_DIR=folder)
    postmaster = EmbeddedPostgres(data_dir / "postgres").pid
    assert postmaster is not None
    with TRANSPORTS["stdio"](server, "handshake") as talk:
        talk.call("gateway_status")
        with watched(talk.pid, postmaster) as peaks:
            begun = time.perf_counter()
            report = _finished(talk, talk.call("philograph_ingest", path="."))
            whole = time.perf_counter() - begun
    assert not report.get("documents_failed"), report
    return whole, peaks


def _finished(talk: Talk, report: dict[str, Any]) -> dict[str, Any]:
    """The report of a job that may go on after its call was answered."""
    while report["status"] == "running":
        time.sleep(_POLL_S)
        report = talk.call("job_status", job_id=report["job_id"])
    return report


async def _passages(settings: Settings) -> Sequence[str]:
    async with await Services.open(settings) as services:
        caller = await services.local_caller()
        async with services.database.unit_of_work(caller) as work:
            space = await work.libraries.active_space()
            assert space is not None
            anywhere = services.embedder.embed_query("anything")
            found = await work.passages.nearest(anywhere, space, SearchFilters(), limit=1_000_000)
    return [one.passage.text for one in sorted(found, key=lambda one: one.passage.chunk_id)]


def _embed(settings: Settings, texts: Sequence[str]) -> float:
    embedder = LocalEmbedder(threads=settings.embedding_threads)
    embedder.embed_passages(texts[:8])
    begun = time.perf_counter()
    embedder.embed_passages(texts)
    return time.perf_counter() - begun
