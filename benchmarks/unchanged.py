"""`unchanged`: how long it takes to see that nothing changed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Goal
from benchmarks.libraries import opened
from philorag.testing import temporary_database

if TYPE_CHECKING:
    from philorag.model import IngestReport

__all__ = ["measure"]

_FILES = 2_000


async def measure(sample: int | None) -> list[Figure]:
    files = sample or _FILES
    with temporary_database() as data_dir, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(files):
            shelf = folder / f"shelf-{number % 20}"
            shelf.mkdir(exist_ok=True)
            (shelf / f"{number}.md").write_text("Being and time.\n", encoding="utf-8")
        first = await _ingest(data_dir, folder)
        again = await _ingest(data_dir, folder)
        for file in folder.rglob("*.md"):
            file.touch()
        touched = await _ingest(data_dir, folder)
    assert (first.counts.added, again.counts.unchanged, touched.counts.unchanged) == (files, files, files)
    return [
        Figure(
            what=f"second ingest of {files:,} unchanged files",
            value=again.duration_s,
            unit="s",
            goal=Goal("≤", 2),
            note=f"the first took {first.duration_s:.1f} s",
        ),
        Figure(what="the same when all have new times", value=touched.duration_s, unit="s", note="hashed again"),
    ]


async def _ingest(data_dir: Path, folder: Path) -> IngestReport:
    async with opened("unchanged", data_dir, source_dir=folder) as library:
        return await library.services.ingestion.ingest(library.caller, ".")
