"""`philorag doctor` and `philorag plugins`: what is configured, what works, and what to do about what doesn't."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.markup import escape
from rich.table import Table

from philorag.errors import PhiloragError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from philorag.settings import Settings
    from philorag.storage.database import StoreStatus

__all__ = ["examine", "show_plugins"]

_OLDEST_PGVECTOR = (0, 8, 0)
_ADVISED_PGVECTOR = (0, 8, 2)
_LOW_DISK = 1 << 30
_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]warning[/]", "failed": "[red]failed[/]"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, and what to do about it."""

    subject: str
    state: Literal["ok", "warning", "failed"]
    text: str


async def examine(console: Console, settings: Settings) -> int:
    """Print every finding and return the exit code: 1 when something failed."""
    findings = [*_folders(settings), *_plugins(settings), *await _model(settings), *await _store(settings)]
    table = Table("what", "state", "", show_edge=False, pad_edge=False)
    for finding in findings:
        table.add_row(finding.subject, _MARKS[finding.state], escape(finding.text))
    console.print(table)
    return int(any(finding.state == "failed" for finding in findings))


def show_plugins(console: Console, settings: Settings) -> None:
    """Print every installed plugin with its tools, or with what keeps it out."""
    from philorag.plugins import load_plugins  # noqa: PLC0415 - FastMCP takes a second to import

    table = Table("toolset", "distribution", "version", "tools", show_edge=False, pad_edge=False)
    for loaded in load_plugins(settings):
        tools = ", ".join(loaded.tools) if loaded.problem is None else f"[red]left out:[/] {escape(loaded.problem)}"
        table.add_row(loaded.toolset, loaded.distribution, loaded.version, tools)
    console.print(table)


def _folders(settings: Settings) -> Iterator[Finding]:
    yield Finding("library", "ok", settings.library)
    folder = settings.data_dir
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    state: Literal["ok", "warning"] = "ok" if free > _LOW_DISK else "warning"
    yield Finding("data folder", state, f"{folder} ({free / 1e9:.1f} GB free)")
    yield _source_folder(settings)


def _source_folder(settings: Settings) -> Finding:
    source = settings.source_folder
    if source.is_dir():
        return Finding("source folder", "ok", str(source))
    if settings.source_dir is None:
        return Finding("source folder", "ok", f"{source} (made at the first ingest; PHILORAG_SOURCE_DIR names another)")
    return Finding("source folder", "failed", f"{source} isn't there: make it, or correct PHILORAG_SOURCE_DIR")


def _plugins(settings: Settings) -> Iterator[Finding]:
    from philorag.plugins import load_plugins  # noqa: PLC0415 - `--help` needs none of it

    for loaded in load_plugins(settings):
        name = f"plugin {loaded.toolset}"
        if loaded.problem is None:
            yield Finding(name, "ok", f"{loaded.distribution} {loaded.version}, {len(loaded.tools)} tools")
        else:
            advice = "update or uninstall it, or name it in PHILORAG_PLUGINS_DISABLED"
            yield Finding(name, "failed", f"{loaded.problem}; {advice}")


async def _model(settings: Settings) -> list[Finding]:
    return await (_endpoint(settings) if settings.uses_embedding_endpoint else _local_model(settings))


async def _endpoint(settings: Settings) -> list[Finding]:
    from philorag.embedding.providers import open_endpoint  # noqa: PLC0415 - `--help` needs none of it
    from philorag.services import chunk_limits  # noqa: PLC0415 - `--help` needs none of it

    try:
        embedder = await asyncio.to_thread(open_endpoint, settings)
        with contextlib.closing(embedder):
            await asyncio.to_thread(embedder.probe)
            limits = chunk_limits(settings, embedder)
    except PhiloragError as error:
        return [Finding("embedding model", "failed", error.message)]
    space = embedder.space
    text = f"{space.provider}/{space.model} at {embedder.host}, {space.dimensions} dimensions"
    return [Finding("embedding model", "ok", f"{text}, passages of {limits.size} tokens")]


async def _local_model(settings: Settings) -> list[Finding]:
    from philorag.embedding.local import LocalEmbedder, verify  # noqa: PLC0415 - `--help` needs none of it

    try:
        damaged = await asyncio.to_thread(verify)
        embedder = await asyncio.to_thread(LocalEmbedder, threads=settings.embedding_threads)
    except PhiloragError as error:
        return [Finding("embedding model", "failed", error.message)]
    if damaged:
        advice = "reinstall philorag-e5-small"
        return [Finding("embedding model", "failed", f"damaged files: {', '.join(damaged)}; {advice}")]
    space = embedder.space
    text = f"{space.provider}/{space.model}, {space.dimensions} dimensions, {settings.embedding_threads} threads"
    return [Finding("embedding model", "ok", text)]


async def _store(settings: Settings) -> list[Finding]:
    from philorag.storage.database import Database  # noqa: PLC0415 - `--help` needs none of it

    try:
        database = await Database.open(settings)
    except PhiloragError as error:
        return [Finding("database", "failed", error.message)]
    try:
        return list(_of_store(await database.status()))
    finally:
        await database.close()


def _of_store(status: StoreStatus) -> Iterator[Finding]:
    text = f"{status.kind} PostgreSQL {status.server_version}, schema {status.schema_revision}"
    yield Finding("database", "ok", text)
    installed = status.extensions.get("vector", "0")
    version = tuple(int(part) for part in installed.split("."))
    if version < _OLDEST_PGVECTOR:
        yield Finding("pgvector", "failed", f"{installed} is too old: upgrade to 0.8.2 or newer")
    elif version < _ADVISED_PGVECTOR:
        yield Finding("pgvector", "warning", f"{installed} has a known security fault: upgrade to 0.8.2 or newer")
    else:
        yield Finding("pgvector", "ok", installed)
    if status.row_security:
        yield Finding("row security", "ok", f"serving as {status.serving_role}")
    else:
        advice = "let the schema's owner create roles (CREATEROLE) and run `philorag db upgrade`"
        yield Finding("row security", "warning", f"{status.serving_role} bypasses row security: {advice}")
