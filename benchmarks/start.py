"""`start`: how long a client waits for its tools, for a first answer, and for the smallest answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Goal, p50
from benchmarks.libraries import CACHE, EXAMPLES, opened
from benchmarks.talk import ERAS
from benchmarks.transports import TRANSPORTS, bare, philorag

if TYPE_CHECKING:
    from benchmarks.talk import Era, Talk
    from benchmarks.transports import Server

__all__ = ["measure"]

_LIBRARY = "examples"
_STARTS = 11
_CALLS = 200
_WARM = 20


async def measure(sample: int | None) -> list[Figure]:
    async with opened(_LIBRARY, source_dir=EXAMPLES) as library:
        await library.services.ingestion.ingest(library.caller, ".")
    ours = philorag(PHILORAG_DATA_DIR=CACHE / "store", PHILORAG_LIBRARY=_LIBRARY, PHILORAG_SOURCE_DIR=EXAMPLES)
    starts = sample or _STARTS
    search = await asyncio.to_thread(_first_search, ours, max(3, starts // 3))
    # While it is open nobody who leaves has to stop the database, nobody who comes to start it.
    async with opened(_LIBRARY, source_dir=EXAMPLES):
        listing = await asyncio.to_thread(_listing, ours, starts)
        trips = [await asyncio.to_thread(_round_trip, ours, how, era) for how in TRANSPORTS for era in ERAS]
    return [listing, search, *trips]


def _listing(ours: Server, starts: int) -> Figure:
    theirs = bare(_tools(ours))
    pairs = [(_time_to_tools(ours), _time_to_tools(theirs)) for _ in range(starts)]
    gateway, plain = (p50(times) for times in zip(*pairs, strict=True))
    return Figure(
        what="process start to tools/list / the same of a bare server",
        value=gateway / plain,
        goal=Goal("≤", 1.25),
        note=f"{gateway:.2f} s / {plain:.2f} s, medians of {starts} alternating starts over stdio",
    )


def _first_search(ours: Server, runs: int) -> Figure:
    times = [_time_to_search(ours) for _ in range(runs)]
    return Figure(
        what="process start to first search",
        value=p50(times),
        unit="s",
        goal=Goal("≤", 5),
        note=f"database not running, {runs} runs, slowest {max(times):.1f} s",
    )


def _round_trip(ours: Server, how: str, era: Era) -> Figure:
    open_talk = TRANSPORTS[how]
    with open_talk(ours, era) as gateway, open_talk(bare(_tools(ours)), era) as plain:
        for _ in range(_WARM):
            gateway.call("gateway_status")
            plain.call("trivial_0")
        pairs = [(_time(gateway, "gateway_status"), _time(plain, "trivial_0")) for _ in range(_CALLS)]
    status, trivial = (p50(times) * 1000 for times in zip(*pairs, strict=True))
    return Figure(
        what=f"gateway_status / a trivial tool of a bare server, {how}, {era} era",
        value=status / trivial,
        goal=Goal("≤", 1.5),
        note=f"{status:.1f} ms / {trivial:.1f} ms, medians of {_CALLS} alternating calls",
    )


def _tools(server: Server) -> int:
    with TRANSPORTS["stdio"](server, "handshake") as talk:
        return talk.tools()


def _time_to_tools(server: Server) -> float:
    begun = time.perf_counter()
    with TRANSPORTS["stdio"](server, "handshake") as talk:
        talk.tools()
        return time.perf_counter() - begun


def _time_to_search(server: Server) -> float:
    begun = time.perf_counter()
    with TRANSPORTS["stdio"](server, "handshake") as talk:
        talk.tools()
        assert talk.call("philograph_search", query="Is virtue knowledge?")["result"]
        return time.perf_counter() - begun


def _time(talk: Talk, tool: str) -> float:
    begun = time.perf_counter()
    talk.call(tool)
    return time.perf_counter() - begun
