"""`philorag ingest`: a progress bar while it works, then what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from philorag.ingestion.run import IngestProgress
    from philorag.model import Caller, IngestReport, ItemFailure
    from philorag.services import Services

__all__ = ["show_ingest"]

_WIDEST_NAME = 44
_ADVICE = {
    "unsupported_format": "not a format that philorag reads",
    "encrypted": "protected by a password: remove it and try again",
    "corrupt": "damaged, or not in the encoding that it claims",
    "empty": "no text in it",
    "no_text": "pictures of pages without text: run OCR over it first",
    "too_large": "larger than may be read",
    "timeout": "took too long to read (PHILORAG_READER_TIMEOUT)",
    "unreadable": "no permission to read it",
    "not_a_file": "not a regular file",
    "vanished": "gone before it was read",
    "out_of_memory": "needs more memory than allowed (PHILORAG_READER_MEMORY)",
}


async def show_ingest(console: Console, services: Services, caller: Caller, path: Path, *, force: bool) -> int:
    """Ingest *path* and return the exit code: 1 when files failed and none came in."""
    with _bar(console) as bar:
        task = bar.add_task("looking for files", total=None)

        async def progress(state: IngestProgress) -> None:
            bar.update(task, completed=state.done, total=state.total, description=_short(state.message))

        report = await services.ingestion.ingest_folder(caller, path, force=force, progress=progress)
        bar.update(task, description="done")
    _summary(console, report)
    if report.counts.failed:
        _failures(console, report.counts.failed)
    return 1 if report.counts.failed and report.counts.documents == len(report.counts.failed) else 0


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TextColumn("{task.completed:.0f}/{task.total} documents"),
        TimeElapsedColumn(),
        console=console,
    )


def _short(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    shown = name if len(name) <= _WIDEST_NAME else f"{name[: _WIDEST_NAME - 1]}…"
    return escape(shown.ljust(_WIDEST_NAME))


def _summary(console: Console, report: IngestReport) -> None:
    counts = report.counts
    console.print(
        f"[bold]{counts.added}[/] added, [bold]{counts.updated}[/] updated, [bold]{counts.unchanged}[/] unchanged, "
        f"[bold]{len(counts.failed)}[/] failed; {counts.chunks_added} new passages in {report.duration_s:.1f} s."
    )


def _failures(console: Console, failures: list[ItemFailure]) -> None:
    table = Table("not read", "why", title=None, show_edge=False, pad_edge=False)
    for failure in failures:
        table.add_row(escape(failure.path), escape(_ADVICE.get(failure.reason, failure.reason)))
    console.print(table)
