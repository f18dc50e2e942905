"""The statement that a search sends, taken off the wire and sent again with nothing around it."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg
from pgvector.asyncpg import register_vector
from sqlalchemy import Engine, event

from philorag.storage.database import SERVING_ROLE
from philorag.storage.embedded import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

__all__ = ["BareSql", "Sent", "bare_sql", "overheard"]

# As the gateway's own connections have them.
_SETTINGS = {
    "role": SERVING_ROLE,
    "timezone": "UTC",
    "jit": "off",
    "hnsw.iterative_scan": "relaxed_order",
    "hnsw.ef_search": "100",
}
_SEARCHES = "lex_postings"


@dataclass(frozen=True, slots=True)
class Sent:
    """Every search statement since it began to listen, with its parameters in order."""

    statements: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)


@contextmanager
def overheard() -> Iterator[Sent]:
    """The searches that SQLAlchemy hands to the driver meanwhile."""
    sent = Sent()

    def hear(_: object, __: object, statement: str, parameters: Any, ___: object, ____: object) -> None:
        if _SEARCHES in statement:
            sent.statements.append((statement, tuple(parameters)))

    event.listen(Engine, "before_cursor_execute", hear)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", hear)


@dataclass(frozen=True, slots=True)
class BareSql:
    connection: asyncpg.Connection[Any]

    async def time(self, statement: tuple[str, tuple[Any, ...]]) -> float:
        """Seconds from sending to having all rows."""
        query, parameters = statement
        begun = time.perf_counter()
        await self.connection.fetch(query, *parameters)
        return time.perf_counter() - begun


@asynccontextmanager
async def bare_sql(data_dir: Path, library_id: int) -> AsyncIterator[BareSql]:
    """A connection like the gateway's, with the library chosen once; the server must be running."""
    with EmbeddedPostgres(data_dir / "postgres") as server:
        connection = await asyncpg.connect(**asdict(server.start()), server_settings=_SETTINGS)
        try:
            await register_vector(connection)
            await connection.execute("select set_config('philorag.library_id', $1, false)", str(library_id))
            yield BareSql(connection)
        finally:
            await connection.close()
