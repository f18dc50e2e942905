"""`search`: what a search costs beside its query's vector and its SQL, and how long it takes in a large library."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastmcp import Client

from benchmarks.bare_sql import bare_sql, overheard
from benchmarks.figures import Figure, Goal, p50, p95
from benchmarks.libraries import CACHE, collection, data_folder, opened
from benchmarks.synthetic import PASSAGES_EACH, fill
from philorag.server import build_gateway
from philorag.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from fastmcp import FastMCP

    from benchmarks.libraries import Opened
    from philorag.embedding.protocol import Embedder

__all__ = ["measure"]

_DOCUMENTS = 10_000
_QUERIES = 120
_WARM = 10
_FOLDERS = ("books", "epub", "tei")


async def measure(sample: int | None) -> list[Figure]:
    """A sample is that many queries of each collection, and that many hundred documents of the large library."""
    tests = [collection(name, sample) for name in ("jowett", "plato_grc_en")]
    by_collection = [list(test.queries.values()) for test in tests]
    # In turn from each, and short enough for the tool.
    queries = [query[:1_000] for together in zip(*by_collection, strict=False) for query in together][:_QUERIES]
    name = f"everything-{sample}" if sample else "everything"
    async with opened(name, source_dir=data_folder()) as library:
        for test in tests:
            await library.add(test)
        for folder in () if sample else _FOLDERS:
            await library.services.ingestion.ingest(library.caller, folder)
        overhead = await _overhead(library, name, queries)
    documents = sample * 100 if sample else _DOCUMENTS
    async with opened(f"synthetic-{documents}") as library:
        await fill(library, documents)
    return [overhead, *await _large(f"synthetic-{documents}", queries, documents)]


async def _overhead(library: Opened, name: str, queries: Sequence[str]) -> Figure:
    whole, vector, sql = [], [], []
    async with bare_sql(CACHE / "store", library.caller.library_id) as bare, _server(name) as server:
        with overheard() as sent:
            for query in queries:
                whole.append(await _search(server, query))
                vector.append(_embed(library.services.embedder, query))
                sql.append(await bare.time(sent.statements[-1]))
        async with library.services.database.unit_of_work(library.caller) as work:
            passages = await work.passages.size()
    search, embedding, statement = (p50(times[_WARM:]) * 1000 for times in (whole, vector, sql))
    return Figure(
        what="philograph_search / (query embedding + bare SQL), p50",
        value=search / (embedding + statement),
        goal=Goal("≤", 1.3),
        note=f"{search:.1f} ms / ({embedding:.1f} ms + {statement:.1f} ms), {passages:,} passages, {len(sql)} queries",
    )


async def _large(name: str, queries: Sequence[str], documents: int) -> list[Figure]:
    async with _server(name) as server:
        times = [await _search(server, query) * 1000 for query in queries][_WARM:]
    note = f"{documents:,} documents of {PASSAGES_EACH} passages, {len(times)} queries"
    return [
        Figure(what=f"philograph_search, {label}", value=value, unit="ms", digits=0, goal=Goal("<", 500), note=note)
        for label, value in (("p50", p50(times)), ("p95", p95(times)))
    ]


@asynccontextmanager
async def _server(library: str) -> AsyncIterator[FastMCP[Any]]:
    """A gateway in this process that serves *library*; the client only keeps it alive."""
    server = build_gateway(Settings(data_dir=CACHE / "store", library=library))
    async with Client(server) as client:
        await client.list_tools()
        yield server


async def _search(server: FastMCP[Any], query: str) -> float:
    begun = time.perf_counter()
    await server.call_tool("philograph_search", {"query": query})
    return time.perf_counter() - begun


def _embed(embedder: Embedder, query: str) -> float:
    begun = time.perf_counter()
    embedder.embed_query(query)
    return time.perf_counter() - begun
